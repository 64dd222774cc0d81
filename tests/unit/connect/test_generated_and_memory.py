"""Generators paced by a clock, and rows sent by hand."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream as ms
from millstream.clock import ManualClock
from millstream.connect.generator import ROWS_PER_EPOCH, GeneratorSource
from millstream.connect.memory import MemorySource
from millstream.connect.port import MISTYPED, SourceSlice
from millstream.model.types.schema import Schema


def make(start: int, end: int) -> pa.Table:
    return pa.table({"n": list(range(start, end))})


def test_a_paced_generator_gives_what_is_due_by_the_clock_it_is_shown() -> None:
    clock = ManualClock()
    source = GeneratorSource(ms.generator(make, rate=10, events=25), 0)
    assert source.head(clock.now()) == {0: 0}
    for seconds, due in ((1, 10), (0.05, 10), (0.05, 11), (1, 21), (100, 25)):
        clock.advance(round(seconds * 1_000_000))
        assert source.head(clock.now()) == {0: due}
    assert source.finished({0: 25}) and not source.finished({0: 24})


def test_a_paced_generator_goes_on_from_where_it_was() -> None:
    clock = ManualClock()
    source = GeneratorSource(ms.generator(make, rate=10), 500)
    assert source.head(clock.now()) == {0: 500}
    clock.advance(1_000_000)
    assert source.head(clock.now()) == {0: 510}
    assert not source.finished({0: 10**12})


@given(st.integers(0, 1000), st.lists(st.integers(0, 3_000_000), max_size=10), st.integers(1, 50))
def test_slices_never_skip_or_repeat_a_number(first: int, waits: list[int], limit: int) -> None:
    clock = ManualClock()
    source = GeneratorSource(ms.generator(make, rate=7), first)
    at = first
    for wait in waits:
        clock.advance(wait)
        part = source.admit({0: at}, source.head(clock.now()), limit)
        ((start, end),) = part.ranges.values()
        assert start == at <= end <= at + limit and source.rows(part) == end - start
        at = end


def test_a_generator_without_rate_is_bounded_per_epoch_only() -> None:
    source = GeneratorSource(ms.generator(make), 0)
    head = source.head(0)
    assert source.admit({}, head, None) == SourceSlice({0: (0, ROWS_PER_EPOCH)})
    assert source.admit({0: 5}, head, 3) == SourceSlice({0: (5, 8)})
    ended = GeneratorSource(ms.generator(make, events=4), 0)
    assert ended.admit({0: 3}, ended.head(0), None) == SourceSlice({0: (3, 4)})


SCHEMA = Schema.parse("a BIGINT, d DECIMAL(5, 2), s STRING, ts TIMESTAMP, xs ARRAY<INT>, day DATE")


def sent(*rows: dict[str, Any], partitions: int = 1) -> MemorySource:
    memory = ms.memory(partitions=partitions)
    for i, row in enumerate(rows):
        memory.send(row, partition=i % partitions)
    return MemorySource(memory, SCHEMA)


def read(source: MemorySource) -> list[dict[str, Any]]:
    return source.table(source.admit({}, source.head(0), None)).to_pylist()


def test_a_memory_source_is_finished_when_its_end_was_said_and_all_was_read() -> None:
    memory = ms.memory(partitions=2)
    source = MemorySource(memory, SCHEMA)
    memory.send({"a": 1}, {"a": 2}, partition=1)
    assert not source.finished({0: 0, 1: 2})
    memory.end()
    assert source.finished({0: 0, 1: 2}) and not source.finished({0: 0, 1: 1}) and not source.finished({})
    nothing = ms.memory()
    nothing.end()
    assert MemorySource(nothing, SCHEMA).finished({})


def test_rows_keep_their_partition_and_position() -> None:
    source = sent(*({"a": i} for i in range(5)), partitions=2)
    assert source.head(0) == {0: 3, 1: 2}
    rows = read(source)
    assert [(r["$part"], r["$pos"], r["a"]) for r in rows] == [(0, 0, 0), (0, 1, 2), (0, 2, 4), (1, 0, 1), (1, 1, 3)]
    assert all(r["$bad"] == 0 and r["$raw"] is None for r in rows)
    part = source.admit({0: 1, 1: 2}, source.head(0), 1)
    assert part == SourceSlice({0: (1, 2), 1: (2, 2)}) and source.rows(part) == 1
    assert not source.finished({0: 3, 1: 2})


GOOD = [
    ({"ts": "2026-01-01T00:00:00Z"}, "ts", datetime(2026, 1, 1, tzinfo=UTC)),
    ({"ts": "2026-01-01T01:00:00+01:00"}, "ts", datetime(2026, 1, 1, tzinfo=UTC)),
    ({"ts": datetime(2026, 1, 1)}, "ts", datetime(2026, 1, 1, tzinfo=UTC)),  # noqa: DTZ001
    ({"ts": 1.5}, "ts", datetime(1970, 1, 1, 0, 0, 1, 500000, UTC)),
    ({"a": None}, "a", None),
    ({}, "a", None),
    ({"d": Decimal("1.25")}, "d", Decimal("1.25")),
    ({"xs": [1, None]}, "xs", [1, None]),
    ({"day": date(2026, 1, 1)}, "day", date(2026, 1, 1)),
]


@pytest.mark.parametrize(("row", "column", "value"), GOOD, ids=str)
def test_values_may_be_given_as_people_write_them(row: dict[str, Any], column: str, value: object) -> None:
    (found,) = read(sent(row))
    assert found[column] == value and found["$bad"] == 0


BAD = [
    {"a": "five"},
    {"a": 1.5},
    {"a": 2**63},
    {"a": 2**70},
    {"a": [1]},
    {"s": {}},
    {"ts": "yesterday"},
    {"ts": [1]},
    {"ts": float("nan")},
    {"ts": float("inf")},
    {"ts": 1e30},
    {"xs": 5},
    {"xs": ["x"]},
    {"d": Decimal("12345.678")},
    {"d": "x"},
    {"day": "2026"},
    {"a": object()},
    {"s": b"\xff"},
    {"a": {1: 2}},
]


@pytest.mark.parametrize("row", BAD, ids=lambda r: str(r).split(" at 0x")[0])
def test_a_value_that_does_not_fit_marks_its_row_and_no_other(row: dict[str, Any]) -> None:
    rows = read(sent({"a": 1, "s": "x"}, row, {"a": 2, "s": "y"}))
    assert [r["$bad"] for r in rows] == [0, MISTYPED, 0]
    assert isinstance(rows[1]["$raw"], str) and rows[0]["$raw"] is None
    assert [rows[0]["a"], rows[2]["a"]] == [1, 2] and [rows[0]["s"], rows[2]["s"]] == ["x", "y"]


@given(st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 9), st.integers(10, 20))))
def test_a_slice_survives_json(ranges: dict[int, tuple[int, int]]) -> None:
    part = SourceSlice(ranges)
    assert SourceSlice.from_json(part.to_json()) == part
    assert part.empty == (not ranges) and part.end == {p: r[1] for p, r in ranges.items()}
