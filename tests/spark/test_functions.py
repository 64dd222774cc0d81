"""The everyday functions of Spark, Postgres and Flink: views (by Spark) and questions (by the store) mean the same."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import duckdb

from millstream.sql import queries, reading
from millstream.sql.text import Text, tokens

COLUMNS = "a, b, s, tags, ts, ts2, d, day, j, f"
ROWS = """
(1, 7, 'Hello, world, x', array('g', 'h'), TIMESTAMP '2026-03-05 10:20:30.5', TIMESTAMP '2025-12-31 23:59:59', 2.567D,
 DATE '2026-03-05', '{"a": {"b": 3}}', true),
(-3, 2, 'abcABC', array(), TIMESTAMP '2024-02-29 00:00:00', TIMESTAMP '2024-02-28 12:00:00', -1.55D, DATE '2024-02-29',
 '{"a": 1}', false),
(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
FUNCTIONS = (
    "to_timestamp('2026-01-02', 'yyyy-MM-dd')",
    "date_part('year', ts)",
    "date_part('dow', ts)",
    "date_part('isodow', ts)",
    "extract(year FROM ts)",
    "extract(month FROM day)",
    "extract(epoch FROM ts)",
    "extract(dow FROM ts)",
    "extract(isodow FROM ts)",
    "extract(isoyear FROM ts)",
    "extract(doy FROM ts)",
    "extract(week FROM ts)",
    "extract(quarter FROM ts)",
    "extract(hour FROM ts)",
    "extract(second FROM ts)",
    "epoch(ts)",
    "strpos(s, 'l')",
    "split_part(s, ',', 2)",
    "initcap(s)",
    "ltrim(s)",
    "trim(BOTH 'x' FROM s)",
    "left(s, 2)",
    "right(s, 2)",
    "regexp_replace(s, '[a-c]', '_')",
    "regexp_replace(s, '[a-c]', '_', 'g')",
    "regexp_replace(s, '[a-c]', '_', 'gi')",
    "string_to_array(s, ',')",
    "array_to_string(tags, '+')",
    "array_length(tags, 1)",
    "cardinality(tags)",
    "size(tags)",
    "json_value(j, '$.a')",
    "get_json_object(j, '$.a.b')",
    "greatest(a, b)",
    "least(a, b)",
    "greatest(a, b, 5)",
    "nullif(a, 1)",
    "coalesce(a, b, 0)",
    "char_length(s)",
    "octet_length(s)",
    "position('o' IN s)",
    "overlay(s PLACING 'XX' FROM 2 FOR 3)",
    "overlay(s PLACING 'XX' FROM 2)",
    "md5(s)",
    "sha1(s)",
    "sha256(s)",
    "to_hex(b)",
    "chr(b + 64)",
    "ascii(s)",
    "trunc(day, 'MM')",
    "make_date(2026, 1, 2)",
    "to_date('2026-01-02')",
    "to_date('2026/01/02', 'yyyy/MM/dd')",
    "floor(d)",
    "ceil(d)",
    "ceiling(d)",
    "datediff(day, DATE '2026-01-01')",
    "date_diff(day, DATE '2026-01-01')",
    "date_add(day, 3)",
    "date_sub(day, 3)",
    "last_day(day)",
    "next_day(day, 'MO')",
    "date_format(ts, 'yyyy-MM-dd HH:mm')",
    "to_char(ts, 'yyyy/MM/dd')",
    "concat_ws('-', s, 'x')",
    "concat(s, 'x')",
    "s || 'x'",
    "mod(b, 3)",
    "a % 2",
    "power(b, 2)",
    "ln(b)",
    "log(b)",
    "log(2, b)",
    "log10(b)",
    "log2(b)",
    "exp(a)",
    "sqrt(b)",
    "cbrt(b)",
    "sign(a)",
    "abs(a)",
    "round(d, 1)",
    "round(d)",
    "trunc(d)",
    "trunc(d, 1)",
    "truncate(d, 2)",
    "degrees(d)",
    "radians(d)",
    "pi()",
    "div(b, 2)",
    "b / 2",
    "lpad(s, 20, '0')",
    "rpad(s, 20, '.')",
    "repeat(s, 2)",
    "reverse(s)",
    "replace(s, 'l', 'L')",
    "translate(s, 'lo', '01')",
    "starts_with(s, 'H')",
    "endswith(s, 'x')",
    "contains(s, 'b')",
    "substr(s, 2, 3)",
    "substring(s FROM 2 FOR 3)",
    "substr(s, -3)",
    "upper(s)",
    "lower(s)",
    "dayofweek(ts)",
    "weekday(ts)",
    "dayofyear(ts)",
    "dayofmonth(ts)",
    "weekofyear(ts)",
    "year(ts)",
    "month(ts)",
    "day(ts)",
    "hour(ts)",
    "minute(ts)",
    "second(ts)",
    "quarter(ts)",
    "monthname(ts)",
    "dayname(ts)",
    "unix_seconds(ts)",
    "unix_millis(ts)",
    "unix_micros(ts)",
    "from_unixtime(b)",
    "split(s, ',')",
    "array_position(tags, 'h')",
    "array_contains(tags, 'h')",
    "array_append(tags, 'k')",
    "array_remove(tags, 'g')",
    "array_max(tags)",
    "sort_array(tags)",
    "if(a > 0, 1, 2)",
    "ifnull(a, 1)",
    "nvl(a, 1)",
    "nvl2(a, 1, 2)",
    "isnull(a)",
    "isnotnull(a)",
    "bit_length(s)",
    "base64(encode(s, 'utf-8'))",
    "hex(b)",
    "s ILIKE 'HEL%'",
    "s RLIKE 'b.A'",
    "regexp_like(s, 'b.A')",
    "regexp_matches(s, 'b.A')",
    "regexp(s, 'b.A')",
    "regexp_extract(s, '([a-c]+)', 1)",
    "regexp_substr(s, '[a-c]+')",
    "regexp_count(s, 'l')",
    "instr(s, 'l')",
    "locate('l', s)",
    "levenshtein(s, 'Hello')",
    "factorial(b)",
    "a & 1",
    "a | 4",
    "a ^ 1",
    "shiftleft(b, 1)",
    "CAST(a AS STRING)",
    "CAST(s IS NULL AS INT)",
    "try_cast(s AS INT)",
    "f AND a > 0",
    "CASE WHEN a > 0 THEN 'p' ELSE 'n' END",
    "a BETWEEN 0 AND 2",
    "a IN (1, 2)",
    "a <=> NULL",
    "make_timestamp(2026, 1, 2, 3, 4, 5)",
    "ts > TIMESTAMP '2025-01-01 00:00:00'",
    "space(3)",
    "split_index(s, ',', 1)",
    "btrim(s)",
    "btrim(s, 'aC')",
    "date_trunc('month', ts)",
    "date_trunc('week', ts)",
    "date_trunc('DAY', ts)",
    "floor(ts TO day)",
    "ceil(ts TO hour)",
    "ceil(ts TO month)",
    "timestampadd(DAY, 1, ts)",
    "timestampdiff(DAY, ts2, ts)",
    "timestampdiff(HOUR, ts2, ts)",
    "timestampdiff(MONTH, ts2, ts)",
    "add_months(day, 1)",
    "bround(d, 1)",
    "substring_index(s, ',', 2)",
    "substring_index(s, ',', -1)",
    "unix_timestamp(ts)",
    "timestamp_seconds(b)",
    "array_distinct(tags)",
    "array_reverse(tags)",
    "ts + INTERVAL '1' DAY",
    "ts - INTERVAL '90' MINUTE",
    "get(tags, 1)",
    "try_cast('12' AS INT)",
    "list_contains(tags, 'g')",
    "list_sort(tags)",
    "concat('a', s)",
    "charindex('l', s)",
    "date_format(ts, 'EEE')",
    "datediff(HOUR, ts2, ts)",
    "timestampadd(HOUR, 2, ts)",
    "dateadd(MONTH, 1, day)",
)
AGGREGATES = (
    "bool_and(f)",
    "bool_or(f)",
    "every(f)",
    "some(f)",
    "stddev(b)",
    "stddev_samp(b)",
    "stddev_pop(b)",
    "variance(b)",
    "var_samp(b)",
    "var_pop(b)",
    "std(b)",
    "max_by(s, b)",
    "arg_max(s, b)",
    "min_by(s, b)",
    "arg_min(s, b)",
    "count_if(a > 0)",
    "median(b)",
    "mode(f)",
    "kurtosis(b)",
    "sum(d)",
    "avg(b)",
    "corr(a, b)",
    "bit_or(b)",
    "percentile(b, 0.5)",
)


def plain(value: Any) -> Any:
    """A value without what tells one engine's types from another's: widths of numbers, and the zone of times."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float | Decimal):
        return float(f"{float(value):.9g}")
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value


def read(select: str) -> Any:
    text = Text(select)
    return queries.parse(text, tuple(tokens(text)))


def test_a_view_and_a_question_mean_the_same_by_a_function(spark: Any) -> None:
    spark.sql(f"SELECT * FROM VALUES {ROWS} AS t({COLUMNS})").createOrReplaceTempView("everyday")
    with duckdb.connect() as store:
        store.execute("SET TimeZone = 'UTC'")
        store.register("everyday", spark.table("everyday").toArrow())
        for given, order in ((FUNCTIONS, " ORDER BY a"), (AGGREGATES, "")):
            shown = ", ".join(f"{e} AS x{i}" for i, e in enumerate(given))
            select = f"SELECT {shown} FROM everyday{order}"
            by_spark = spark.sql(read(select).sql(dialect="spark", identify=True)).toArrow().to_pydict()
            asked = reading.asked(read(select), {"everyday": COLUMNS.split(", ")}).sql
            by_store = store.sql(asked).to_arrow_table().to_pydict()
            found = {e: [plain(v) for v in by_spark[f"x{i}"]] for i, e in enumerate(given)}
            answered = {e: [plain(v) for v in by_store[f"x{i}"]] for i, e in enumerate(given)}
            assert {e: v for e, v in found.items() if answered[e] != v} == {
                e: v for e, v in answered.items() if found[e] != v
            }
