"""Errors of the store in plain words: types and functions have the names of Spark SQL."""

from collections.abc import Iterator

import duckdb
import pytest

from millstream.store.query_errors import explained


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        made.execute(
            "CREATE TABLE t (ts TIMESTAMPTZ, n TIMESTAMP, id BIGINT, s TEXT, d DECIMAL(10, 2), a BIGINT[], "
            "m MAP(TEXT, BIGINT), st STRUCT(x INT, y TIMESTAMPTZ))"
        )
        made.execute("INSERT INTO t VALUES ('2026-01-01', '2026-01-01', 1, 'a', 1.5, [1], MAP {'a': 1}, NULL)")
        yield made


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("ts > 5", "TIMESTAMP and INT cannot be compared"),
        ("ts = id", "BIGINT cannot become TIMESTAMP"),
        ("n = a", "TIMESTAMP_NTZ cannot become ARRAY<BIGINT>"),
        ("d = a", "DECIMAL(10, 2) cannot become ARRAY<BIGINT>"),
        ("m = id", "BIGINT cannot become MAP<STRING, BIGINT>"),
        ("st = id", "BIGINT cannot become STRUCT<x: INT, y: TIMESTAMP>"),
        ("coalesce(ts, 5)", "TIMESTAMP and INT cannot be mixed in COALESCE"),
        ("greatest(ts, 5)", "TIMESTAMP and INT cannot be combined"),
        ("m[1]", "`[]` cannot be computed of STRING and INT"),
        ("id['a']", "`[]` cannot be computed of BIGINT, STRING"),
        ("a LIKE 'x'", "`LIKE` cannot be computed of ARRAY<BIGINT>, STRING"),
        ("d + a", "`+` cannot be computed of DECIMAL(10, 2), ARRAY<BIGINT>"),
        ("list_contains(a, ts)", "`array_contains` cannot be computed of BIGINT and TIMESTAMP"),
        ("CAST('x' AS DECIMAL(10, 2))", "`x` cannot become DECIMAL(10, 2)"),
        ("CAST('1,2]' AS BIGINT[])", "`1,2]` cannot become ARRAY<BIGINT>"),
        ("CAST(1e30 AS DECIMAL(10, 2))", "`1000000000000000019884624838656.000000` does not fit into DECIMAL(10, 2)"),
        (
            "sum(id) OVER (ORDER BY 1 / (CASE WHEN id = 0 THEN error('Division by zero') ELSE id END))",
            "a division is not allowed in PARTITION BY or ORDER BY of a window in a query",
        ),
        ("list_filter(a, LAMBDA e : e IN (SELECT id FROM t))", "a subquery is not allowed inside a lambda"),
        ("unnest(ts)", "explode needs an array, not TIMESTAMP"),
        ("regexp_matches(s, '[')", "a regular expression cannot be read: missing ]: ["),
    ],
)
def test_types_and_functions_are_named_as_in_spark_sql(
    connection: duckdb.DuckDBPyConnection, asked: str, message: str
) -> None:
    with pytest.raises(duckdb.Error) as caught:
        connection.execute(f"SELECT {asked} FROM t").fetchall()
    assert explained(str(caught.value)).message == message
