"""Intervals and times without a zone as values: text, assignment, JSON, and the types of expressions."""

# ruff: noqa: DTZ001 - times without a zone are what is tested
from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.cli.output import csv_text, json_text
from millstream.connect.file_parts import encoded
from millstream.errors import SchemaError, Unsupported
from millstream.kernels.aggregates.interval_sums import mean_of
from millstream.log.rows import infer, to_batch, topic_schema
from millstream.model.expression import expr
from millstream.model.python.typed_state import TypedState
from millstream.model.types.assignment import Unfit, assigned, from_values
from millstream.model.types.interval import MOST, interval_micros_of, interval_text, micros_of
from millstream.model.types.scalars import INTERVAL, LOCAL_TIMESTAMP, TIMESTAMP
from millstream.model.types.schema import Schema, ddl_type
from millstream.result import Result, text_table

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(0), "INTERVAL '0 00:00:00' DAY TO SECOND"),
        (DAY + 3723 * SECOND + timedelta(milliseconds=500), "INTERVAL '1 01:02:03.5' DAY TO SECOND"),
        (-DAY - SECOND, "INTERVAL '-1 00:00:01' DAY TO SECOND"),
        (timedelta(microseconds=-1), "INTERVAL '-0 00:00:00.000001' DAY TO SECOND"),
        (timedelta(days=3652058), "INTERVAL '3652058 00:00:00' DAY TO SECOND"),
    ],
)
def test_an_interval_is_written_as_spark_writes_it(value: timedelta, text: str) -> None:
    assert interval_text(value) == text
    assert interval_micros_of(text) == micros_of(value)


@settings(max_examples=200, deadline=None)
@given(st.integers(-MOST, MOST))
def test_every_interval_is_read_back_from_its_text(micros: int) -> None:
    text = interval_text(micros)
    assert interval_micros_of(text) == micros
    assert interval_micros_of(text.split("'")[1]) == micros


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1 hour",
        "1 25:00:00",
        "1 00:60:00",
        "INTERVAL '1 00:00:00'",
        "1 00:00:00.0000001",
        "9999999999 00:00:00",
    ],
)
def test_what_is_no_interval_is_not_read_as_one(text: str) -> None:
    assert interval_micros_of(text) is None


@pytest.mark.parametrize(
    ("said", "kind", "named"),
    [
        ("INTERVAL DAY TO SECOND", INTERVAL, "INTERVAL DAY TO SECOND"),
        ("INTERVAL HOUR", INTERVAL, "INTERVAL DAY TO SECOND"),
        ("interval hour to minute", INTERVAL, "INTERVAL DAY TO SECOND"),
        ("TIMESTAMP_NTZ", LOCAL_TIMESTAMP, "TIMESTAMP_NTZ"),
        ("timestamp  without time zone", LOCAL_TIMESTAMP, "TIMESTAMP_NTZ"),
        ("TIMESTAMP WITH TIME ZONE", TIMESTAMP, "TIMESTAMP"),
        ("ARRAY<INTERVAL DAY TO SECOND>", pa.list_(INTERVAL), "ARRAY<INTERVAL DAY TO SECOND>"),
        (
            "STRUCT<a: TIMESTAMP_NTZ, b: INTERVAL DAY>",
            pa.struct([("a", LOCAL_TIMESTAMP), ("b", INTERVAL)]),
            "STRUCT<`a`: TIMESTAMP_NTZ, `b`: INTERVAL DAY TO SECOND>",
        ),
    ],
)
def test_a_schema_has_them_under_these_names(said: str, kind: pa.DataType, named: str) -> None:
    (field,) = Schema.parse(f"`x TIMESTAMP WITHOUT TIME ZONE` {said}")
    assert (field.type, ddl_type(kind)) == (kind, named)
    assert field.name == "x TIMESTAMP WITHOUT TIME ZONE"
    assert Schema.parse(f"x {named}").fields[0].type == kind


@pytest.mark.parametrize("said", ["INTERVAL YEAR TO MONTH", "INTERVAL MONTH", "INTERVAL SECOND TO DAY"])
def test_an_interval_of_months_is_refused_with_what_to_write(said: str) -> None:
    with pytest.raises(SchemaError, match="not supported as the type of a column") as caught:
        Schema.parse(f"x {said}")
    assert "INT for a number of months" in (caught.value.hint or "")


def test_an_interval_without_units_and_a_length_are_refused() -> None:
    with pytest.raises(SchemaError, match="needs its units"):
        Schema.parse("x INTERVAL")
    with pytest.raises(Unsupported, match=r"TIMESTAMP_NTZ\(3\)") as caught:
        Schema.parse("x TIMESTAMP_NTZ(3)")
    assert caught.value.hint == "write TIMESTAMP_NTZ"


NOON = datetime(2026, 1, 31, 12, 0, 0, 5)


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (timedelta(hours=25), INTERVAL, timedelta(hours=25)),
        ("1 01:00:00", INTERVAL, timedelta(hours=25)),
        ("INTERVAL '-1 01:00:00' DAY TO SECOND", INTERVAL, -timedelta(hours=25)),
        (NOON, LOCAL_TIMESTAMP, NOON),
        (NOON.replace(tzinfo=UTC), LOCAL_TIMESTAMP, NOON),
        ("2026-01-31T12:00:00.000005", LOCAL_TIMESTAMP, NOON),
        (date(2026, 1, 31), LOCAL_TIMESTAMP, datetime(2026, 1, 31)),
        (NOON, TIMESTAMP, NOON.replace(tzinfo=UTC)),
        (timedelta(hours=25), pa.string(), "INTERVAL '1 01:00:00' DAY TO SECOND"),
        (NOON, pa.string(), "2026-01-31 12:00:00.000005"),
        (datetime(2026, 1, 31), pa.date32(), date(2026, 1, 31)),
        ([timedelta(hours=1), None], pa.list_(INTERVAL), [timedelta(hours=1), None]),
    ],
)
def test_values_that_a_column_takes(value: Any, kind: pa.DataType, expected: Any) -> None:
    assert from_values([value, None], kind).to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("value", "kind", "why"),
    [
        (3600, INTERVAL, "not an interval"),
        ("an hour", INTERVAL, "not an interval"),
        (1767225600, LOCAL_TIMESTAMP, "not a time"),
        ("2026-01-31T12:00:00Z", LOCAL_TIMESTAMP, "it has a time zone"),
        ("soon", LOCAL_TIMESTAMP, "not a time"),
        (timedelta(hours=1), pa.int64(), "not a number"),
        (timedelta(hours=1), TIMESTAMP, "not a time"),
    ],
)
def test_values_that_it_does_not_take(value: Any, kind: pa.DataType, why: str) -> None:
    with pytest.raises(Unfit, match=why):
        from_values([value], kind, seconds=True)


def test_columns_of_other_units_and_zones_are_taken_without_a_loss() -> None:
    assert assigned(pa.array([1], pa.duration("s")), INTERVAL).to_pylist() == [SECOND]
    with pytest.raises(Unfit):
        assigned(pa.array([1], pa.duration("ns")), INTERVAL)
    assert assigned(pa.array([NOON], TIMESTAMP), LOCAL_TIMESTAMP).to_pylist() == [NOON]
    assert assigned(pa.array([NOON], LOCAL_TIMESTAMP), TIMESTAMP).to_pylist() == [NOON.replace(tzinfo=UTC)]


def test_a_topic_keeps_the_types_and_an_inferred_schema_has_moments() -> None:
    kinds = pa.schema([("d", INTERVAL), ("n", LOCAL_TIMESTAMP), ("z", TIMESTAMP)])
    assert topic_schema(kinds) == kinds
    found = infer([{"d": SECOND, "n": NOON}])
    assert found.types == [INTERVAL, TIMESTAMP]
    assert Schema.from_arrow(kinds).field("n").type == TIMESTAMP
    assert Schema.from_arrow(kinds, exact=True).field("n").type == LOCAL_TIMESTAMP
    assert to_batch({"d": "0 00:00:01", "n": NOON, "z": NOON}, kinds).to_pylist() == [
        {"d": SECOND, "n": NOON, "z": NOON.replace(tzinfo=UTC)}
    ]


def test_answers_show_intervals_as_spark_does_and_no_zone_where_there_is_none() -> None:
    rows = [[1.5 * DAY, NOON, NOON.replace(tzinfo=UTC), [SECOND]]]
    columns = ["d", "n", "z", "l"]
    assert orjson.loads(json_text(columns, rows)) == [
        {
            "d": "INTERVAL '1 12:00:00' DAY TO SECOND",
            "n": "2026-01-31T12:00:00.000005",
            "z": "2026-01-31T12:00:00.000005Z",
            "l": ["INTERVAL '0 00:00:01' DAY TO SECOND"],
        }
    ]
    assert (
        csv_text(columns[:2], [rows[0][:2]]) == "d,n\nINTERVAL '1 12:00:00' DAY TO SECOND,2026-01-31T12:00:00.000005\n"
    )
    assert "INTERVAL '1 12:00:00' DAY TO SECOND  2026-01-31 12:00:00.000005" in text_table(columns[:2], [rows[0][:2]])
    table = pa.table({"d": pa.array([SECOND], INTERVAL), "n": pa.array([NOON], LOCAL_TIMESTAMP)})
    assert Result(table).to_dicts() == [{"d": SECOND, "n": NOON}]


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_sink_writes_what_a_source_reads(form: str) -> None:
    table = pa.table({"d": pa.array([DAY, None], INTERVAL), "n": pa.array([NOON, None], LOCAL_TIMESTAMP)})
    data = encoded(table, form)
    if form == "json":
        assert orjson.loads(data.splitlines()[0]) == {
            "d": "INTERVAL '1 00:00:00' DAY TO SECOND",
            "n": "2026-01-31T12:00:00.000005",
        }
    elif form == "csv":
        assert data.splitlines()[1] == b"\"INTERVAL '1 00:00:00' DAY TO SECOND\",2026-01-31 12:00:00.000005"
    else:
        assert pa.parquet.read_table(pa.BufferReader(data)).equals(table)


TYPES = Schema.parse("a TIMESTAMP, n TIMESTAMP_NTZ, d INTERVAL DAY TO SECOND, day DATE, x BIGINT")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("a - a", INTERVAL),
        ("n - a", INTERVAL),
        ("day - day", INTERVAL),
        ("(a - n) * 2", INTERVAL),
        ("2 * d", INTERVAL),
        ("d / 2", INTERVAL),
        ("-d", INTERVAL),
        ("abs(a - a)", INTERVAL),
        ("d + INTERVAL '1' HOUR", INTERVAL),
        ("coalesce(d, INTERVAL '0' SECOND)", INTERVAL),
        ("make_dt_interval(1, 2)", INTERVAL),
        ("INTERVAL '1 02:03:04' DAY TO SECOND", INTERVAL),
        ("CAST('1 00:00:00' AS INTERVAL DAY TO SECOND)", INTERVAL),
        ("a + d", TIMESTAMP),
        ("d + a", TIMESTAMP),
        ("n - d", LOCAL_TIMESTAMP),
        ("a + INTERVAL 1 MONTH", TIMESTAMP),
        ("CAST(a AS TIMESTAMP_NTZ)", LOCAL_TIMESTAMP),
        ("INTERVAL 1 MONTH", None),
        ("make_ym_interval(1, 2)", None),
        ("x - x", pa.int64()),
        ("d > INTERVAL '1' HOUR", pa.bool_()),
    ],
)
def test_the_types_of_expressions_are_known(said: str, kind: pa.DataType | None) -> None:
    assert expr(said).bind(TYPES).type_in(TYPES) == kind


def test_the_state_of_python_operators_has_them() -> None:
    @dataclass
    class Seen:
        longest: timedelta = timedelta(0)
        local: Annotated[datetime | None, "TIMESTAMP_NTZ"] = None

    assert [c.type for c in TypedState.of(Seen).cells] == [INTERVAL, LOCAL_TIMESTAMP]


def test_a_mean_is_rounded_half_away_from_zero() -> None:
    micro = timedelta(microseconds=1)
    assert mean_of([micro, 0 * micro]) == micro
    assert mean_of([-micro, 0 * micro]) == -micro
    assert mean_of([micro, 0 * micro, 0 * micro]) == 0 * micro
