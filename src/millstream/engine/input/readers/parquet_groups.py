"""Reads Parquet files with Arrow: the row groups of the files of a slice, dealt out to tasks.

Arrow reads a file only where it gives what Spark gives: every column of the source is in the file, under exactly its
name and with its type (`reads_alike`). All other files are read by Spark.

The position of a row is its number in its file, whatever the groups and tasks. Files that carry partitions and
positions themselves, such as the segments of a topic, name the columns that hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.connect.forms import FilePart, SparkFormat
from millstream.errors import SourceMissing, SourceUnreadable
from millstream.model.types.schema import Schema

TASK_ROWS = 4_000_000
"""About as many rows as one task reads."""
BATCH_ROWS = 1 << 17
"""Rows of a batch."""
FILE_SHIFT = 36
"""The number of a file begins at this bit of a position."""

_LEGACY_TIMES = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_SPARK_VERSION = b"org.apache.spark.version"
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


@dataclass(frozen=True)
class RowGroup:
    """A row group of a file: its number, its rows, the position of the first of them."""

    path: str
    group: int
    rows: int
    position: int = 0


@dataclass(frozen=True)
class ParquetShare:
    """Row groups that one task reads, and the columns that it returns."""

    groups: Sequence[RowGroup]
    columns: pa.Schema
    """The columns of the source that are read, with their types."""
    system: tuple[str, str] | None = None
    """The columns of the file that hold partition and position; None: partition 0, and the rows are numbered."""
    ranges: Mapping[int, tuple[int, int]] | None = None
    """With `system`: the positions of each partition that belong to the slice; None if all do."""

    def batches(self, record: Callable[..., None] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, in order, with ``$part`` and ``$pos``. No row is doubtful."""
        del record
        names = [*self.columns.names, *(self.system or ())]
        file: pq.ParquetFile | None = None
        path = ""
        for group in self.groups:
            try:
                if file is None or path != group.path:
                    file, path = pq.ParquetFile(group.path, memory_map=True), group.path
                position = group.position
                for batch in file.iter_batches(BATCH_ROWS, [group.group], names, use_threads=False):
                    yield from self._placed(pa.Table.from_batches([batch]), position).to_batches()
                    position += batch.num_rows
            except FileNotFoundError:
                raise SourceMissing(f"a file that was to be read is gone: {group.path}") from None
            except (pa.ArrowException, OSError) as error:
                raise SourceUnreadable(
                    f"the file {group.path} cannot be read as the source says", detail=str(error)[:300]
                ) from None

    def _placed(self, rows: pa.Table, position: int) -> pa.Table:
        columns = {f.name: rows[f.name].cast(f.type) for f in self.columns}
        if self.system is None:
            columns["$part"] = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
            columns["$pos"] = pa.array(np.arange(position, position + rows.num_rows))
            return pa.table(columns)
        columns["$part"] = rows[self.system[0]].cast(pa.int32())
        columns["$pos"] = rows[self.system[1]].cast(pa.int64())
        placed = pa.table(columns)
        return placed if self.ranges is None else placed.filter(within(self.ranges))


def within(ranges: Mapping[int, tuple[int, int]]) -> pc.Expression:
    """Whether a row with ``$part`` and ``$pos`` is within ranges of positions, by partition."""
    part, pos, inside = pc.field("$part"), pc.field("$pos"), pc.scalar(False)
    for partition, (start, end) in ranges.items():
        inside |= (part == partition) & (pos >= start) & (pos < end)
    return inside


def of_files(files: Sequence[FilePart], schema: Schema) -> list[RowGroup] | None:
    """The row groups of files; None if Spark must read one of them."""
    return _groups([(f.path, f.number << FILE_SHIFT) for f in files], schema.to_arrow())


def of_segments(form: SparkFormat, schema: Schema) -> list[RowGroup] | None:
    """The row groups of files that carry partitions and positions; None if Spark must read them."""
    if form.format != "parquet" or form.options or form.columns or not form.typed:
        return None
    system = [(form.partition, pa.int32()), (form.position, pa.int64())]
    return _groups([(path, 0) for path in form.paths], pa.schema([*schema.to_arrow(), *system]))


def _groups(files: Sequence[tuple[str, int]], schema: pa.Schema) -> list[RowGroup] | None:
    found: list[RowGroup] = []
    for path, position in files:
        try:
            with pq.ParquetFile(path) as file:
                if not reads_alike(file, schema):
                    return None
                for number in range(file.num_row_groups):
                    rows = file.metadata.row_group(number).num_rows
                    found.append(RowGroup(path, number, rows, position))
                    position += rows
        except (pa.ArrowException, OSError):
            return None  # Spark's reader reports it
    return found


def reads_alike(file: pq.ParquetFile, schema: pa.Schema) -> bool:
    """Whether Arrow gives the rows that Spark gives for a file and the declared columns."""
    metadata = file.metadata.metadata or {}
    written_by = metadata.get(_SPARK_VERSION, b"9")
    if any(key in metadata for key in _LEGACY_TIMES) or written_by < b"3":
        return False  # times before 1900 in another calendar
    actual = file.schema_arrow
    lowered = [name.lower() for name in actual.names]
    if len(set(lowered)) < len(lowered):
        return False
    return all(actual.get_field_index(f.name) >= 0 and _is_same(actual.field(f.name).type, f.type) for f in schema)


def _is_same(actual: pa.DataType, declared: pa.DataType) -> bool:
    if pa.types.is_nested(declared):
        return False
    if pa.types.is_timestamp(declared) and pa.types.is_timestamp(actual):
        return (actual.tz is None) == (declared.tz is None) and actual.unit in ("us", "ms")
    alike = any(all(any(kind(t) for kind in kinds) for t in (actual, declared)) for kinds in (_TEXTS, _BYTES))
    return alike or actual == declared


def dealt(groups: Sequence[RowGroup], tasks: int) -> list[list[RowGroup]]:
    """Consecutive row groups for each task. A multiple of `tasks`, which run at once, read about as many rows each."""
    total = sum(g.rows for g in groups)
    count = min(len(groups), tasks * max(1, ceil(total / (tasks * TASK_ROWS))))
    shares: list[list[RowGroup]] = [[] for _ in range(count)]
    before = 0
    for group in groups:
        middle = before + group.rows / 2
        shares[min(count - 1, int(middle * count / max(1, total)))].append(group)
        before += group.rows
    return [share for share in shares if share]
