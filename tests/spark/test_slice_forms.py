"""The reader of each form, on Spark: rows, positions, errors, and several forms in one slice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from millstream.connect.forms import (
    ArrowRows,
    ByteRange,
    ByteRanges,
    FilePart,
    FileSet,
    Form,
    PythonRanges,
    SparkFormat,
)
from millstream.connect.port import MISTYPED, UNPARSABLE, Offsets, SourceBase, SourceFacts, SourceSlice
from millstream.engine.input.readers import json_reader, python_ranges
from millstream.engine.input.readers.slices import READERS, read
from millstream.engine.input.rejects import errors
from millstream.model.connectors import memory
from millstream.model.source_options import SourceOptions
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema
from millstream.plan.plan import PlannedSource
from millstream.testing.slice_rows import slice_rows

pytestmark = pytest.mark.spark

SCHEMA = Schema.parse("n BIGINT, s STRING")
STAGE = PlannedSource("s", memory(), SCHEMA, SourceOptions(None, Duration(0), Duration(0), None, None), positions=True)
PART = SourceSlice({0: (0, 1)})


class Fixed(SourceBase):
    """A source whose slice has these forms."""

    def __init__(self, *forms: Form) -> None:
        self.forms = forms

    def head(self, now: int) -> Offsets:
        return {0: 1}

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        return self.forms

    def describe(self) -> SourceFacts:
        return SourceFacts("memory")


def rows(spark: SparkSession, *forms: Form) -> list[tuple[Any, ...]]:
    """(partition, position, n, s, bad), in order."""
    frame = read(spark, STAGE, Fixed(*forms), PART, 0).frame
    found = [(r["$part"], r["$pos"], r["n"], r["s"], r["$bad"]) for r in frame.collect()]
    return sorted(found, key=lambda r: r[:2])


def arrow(first: int, count: int, part: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "s": [str(n) for n in numbers],
            "$part": pa.array([part] * count, pa.int32()),
            "$pos": pa.array(numbers, pa.int64()),
        }
    )


def test_every_form_has_one_reader() -> None:
    assert set(READERS) == set(get_args(Form))


def test_byte_ranges_are_read_line_by_line_and_name_errors_by_their_byte(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, wrong = ['{"n": 1, "s": "a"}\n', "\n", '{"n": 2, "s": "b"}\r\n'], ["{broken\n", '{"n": "x", "s": "c"}\n']
    lines = [*good, *wrong, '{"n": 4}\n']
    data = "".join(lines).encode()
    path = tmp_path / "growing.json"
    path.write_bytes(data)
    at = [len("".join(lines[:i])) for i in range(len(lines) + 1)]
    form = ByteRanges("json", (ByteRange(str(path), 0, at[3], 1, 1000), ByteRange(str(path), at[3], at[6], 1, 1000)))
    wanted = [
        (1, 1000, 1, "a", 0),
        (1, 1000 + at[2], 2, "b", 0),
        (1, 1000 + at[3], None, None, UNPARSABLE),
        (1, 1000 + at[4], None, "c", MISTYPED),
        (1, 1000 + at[5], 4, None, 0),
    ]
    assert rows(spark, form) == wanted
    monkeypatch.setattr(json_reader, "LOCAL_BYTES", 0)
    assert rows(spark, form) == wanted  # on the executors
    found = errors(spark, STAGE, Fixed(form), PART, 1, 0).to_pylist()
    assert [(e["reason"], e["raw"], e["partition"], e["offset"]) for e in found] == [
        ("unparsable", "{broken", str(path), at[3]),
        ("wrong type in a field", '{"n": "x", "s": "c"}', str(path), at[4]),
    ]


@dataclass(frozen=True)
class Reads:
    """Even numbers, in pieces; every number that is 6 is an error."""

    def __call__(self, partition: int, start: int, end: int) -> Iterator[pa.Table]:
        for n in range(start, end):
            if n % 2 == 0:
                bad = UNPARSABLE if n == 6 else 0
                raw = "six" if bad else None
                yield pa.table({"n": [n], "s": [f"{partition}"], "$pos": [n], "$bad": [bad], "$raw": [raw]})


def test_a_python_function_reads_ranges_in_the_driver_or_on_executors(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = PythonRanges(Reads(), ((0, 3, 9), (2, 0, 3)), chunk=2, marks=True)
    wanted = [(0, 4, 4, "0", 0), (0, 6, 6, "0", UNPARSABLE), (0, 8, 8, "0", 0), (2, 0, 0, "2", 0), (2, 2, 2, "2", 0)]
    assert rows(spark, form) == wanted
    monkeypatch.setattr(python_ranges, "LOCAL_ROWS", 0)
    assert rows(spark, form) == wanted
    assert [e["raw"] for e in errors(spark, STAGE, Fixed(form), PART, 1, 0).to_pylist()] == ["six"]
    assert form.calls() == [(0, 3, 5), (0, 5, 7), (0, 7, 9), (2, 0, 2), (2, 2, 3)]


def test_a_format_of_spark_gives_its_columns_and_the_ranges_of_a_slice(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(arrow(0, 6).rename_columns(["n", "s", "$part", "$offset"]), tmp_path / "a.parquet")
    form = SparkFormat("parquet", paths=(str(tmp_path / "a.parquet"),), ranges={0: (2, 4)})
    assert rows(spark, form) == [(0, 2, 2, "2", 0), (0, 3, 3, "3", 0)]
    other = pa.table({"key": ["7"], "value": ["v"], "partition": [3], "offset": [9]})
    pq.write_table(other, tmp_path / "b.parquet")
    kafka = SparkFormat(
        "parquet",
        {"mergeSchema": "false"},
        (str(tmp_path / "b.parquet"),),
        "partition",
        "offset",
        {"n": "CAST(key AS BIGINT)", "s": "value"},
        typed=False,
    )
    assert rows(spark, kafka) == [(3, 9, 7, "v", 0)]


def test_a_slice_may_have_several_forms(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"n": 1, "s": "file"}\nbad\n')
    files = FileSet("json", (FilePart(0, str(path), 30), FilePart(1, "/gone", 1, "it is gone")))
    forms = (files, ArrowRows(arrow(5, 1, part=1)), PythonRanges(Reads(), ((2, 6, 7),), marks=True))
    assert [(r[0], r[2], r[4]) for r in rows(spark, *forms)] == [
        (0, 1, 0),
        (0, None, UNPARSABLE),
        (0, None, 6),
        (1, 5, 0),
        (2, 6, UNPARSABLE),
    ]
    found = errors(spark, STAGE, Fixed(*forms), PART, 1, 0).to_pylist()
    assert {(e["partition"], e["offset"], e["raw"]) for e in found} == {
        ("/gone", 0, "it is gone"),
        (str(path), 1, "bad"),
        ("2", 6, "six"),
    }
    assert len(found) == 3


def test_the_rows_without_spark_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(arrow(0, 4), tmp_path / "a.parquet")
    lines = "".join(f'{{"n": {n}, "s": "{n}"}}\n' for n in range(3))
    (tmp_path / "b.json").write_text(lines)
    for form in (
        ArrowRows(arrow(3, 2)),
        PythonRanges(Reads(), ((0, 0, 5),), marks=True),
        SparkFormat("parquet", paths=(str(tmp_path / "a.parquet"),), position="$pos", ranges={0: (1, 3)}),
        ByteRanges("json", (ByteRange(str(tmp_path / "b.json"), 0, len(lines)),)),
        FileSet("json", (FilePart(2, str(tmp_path / "b.json"), len(lines)),)),
    ):
        told = slice_rows([form], SCHEMA).to_pylist()
        assert [(r["$part"], r["$pos"], r["n"], r["s"], r["$bad"]) for r in told] == rows(spark, form)
