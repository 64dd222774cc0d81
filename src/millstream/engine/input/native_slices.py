"""Slices that the driver or a task can read itself, as Arrow batches, without Spark's readers.

A slice is native if each of its forms is: JSON lines in plain files or byte ranges, Parquet files with exactly the
declared types, rows in memory, and ranges that a Python function reads. Lines of JSON that only Spark may judge are not
among the rows. They are **doubtful**: they reach the driver, and Spark's parser decides about them there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from millstream.connect.forms import ArrowRows, ByteRange, ByteRanges, FileSet, Form, PythonRanges, Range, SparkFormat
from millstream.engine.input.readers import files, json_reader, parquet_groups
from millstream.engine.input.readers.arrow_rows import LOCAL_ROWS
from millstream.engine.input.readers.columns import FormRead, Wanted
from millstream.engine.input.readers.json_task import DoubtfulLine
from millstream.engine.input.readers.parquet_groups import ParquetShare, RowGroup
from millstream.engine.spark.cluster import parallelism

Record = Callable[[DoubtfulLine], None]
"""Gets every doubtful line."""


class Share(Protocol):
    """A part of a slice, read by one task. It can be sent to another process."""

    def batches(self, record: Record | None = None) -> Iterator[pa.RecordBatch]:
        """The rows: the columns of the source that are read, ``$part``, ``$pos``, and ``$bad`` where it is known.
        `record` gets every doubtful line.
        """
        ...


@dataclass(frozen=True)
class NativeSlice:
    """A slice in shares. If it is `small`, the driver reads it."""

    shares: Sequence[Share]
    small: bool
    of_lines: Callable[[Sequence[DoubtfulLine], Wanted], FormRead] | None = None
    """The rows of doubtful lines, after Spark has parsed them."""


def native_slice(spark: SparkSession, wanted: Wanted, forms: Sequence[Form]) -> NativeSlice | None:
    """A slice in shares; None if Spark has to read it."""
    parts = []
    for form in forms:
        part = _NATIVE[type(form)](spark, wanted, form)
        if part is None or (part.of_lines is not None and len(forms) > 1):
            return None
        parts.append(part)
    if len(parts) == 1:
        return parts[0]
    return NativeSlice([s for p in parts for s in p.shares], all(p.small for p in parts)) if parts else None


def _in_memory(spark: SparkSession, wanted: Wanted, form: ArrowRows) -> NativeSlice | None:
    del spark
    fits = form.table.num_rows <= LOCAL_ROWS and _fits(form.table, wanted)
    return NativeSlice([_Rows(form.table, wanted.columns)], small=True) if fits else None


def _calls(spark: SparkSession, wanted: Wanted, form: PythonRanges) -> NativeSlice:
    del spark
    small = form.offsets <= LOCAL_ROWS
    calls = [r for r in form.ranges if r[2] > r[1]] if small else form.calls()
    schema = wanted.schema.to_arrow()
    return NativeSlice([_Call(form, schema, call, wanted.columns) for call in calls], small)


def _files(spark: SparkSession, wanted: Wanted, form: FileSet) -> NativeSlice | None:
    if form.format == "parquet":
        whole = all(f.problem is None for f in form.files)
        return _parquet(spark, wanted, parquet_groups.of_files(form.files, wanted.schema) if whole else None)
    ranges = files.native_ranges(form, wanted)
    return None if ranges is None else _json(spark, wanted, ranges, by_line=True)


def _byte_ranges(spark: SparkSession, wanted: Wanted, form: ByteRanges) -> NativeSlice | None:
    fits = form.format == "json" and json_reader.fits(wanted.schema)
    return _json(spark, wanted, form.ranges, by_line=False) if fits else None


def _segments(spark: SparkSession, wanted: Wanted, form: SparkFormat) -> NativeSlice | None:
    return _parquet(spark, wanted, parquet_groups.of_segments(form, wanted.schema), form)


def _json(spark: SparkSession, wanted: Wanted, ranges: Sequence[ByteRange], *, by_line: bool) -> NativeSlice:
    whole = json_reader.ranges_of(wanted, ranges, by_line=by_line)

    def of_lines(lines: Sequence[DoubtfulLine], asked: Wanted) -> FormRead:
        return json_reader.of_lines(spark, asked, json_reader.ranges_of(asked, ranges, by_line=by_line), lines)

    return NativeSlice(json_reader.parsed_shares(spark, whole), json_reader.is_small(ranges), of_lines)


def _parquet(
    spark: SparkSession, wanted: Wanted, groups: list[RowGroup] | None, form: SparkFormat | None = None
) -> NativeSlice | None:
    """Row groups of files. With a `form`, the files carry partitions and positions."""
    if groups is None:
        return None
    schema = wanted.schema.to_arrow()
    columns = pa.schema([schema.field(n) for n in wanted.columns])
    system = None if form is None else (form.partition, form.position)
    small = sum(g.rows for g in groups) <= LOCAL_ROWS
    shares = [groups] if small else parquet_groups.dealt(groups, parallelism(spark))
    ranges = None if form is None else form.ranges
    return NativeSlice([ParquetShare(share, columns, system, ranges) for share in shares], small)


def _fits(table: pa.Table, wanted: Wanted) -> bool:
    """Whether the columns of a table have exactly the types of the source."""
    expected = wanted.schema.to_arrow()
    return all(n in table.column_names and table.schema.field(n).type == expected.field(n).type for n in wanted.columns)


def _system(table: pa.Table) -> list[str]:
    return [n for n in ("$part", "$pos", "$bad") if n in table.column_names]


@dataclass(frozen=True)
class _Rows:
    """Rows in memory."""

    table: pa.Table
    columns: Sequence[str]

    def batches(self, record: Record | None = None) -> Iterator[pa.RecordBatch]:
        del record
        yield from self.table.select([*self.columns, *_system(self.table)]).to_batches()


@dataclass(frozen=True)
class _Call:
    """A call of a Python function that reads a range."""

    form: PythonRanges
    schema: pa.Schema = field(repr=False)
    call: Range
    columns: Sequence[str]

    def batches(self, record: Record | None = None) -> Iterator[pa.RecordBatch]:
        del record
        for table in self.form.tables(self.schema, [self.call]):
            yield from table.select([*self.columns, *_system(table)]).to_batches()


_NATIVE: dict[type, Callable[[SparkSession, Wanted, Any], NativeSlice | None]] = {
    FileSet: _files,
    ByteRanges: _byte_ranges,
    ArrowRows: _in_memory,
    SparkFormat: _segments,
    PythonRanges: _calls,
}
"""The shares of each form."""
