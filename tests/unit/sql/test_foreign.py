"""Formats, JSON paths and flags of other databases, in Spark's words."""

from __future__ import annotations

import pytest

from millstream.errors import MillstreamError
from millstream.sql.dialects.function_forms import spark_format
from millstream.sql.parse import queries
from millstream.sql.parse.text import Text, tokens


@pytest.mark.parametrize(
    ("postgres", "spark"),
    [
        ("YYYY-MM-DD", "yyyy-MM-dd"),
        ("YYYY-MM-DD HH24:MI:SS.MS", "yyyy-MM-dd HH:mm:ss.SSS"),
        ("DD Mon YY, HH12:MI AM", "dd MMM yy, hh:mm a"),
        ('FMDay "of" YYYY', "EEEE 'of' yyyy"),
        ("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd HH:mm:ss"),
        ("'mon' yyyy", "'mon' yyyy"),
        ("MM-DD", "MM-dd"),
        ("DD.MM.", "dd.MM."),
        ("Day", "EEEE"),
        ("SS.MS", "ss.SSS"),
        ("yyyy-mm-dd hh24:mi", "yyyy-MM-dd HH:mm"),
        ("FMDD Mon YYYY", "d MMM yyyy"),
        ("FMMM/FMDD, FMHH12:MI am", "M/d, h:mm a"),
        ("HH:mm:ss.SS", "HH:mm:ss.SS"),
        ("yyyyMMddHHmmss", "yyyyMMddHHmmss"),
        ("D yyyy", "D yyyy"),
        ("999MI", "999MI"),
        ("$9,999.99", "$9,999.99"),
    ],
)
def test_a_format_of_times(postgres: str, spark: str) -> None:
    assert spark_format(postgres) == spark
    assert spark_format(spark) == spark


def in_spark(expression: str) -> str:
    text = Text(f"SELECT {expression}")
    return queries.parse(text, tuple(tokens(text))).sql(dialect="spark").removeprefix("SELECT ")


@pytest.mark.parametrize(
    ("written", "spark"),
    [
        ("j -> 'a' -> 'b' ->> 0", "GET_JSON_OBJECT(j, '$.a.b[0]')"),
        ("(j -> 'a') ->> 'b c'", "GET_JSON_OBJECT(j, '$.a[\\'b c\\']')"),
        ("j::jsonb #>> '{a,0}'", "COALESCE(GET_JSON_OBJECT(j, '$.a[0]'), GET_JSON_OBJECT(j, '$.a[\\'0\\']'))"),
        ("j ->> '2024'", "GET_JSON_OBJECT(j, '$[\\'2024\\']')"),
        ("j -> '1' ->> 2", "GET_JSON_OBJECT(j, '$[\\'1\\'][2]')"),
        ("j ->> 'a.b'", "GET_JSON_OBJECT(j, '$[\\'a.b\\']')"),
        ("(j -> 'a.b') ->> 'c'", "GET_JSON_OBJECT(j, '$[\\'a.b\\'].c')"),
        ("j ->> '$.a.b'", "GET_JSON_OBJECT(j, '$.a.b')"),
        ("transform(tags, t -> 'a.b')", "TRANSFORM(tags, t -> 'a.b')"),
        (
            "split_index(json_value(j, '$.a'), ',', 0)",
            "GET(SPLIT(GET_JSON_OBJECT(j, '$.a'), CONCAT('\\\\Q', ',', '\\\\E')), 0)",
        ),
        ("to_date(s, 'yyyy-MM-dd')", "CAST(TO_TIMESTAMP(s, 'yyyy-MM-dd') AS DATE)"),
        ("to_char(n, '999MI')", "TO_CHAR(n, '999MI')"),
        ("regexp_like(s, 'a', 'ic')", "s RLIKE 'a'"),
        ("filter(tags, t -> t = 'x')", "FILTER(tags, t -> t = 'x')"),
    ],
)
def test_an_expression_in_spark(written: str, spark: str) -> None:
    assert in_spark(written) == spark


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("j -> 'a'", "->>"),
        ("j ->> s", "get_json_object"),
        ("json_extract_path_text(j, 'a?')", "from_json"),
        ("s SIMILAR TO 'a%'", "RLIKE"),
        ("tags[1:2]", "slice"),
        ("'x' = ALL(tags)", "forall"),
        ("ltrim(s, 'x')", "TRIM(LEADING 'x' FROM s)"),
        ("regexp_like(s, 'a', 'm')", "(?i)"),
        ("date_bin(INTERVAL '1' MONTH, ts, ts)", "10 seconds"),
        ("to_char(ts, 'YYYY-IW')", "yyyy-MM-dd"),
        ("to_char(ts, 'yyyy-mm-dd')", "yyyy-MM-dd"),
        ("to_date(s, 'dd/mm/yyyy')", "`MM` is the month"),
        ("to_char(ts, 'DD MON YYYY')", "Spark's letters"),
        ("to_char(ts, 'FMYY-MM')", "Spark's letters"),
        ("to_timestamp_ltz(n, 6)", "milliseconds"),
    ],
)
def test_what_spark_cannot_say_is_refused(written: str, hint: str) -> None:
    with pytest.raises(MillstreamError) as caught:
        in_spark(written)
    assert hint in (caught.value.hint or "")
    assert caught.value.origin is not None and caught.value.origin.column
