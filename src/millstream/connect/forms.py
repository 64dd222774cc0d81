"""The forms in which a source returns a slice. The engine has one reader for each (`engine/input/readers/`).

A slice may consist of several forms: a topic passes its sealed segments to Spark and its tail as an Arrow table. All
forms produce rows with the columns of the source and the system columns

    $part   INT      the partition
    $pos    BIGINT   the position in it; it grows with the order of the records, and is the same in every reading
    $bad    INT      0, or why the record is an error (`connect/port.py`); may be left out
    $raw    STRING   the text of a record that is an error; may be left out

Forms are values: they can be compared, stored, and sent to another process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True)
class FilePart:
    """A file of a slice."""

    number: int
    """Its number in the order of discovery: rows of a file with a lower number come first."""
    path: str
    size: int
    problem: str | None = None
    """Why it cannot be read: then it is one error, and its rows are not read."""


@dataclass(frozen=True)
class FileSet:
    """Whole files of one format, all of partition 0."""

    format: str
    """json (an object per line), csv or parquet."""
    files: tuple[FilePart, ...]
    header: bool = True
    """Whether CSV files begin with a header."""


@dataclass(frozen=True)
class ByteRange:
    """Whole lines of a text file: the bytes from `start` to before `end`. The position of a row is its first byte."""

    path: str
    start: int
    end: int
    partition: int = 0
    base: int = 0
    """Added to the position in the file, where several files form one partition."""


@dataclass(frozen=True)
class ByteRanges:
    """Ranges of growing text files, such as a log file that is followed."""

    format: str
    """json or csv, without a header."""
    ranges: tuple[ByteRange, ...]


@dataclass(frozen=True, eq=False)
class ArrowRows:
    """Rows that are already in memory."""

    table: pa.Table
    """The columns of the source, ``$part``, ``$pos``, and ``$bad`` and ``$raw`` where they are known."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrowRows) and self.table.equals(other.table)

    def __hash__(self) -> int:
        return hash((self.table.num_rows, tuple(self.table.column_names)))


@dataclass(frozen=True)
class SparkFormat:
    """The output of a batch reader of Spark: ``spark.read.format(format).options(...).load(*paths)``."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    paths: tuple[str, ...] = ()
    partition: str = "$part"
    """The column that holds the partition of a row."""
    position: str = "$offset"
    """The column that holds its position."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Spark SQL for columns of the source that the reader does not return under their own name."""
    typed: bool = True
    """Whether the reader accepts a schema (files do, Kafka does not)."""
    ranges: Mapping[int, tuple[int, int]] | None = None
    """The range of positions of each partition, where the reader returns more than the
    slice; None where it does not.
    """


Range = tuple[int, int, int]
"""Partition, start and end."""


class ReadsRanges(Protocol):
    """Reads a range of offsets of a partition, in any process. It must be picklable."""

    def __call__(self, partition: int, start: int, end: int) -> pa.Table | Iterable[pa.Table]:
        """The records, in order: the columns of the source, and ``$pos``, ``$bad`` and ``$raw`` as in all forms. Rows
        without ``$pos`` are numbered from `start` on.
        """
        ...


@dataclass(frozen=True)
class PythonRanges:
    """Ranges that a Python function reads: in the driver where they are short, otherwise on the executors."""

    read: ReadsRanges
    ranges: tuple[Range, ...]
    chunk: int | None = None
    """The most offsets per call, so that ranges are read in parallel; None: one call per range."""
    marks: bool = False
    """Whether the function may return ``$bad`` and ``$raw``: records that are errors."""
    costly: bool = False
    """Whether reading is expensive: then several views share one read."""

    @property
    def offsets(self) -> int:
        """The number of offsets."""
        return sum(end - start for _, start, end in self.ranges)

    def calls(self) -> list[Range]:
        """The calls that read everything, in order."""
        return [
            (p, first, end if self.chunk is None else min(end, first + self.chunk))
            for p, start, end in self.ranges
            for first in range(start, end, self.chunk or max(1, end - start))
        ]

    def tables(self, schema: pa.Schema, calls: Iterable[Range] | None = None) -> Iterable[pa.Table]:
        """The results of calls, with the columns of a schema and the system columns."""
        for partition, start, end in self.calls() if calls is None else calls:
            read = self.read(partition, start, end)
            for table in [read] if isinstance(read, pa.Table) else read:
                yield _numbered(table, schema, partition, start, marks=self.marks)
                start += table.num_rows


def _numbered(table: pa.Table, schema: pa.Schema, partition: int, start: int, *, marks: bool) -> pa.Table:
    rows = table.num_rows
    columns = {f.name: table[f.name].cast(f.type) for f in schema}
    columns["$part"] = pa.repeat(pa.scalar(partition, pa.int32()), rows)
    there = "$pos" in table.column_names
    columns["$pos"] = table["$pos"].cast(pa.int64()) if there else pa.array(range(start, start + rows), pa.int64())
    if marks:
        bad = table["$bad"] if "$bad" in table.column_names else pa.repeat(pa.scalar(0, pa.int32()), rows)
        columns["$bad"] = bad.cast(pa.int32())
        raw = table["$raw"] if "$raw" in table.column_names else pa.nulls(rows)
        columns["$raw"] = raw.cast(pa.string())
    return pa.table(columns)


Form = FileSet | ByteRanges | ArrowRows | SparkFormat | PythonRanges
