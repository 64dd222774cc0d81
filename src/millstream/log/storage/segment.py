"""Segments: sealed ranges of a partition as Parquet files, which Spark, DuckDB and Polars can read directly.

A segment has the topic's columns, then ``$part``, ``$offset`` and ``$time``. Its name contains the checksum of the
whole file; its metadata contains the topic it belongs to and its ingest times.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.log.storage.disk import Disk
from millstream.log.storage.files import SegmentName, damaged, write_whole
from millstream.model.types.schema import TIMESTAMP

PLACE = pa.schema({"$part": pa.int32(), "$offset": pa.int64(), "$time": TIMESTAMP})
"""The columns with the position and time of an append."""

ROW_GROUP = 128 << 10


@dataclass(frozen=True)
class Owner:
    """The partition that a segment belongs to."""

    topic: str
    partition: int
    schema: pa.Schema


def placed(table: pa.Table, partition: int, base: int, times: np.ndarray) -> pa.Table:
    """Add positions to records: `base` is the offset of the first, `times` are their ingest times."""
    rows = table.num_rows
    return (
        table.append_column(PLACE.field(0), pa.array(np.full(rows, partition, np.int32)))
        .append_column(PLACE.field(1), pa.array(np.arange(base, base + rows, dtype=np.int64)))
        .append_column(PLACE.field(2), pa.array(times.astype(np.int64)).cast(TIMESTAMP))
    )


def write_segment(disk: Disk, folder: Path, owner: Owner, rows: pa.Table) -> SegmentName:
    """Write rows as a segment; durable and in place when this returns."""
    offsets, times = rows.column("$offset"), rows.column("$time").cast(pa.int64())
    base, end = offsets[0].as_py(), offsets[-1].as_py() + 1
    about = {
        "millstream.topic": owner.topic,
        "millstream.partition": str(owner.partition),
        "millstream.offsets": f"{base}-{end}",
        "millstream.times": f"{times[0].as_py()},{times[-1].as_py()}",
    }
    out = pa.BufferOutputStream()
    pq.write_table(
        rows.replace_schema_metadata(about),
        out,
        compression="zstd",
        compression_level=1,
        use_dictionary=[f.name for f in rows.schema if _repeats(f)],
        column_encoding={"$offset": "DELTA_BINARY_PACKED"},
        row_group_size=ROW_GROUP,
    )
    data = memoryview(out.getvalue())
    name = SegmentName(base, end, zlib.crc32(data))
    write_whole(disk, folder / str(name), data)
    return name


def _repeats(field: pa.Field) -> bool:
    """Whether a dictionary is worthwhile: for numbers it costs more than it saves (docs/decisions/0009-log.md)."""
    return field.name in ("$part", "$time") or pa.types.is_string(field.type) or pa.types.is_binary(field.type)


def check_segment(disk: Disk, folder: Path, name: SegmentName) -> None:
    """Compare a segment's bytes with the checksum in its name."""
    data = disk.map(folder / str(name))
    if zlib.crc32(memoryview(data)) != name.crc:
        raise damaged(folder / str(name), 0, "its content does not match the checksum in its name")


def open_segment(disk: Disk, folder: Path, name: SegmentName, owner: Owner) -> pq.ParquetFile:
    """Open a segment and compare its metadata with its name."""
    path = folder / str(name)
    try:
        file = pq.ParquetFile(pa.BufferReader(disk.map(path)))
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise damaged(path, 0, str(error).splitlines()[0]) from None
    about = file.schema_arrow.metadata or {}
    labels = [about.get(f"millstream.{k}".encode(), b"").decode() for k in ("topic", "partition", "offsets")]
    if labels != [owner.topic, str(owner.partition), f"{name.base}-{name.end}"]:
        raise damaged(path, 0, "it belongs to another topic, partition or position")
    if file.metadata.num_rows != name.end - name.base:
        raise damaged(path, 0, f"it has {file.metadata.num_rows:,} rows where its name says {name.end - name.base:,}")
    return file


def times_of(file: pq.ParquetFile) -> tuple[int, int]:
    """The ingest times of its first and last record."""
    first, last = file.schema_arrow.metadata[b"millstream.times"].decode().split(",")
    return int(first), int(last)
