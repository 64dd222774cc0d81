"""Conditions and values without Spark: the same as DuckDB gives, and left to Spark where kinds of values differ."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from millstream.kernels import native_expressions
from millstream.plan.lowering.native_subset import quick_sql
from tests.duck import connected

ROWS = pl.DataFrame(
    {
        "a": [1, 2, None, 4],
        "b": [2, 2, 3, None],
        "s": ["x", None, "y", "z"],
        "t": [datetime(2026, 1, 1, 0, 0, s, tzinfo=UTC) for s in (1, 5, 9, 30)],
        "u": [datetime(2026, 1, 1, 0, 0, s, tzinfo=UTC) for s in (3, 5, 2, 59)],
        "f": [1.0, float("nan"), None, 0.5],
    }
)


@pytest.mark.parametrize(
    "sql",
    [
        "a < b",
        "NOT (a < b)",
        "a = 2 OR s = 'z'",
        "a IS NULL AND b > 2",
        "t BETWEEN u - INTERVAL '3' SECOND AND u + INTERVAL '1' SECOND",
        "NOT (s <> 'x')",
        "(a >= 1) AND NOT (b IS NULL)",
        "1 IS NOT NULL",
        "1 = 2",
        "2 > a",
        "2 <= a",
        "'y' = s",
    ],
)
def test_a_condition_is_what_a_batch_gives(sql: str) -> None:
    told = quick_sql(sql)
    assert told is not None
    held = native_expressions.holds(told, pl.concat([ROWS[:1], ROWS[1:]], rechunk=False))
    with connected() as batch:
        batch.register("given", ROWS.to_arrow())
        found = [v for (v,) in batch.sql(f"SELECT coalesce({sql}, false) FROM given").fetchall()]
        shown = [v for (v,) in batch.sql(f"SELECT {sql} FROM given").fetchall()]
    assert held is not None
    assert held.to_list() == found
    value = native_expressions.value(told, ROWS)
    assert value is not None
    assert ROWS.with_columns(value.alias("$v"))["$v"].to_list() == shown, "as a column it may be NULL"


@pytest.mark.parametrize("sql", ["2 = a", "2 < a", "2 >= a", "NOT (2 <> a)", "a > 2", "'x' = s", "2 = a OR 1 IS NULL"])
@pytest.mark.parametrize("length", range(4))
def test_a_condition_has_a_value_for_every_row_without_values(sql: str, length: int) -> None:
    kinds = {"a": pl.Int64, "s": pl.String}
    rows = pl.DataFrame({n: [None] * length for n in kinds}, schema=kinds)
    told = quick_sql(sql)
    assert told is not None
    held, value = native_expressions.holds(told, rows), native_expressions.value(told, rows)
    assert held is not None
    assert value is not None
    assert held.to_list() == [False] * length
    assert len(rows.select("a", value.alias("$v"))) == length


def test_values_are_columns_and_instants() -> None:
    for sql, expected in (
        ("`a`", [1, 2, None, 4]),
        (
            "UNIX_MICROS(t) + 1",
            [1_767_225_601_000_001, 1_767_225_605_000_001, 1_767_225_609_000_001, 1_767_225_630_000_001],
        ),
        ("LEAST(UNIX_MICROS(t), UNIX_MICROS(u) - 5)", [1_767_225_601_000_000, 1_767_225_604_999_995]),
    ):
        told = quick_sql(sql)
        assert told is not None
        value = native_expressions.value(told, ROWS)
        assert value is not None
        assert ROWS.select(value).to_series().to_list()[: len(expected)] == expected


@pytest.mark.parametrize("sql", ["a + b > 2", "upper(s) = 'X'", "a < 1.5", "s LIKE 'x%'", "a IN (1, 2)", "s.x = 1"])
def test_what_is_not_so_plain_is_left_to_spark(sql: str) -> None:
    assert quick_sql(sql) is None


@pytest.mark.parametrize("sql", ["a < s", "t < s", "a = f", "t = a"])
def test_kinds_that_are_not_alike_are_left_to_spark(sql: str) -> None:
    told = quick_sql(sql)
    assert told is not None
    assert native_expressions.holds(told, ROWS) is None
