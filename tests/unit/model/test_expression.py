"""Expressions: SQL text and Python operators are one tree; nothing but scalar functions over columns gets through."""

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import DefinitionError, MillstreamError, SchemaError, Unsupported
from millstream.model.expression import Expr, boolean, col, expr, literal
from millstream.model.types.schema import TIMESTAMP, Schema

DB = duckdb.connect()
SCHEMA = Schema.parse(
    "a BIGINT, b BIGINT, f DOUBLE, s STRING, t STRING, p BOOLEAN, q BOOLEAN, ts TIMESTAMP, d DATE, xs ARRAY<BIGINT>, "
    "ys ARRAY<BIGINT>, m MAP<STRING, BIGINT>, r STRUCT<x: BIGINT, y: STRUCT<z: STRING>>, amount DECIMAL(10, 2)"
)

REFUSED = [
    # run code, or read the machine
    "reflect('java.lang.System', 'exit', 1)",
    "java_method('java.lang.System', 'getenv', 'HOME')",
    "`reflect`('java.lang.System', 'exit')",
    "`java_method`('a', 'b')",
    "reflect/**/('a', 'b')",
    "reflect -- x\n('a', 'b')",
    "ReFlEcT('a', 'b')",
    "system.builtin.reflect('a', 'b')",
    "try_reflect('a', 'b')",
    "IDENTIFIER('reflect')('a', 'b')",
    "IDENTIFIER('abs')(a)",
    "IDENTIFIER('re' || 'flect')",
    "transform(xs, x -> reflect('a', 'b'))",
    "transform(xs, x -> filter(ys, y -> reflect('a', y) = x))",
    "aggregate(xs, 0, (u, v) -> u + v, w -> java_method('a', 'b'))",
    "coalesce(a, if(p, reflect('a', 'b'), 2))",
    "CASE WHEN p THEN reflect('a', 'b') END",
    "xs[reflect('a', 'b')]",
    "TRANSFORM(a) USING 'cat'",
    "a IN (TRANSFORM(a) USING 'cat')",
    "input_file_name()",
    "version()",
    "current_user()",
    "current_user",
    "session_user",
    "current_catalog()",
    "current_database()",
    "current_schema()",
    "my_udf(a)",
    "_udf(a)",
    "`my udf`(a)",
    "ai_query('x')",
    "raise_error('x')",
    "assert_true(p)",
    "read_files('/etc')",
    "@v",
    "${v}",
    # differ from run to run
    "rand()",
    "rand(1)",
    "randn()",
    "random()",
    "uuid()",
    "UUID ()",
    "now()",
    "`now`()",
    "{fn now()}",
    "current_timestamp",
    "current_timestamp()",
    "CURRENT_DATE",
    "current_date()",
    "curdate()",
    "localtimestamp()",
    "localtimestamp",
    "current_time",
    "unix_timestamp()",
    "shuffle(xs)",
    "monotonically_increasing_id()",
    "spark_partition_id()",
    "randstr(5)",
    "uniform(1, 2)",
    "transform(xs, x -> x + rand())",
    # not over one row
    "count(*)",
    "count(a)",
    "sum(a) > 5",
    "max(a)",
    "avg(a) + 1",
    "collect_list(a)",
    "first(a)",
    "any_value(a)",
    "approx_count_distinct(a)",
    "row_number() OVER (ORDER BY a)",
    "sum(a) OVER ()",
    "lag(a)",
    "explode(xs)",
    "inline(xs)",
    "posexplode(xs)",
    "stack(2, a, b)",
    "window(ts, '1 second')",
    "session_window(ts, '1 second')",
    # not expressions
    "SELECT 1",
    "(SELECT 1)",
    "(SELECT max(a) FROM t)",
    "EXISTS (SELECT 1)",
    "a IN (SELECT 1)",
    "a IN (VALUES 1)",
    "VALUES (1)",
    "FROM t",
    "TABLE t",
    "*",
    "t.*",
    "a AS x",
    "?",
    ":name",
    "DROP TABLE t",
    "INSERT INTO t VALUES (1)",
    "CREATE TABLE t (a INT)",
    "DELETE FROM t",
    "SET x = 1",
    "USE x",
    "a; b",
    "a > 1; DROP TABLE t",
    "SHOW TABLES",
    "DESCRIBE t",
    "ADD JAR 'x'",
    # not SQL
    "",
    "   ",
    "a >",
    "a ** 2",
    "(a",
    "a b c",
    "'open",
    "\u2603",
    "a \u2265 b",
    "\uff52and()",
    "rand\u200b()",
]

ALLOWED = [
    "a",
    "1",
    "1.5",
    "1e3",
    "10L",
    "'text'",
    "NULL",
    "TRUE",
    "DATE '2026-01-01'",
    "TIMESTAMP '2026-01-01 00:00:00'",
    "a + b * 2 - 1",
    "(a + b) * 2",
    "a / b",
    "a % 2",
    "a DIV b",
    "-a",
    "a & 1",
    "a | 1",
    "a ^ 1",
    "~a",
    "a > 1",
    "a >= 1 AND b < 2 OR NOT p",
    "a = b",
    "a <> b",
    "a != b",
    "a <=> b",
    "a BETWEEN 1 AND 2",
    "a NOT BETWEEN 1 AND 2",
    "a IN (1, 2, 3)",
    "a NOT IN (1)",
    "s LIKE 'x%'",
    "s NOT LIKE 'x%'",
    "s RLIKE '^x'",
    "s ILIKE 'X%'",
    "a IS NULL",
    "a IS NOT NULL",
    "p IS TRUE",
    "CASE WHEN a > 1 THEN 'x' ELSE 'y' END",
    "CASE a WHEN 1 THEN 'x' END",
    "if(p, a, b)",
    "coalesce(a, b, 0)",
    "nullif(a, b)",
    "nvl(a, b)",
    "CAST(a AS STRING)",
    "a::STRING",
    "try_cast(s AS INT)",
    "CAST(a AS DECIMAL(10, 2))",
    "double(a)",
    "upper(s)",
    "`upper`(s)",
    "s || t",
    "concat_ws(',', s, t)",
    "substring(s, 1, 2)",
    "trim(BOTH 'x' FROM s)",
    "split(s, ' ')",
    "regexp_extract(s, '(x)', 1)",
    "length(s)",
    "get_json_object(s, '$.x')",
    "from_json(s, 'x INT')",
    "to_json(struct(a, b))",
    "md5(s)",
    "sha2(s, 256)",
    "xxhash64(a, b)",
    "abs(a)",
    "round(f, 2)",
    "floor(f)",
    "ceil(f)",
    "sqrt(f)",
    "pow(f, 2)",
    "greatest(a, b)",
    "pmod(a, 3)",
    "date_trunc('hour', ts)",
    "year(ts)",
    "EXTRACT(HOUR FROM ts)",
    "date_format(ts, 'yyyy-MM')",
    "unix_timestamp(ts)",
    "ts + INTERVAL 1 DAY",
    "date_add(d, 1)",
    "datediff(d, d)",
    "to_date(s)",
    "xs[0]",
    "m['k']",
    "element_at(m, 'k')",
    "size(xs)",
    "array(a, b)",
    "map('k', a)",
    "struct(a, b)",
    "named_struct('x', a)",
    "r.x",
    "r.y.z",
    "transform(xs, x -> x + a)",
    "filter(xs, x -> x > 0)",
    "exists(xs, x -> x > 0)",
    "aggregate(xs, 0L, (u, v) -> u + v)",
    "zip_with(xs, ys, (x, y) -> x + y)",
    "transform(xs, x -> size(filter(ys, y -> y > x)))",
    "a > 1 -- why",
    "a /* why */ > 1",
    "`a` > 1",
    "sequence(1, a)",
    "array_contains(xs, a)",
    "current_timezone()",
    "'reflect(1)'",
    "s = 'now()'",
    "s = 'SELECT 1; DROP'",
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_repeatable_expression_over_one_row_is_refused(text: str) -> None:
    with pytest.raises((DefinitionError, Unsupported)) as caught:
        boolean(text, SCHEMA, "where")
    assert caught.value.origin is not None and caught.value.origin.file.endswith("test_expression.py")


def test_the_corpora_are_large_enough_to_mean_something() -> None:
    assert len(set(REFUSED)) >= 40 and len(set(ALLOWED)) >= 60


@pytest.mark.parametrize("text", ALLOWED)
def test_a_scalar_expression_binds_and_its_rendering_reads_back_as_itself(text: str) -> None:
    bound = expr(text).bind(SCHEMA)
    again = expr(bound.spark()).bind(SCHEMA)
    assert again.spark() == bound.spark()
    assert set(again.columns()) == set(bound.columns()) <= set(SCHEMA.names)


@pytest.mark.parametrize(
    ("text", "hint"),
    [("count(a)", "aggregate("), ("rand()", "event time"), ("explode(xs)", "flat_map"), ("a AS x", "keyword argument")],
)
def test_a_refusal_says_where_the_thing_belongs(text: str, hint: str) -> None:
    with pytest.raises(Unsupported) as caught:
        expr(text)
    assert hint in (caught.value.hint or "")


PAIRS = [
    (col("a") > 1, "a > 1"),
    (col("a") >= 1, "a >= 1"),
    (col("a") < 1, "a < 1"),
    (col("a") <= 1, "a <= 1"),
    (col("a") == 1, "a = 1"),
    (col("a") != 1, "a <> 1"),
    (col("a") + 1, "a + 1"),
    (1 + col("a"), "1 + a"),
    (col("a") - 1, "a - 1"),
    (1 - col("a"), "1 - a"),
    (col("a") * 2, "a * 2"),
    (2 * col("a"), "2 * a"),
    (col("a") / 2, "a / 2"),
    (col("a") % 2, "a % 2"),
    (~col("p"), "NOT p"),
    (col("p") & col("q"), "p AND q"),
    (col("p") | col("q"), "p OR q"),
    (col("a").is_null(), "a IS NULL"),
    (col("a").is_in(1, 2), "a IN (1, 2)"),
    (col("s") == "it's", "s = 'it\\'s'"),
    (col("a") * (col("b") + 1), "a * (b + 1)"),
    ((col("a") > 1) & ~(col("b") > 2), "(a > 1) AND (NOT (b > 2))"),
    (col("a") - (col("b") - 1), "a - (b - 1)"),
    (col("p") == True, "p = TRUE"),  # noqa: E712
    (col("s") == None, "s = NULL"),  # noqa: E711
    (col("f") > 1.5, "f > 1.5"),
    (col("a") > expr("b + 1"), "a > (b + 1)"),
]


@pytest.mark.parametrize(("built", "text"), PAIRS, ids=[t for _, t in PAIRS])
def test_operators_and_text_give_the_same_tree(built: Expr, text: str) -> None:
    assert expr(built.spark().replace("`", "")).node == expr(text).node
    assert built.spark() == expr(text).spark()


NUMBERS = st.recursive(
    st.one_of(
        st.sampled_from(["a", "b"]).map(lambda n: (col(n), lambda row: row[n])),
        st.integers(-9, 9).map(lambda v: (literal(v), lambda row: v)),
    ),
    lambda n: st.one_of(
        st.builds(lambda x, y: (x[0] + y[0], lambda row: x[1](row) + y[1](row)), n, n),
        st.builds(lambda x, y: (x[0] - y[0], lambda row: x[1](row) - y[1](row)), n, n),
        st.builds(lambda x, y: (x[0] * y[0], lambda row: x[1](row) * y[1](row)), n, n),
    ),
    max_leaves=5,
)
CONDITIONS = st.recursive(
    st.one_of(
        st.builds(lambda x, y: (x[0] > y[0], lambda row: x[1](row) > y[1](row)), NUMBERS, NUMBERS),
        st.builds(lambda x: (x[0].is_in(1, 2), lambda row: x[1](row) in (1, 2)), NUMBERS),
        st.just((expr("a BETWEEN 1 AND 3"), lambda row: 1 <= row["a"] <= 3)),
    ),
    lambda c: st.one_of(
        st.builds(lambda x: (~x[0], lambda row: not x[1](row)), c),
        st.builds(lambda x, y: (x[0] & y[0], lambda row: x[1](row) and y[1](row)), c, c),
        st.builds(lambda x, y: (x[0] | y[0], lambda row: x[1](row) or y[1](row)), c, c),
        st.builds(lambda x, y: (x[0] == y[0], lambda row: x[1](row) == y[1](row)), c, c),
    ),
    max_leaves=5,
)


@given(
    st.lists(st.tuples(st.one_of(NUMBERS, CONDITIONS), st.integers(-4, 4), st.integers(-4, 4)), min_size=5, max_size=5)
)
def test_an_expression_built_with_operators_means_what_python_means(cases: list[tuple[Any, int, int]]) -> None:
    """DuckDB is the judge: the text we render must group as the Python expression did."""
    for (built, meant), a, b in cases:
        text = expr(built.spark()).node.sql(dialect="duckdb")
        found = DB.execute(f"SELECT {text} FROM (SELECT {a}::BIGINT AS a, {b}::BIGINT AS b)").fetchall()[0][0]
        assert found == meant({"a": a, "b": b}), built


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x".__class__])
def test_a_constant_that_has_no_sql_is_refused_at_its_line(value: object) -> None:
    with pytest.raises(DefinitionError) as caught:
        col("a") == value  # noqa: B015
    assert caught.value.origin is not None


@pytest.mark.parametrize("text", [5, None, 1.5, ["a"]])
def test_an_expression_must_be_text_or_built(text: object) -> None:
    with pytest.raises(DefinitionError):
        expr(text)  # type: ignore[arg-type]


def test_an_expression_has_no_truth_value() -> None:
    with pytest.raises(DefinitionError, match="truth value") as caught:
        bool(col("a") > 1 and col("b") > 1)
    assert "&" in (caught.value.hint or "")


def test_is_in_needs_something_to_be_in() -> None:
    with pytest.raises(DefinitionError):
        col("a").is_in()


def test_binding_names_the_unknown_column_and_the_known_ones() -> None:
    with pytest.raises(SchemaError, match="there is no column `prise`") as caught:
        expr("prise > 1").bind(Schema.parse("price BIGINT"))
    assert caught.value.hint == "did you mean `price`?" and caught.value.detail == "there are: price"
    with pytest.raises(SchemaError, match=r"`x\.y`"):
        expr("x.y > 1").bind(Schema.parse("price BIGINT"))


def test_a_dotted_name_is_a_field_of_a_column() -> None:
    assert expr("r.y.z").bind(SCHEMA).spark() == "`r`.`y`.`z`"
    assert expr("r.y.z").bind(SCHEMA).columns() == ("r",)


def test_lambda_parameters_are_no_columns() -> None:
    bound = expr("transform(xs, x -> x + a)").bind(SCHEMA)
    assert bound.columns() == ("xs", "a")
    with pytest.raises(SchemaError, match="`nope`"):
        expr("transform(xs, x -> x + nope)").bind(SCHEMA)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a + 1", pa.int64()),
        ("a > 1", pa.bool_()),
        ("s", pa.string()),
        ("CAST(a AS DOUBLE)", pa.float64()),
        ("ts", TIMESTAMP),
        ("xs", pa.list_(pa.int64())),
    ],
)
def test_types_that_are_known_early(text: str, kind: pa.DataType) -> None:
    assert expr(text).bind(SCHEMA).type_in(SCHEMA) == kind


def test_a_condition_must_be_one_where_that_is_known() -> None:
    with pytest.raises(SchemaError, match=r"where needs a condition, but .*`a`.* is BIGINT") as caught:
        boolean("a", SCHEMA, "where")
    assert "compare" in (caught.value.hint or "")
    assert boolean("p", SCHEMA, "where").spark() == "`p`"


def test_substitution_keeps_the_grouping() -> None:
    made = expr("x * 2").substitute({"x": expr("a + b")})
    assert made.spark() == "(`a` + `b`) * 2"
    assert expr("x").substitute({"x": expr("a + b")}).spark() == "(`a` + `b`)"
    assert expr("x + y").substitute({"x": col("y"), "y": col("x")}).spark() == "`y` + `x`"


def test_substitution_does_not_capture_a_lambda_parameter() -> None:
    """`p` is the column x doubled; inside `x -> x + p` it must stay the column."""
    made = expr("transform(xs, x -> x + p)").substitute({"p": expr("x * 2")})
    parameter = made.spark().split("`")[3]
    assert "`x` * 2" in made.spark()
    assert parameter != "x"


def test_comments_are_no_part_of_an_expression() -> None:
    assert expr("a > 1 -- why").spark() == expr("a /* really */ > 1").spark() == expr("a > 1").spark()


TEXTS = st.text(st.sampled_from("abpxs01 ()[]{}'\"`.,;:?*@$-+<>=/\\\n%~|&^" + "éß☃"), max_size=24)


@given(
    st.one_of(
        TEXTS,
        st.tuples(st.sampled_from(REFUSED + ALLOWED), TEXTS, st.integers(0, 30)).map(
            lambda x: x[0][: x[2]] + x[1] + x[0][x[2] :]
        ),
    )
)
def test_any_text_is_read_or_refused_but_never_anything_else(text: str) -> None:
    try:
        made = expr(text).bind(SCHEMA)
    except MillstreamError:
        return
    assert isinstance(made.spark(), str)
