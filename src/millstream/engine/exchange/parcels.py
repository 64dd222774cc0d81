"""Parcels: the rows of one Spark shuffle that serves operators with any columns.

A parcel holds an Arrow stream of rows, or JSON, for one view and one shard. `origin` and `number` are the position of
the parcel among all others: the partition of the task that sent it, and a counter. A task sorts its parcels by them, so
its result does not depend on the order in which a shuffle delivers them. Large frames are cut into several parcels.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson
import polars as pl
import pyarrow as pa

from millstream.engine.exchange.graph import Edge
from millstream.engine.exchange.hot_keys import KeyCounts

PARCEL = "kind STRING, view INT, side INT, shard INT, origin INT, number INT, payload BINARY"
DRIVER = -1
"""The origin of parcels that the driver sends: they come before all others."""
RECORD_ROWS = 50_000
"""How many records travel in one batch."""
PARCEL_BYTES = 8 << 20
"""A frame of more bytes than this is cut into several parcels."""

_NUMBERS = ("view", "side", "shard", "origin", "number")
SCHEMA = pa.schema([("kind", pa.string()), *((n, pa.int32()) for n in _NUMBERS), ("payload", pa.binary())])

_END = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of an Arrow stream."""

Batches = Iterator[pa.RecordBatch]

ROWS, SIDE, NEWEST, RECORD = "rows", "side", "newest", "record"
"""Kinds for tasks: rows of a scan for an operator, changes for a side of an operator, newest event times. A record is
one changed row, in a column of its own, for expressions that Spark evaluates.
"""
COUNTS, RUNS, KEYS, CHANGES, FINAL, FILE, PART, REFUSED, PANES, DROPPED, FAILURES, ANSWERS = (
    "counts",
    "runs",
    "keys",
    "changes",
    "final",
    "file",
    "part",
    "refused",
    "panes",
    "dropped",
    "failures",
    "answers",
)
"""Kinds for the driver: the counts of a scan, the runs of a task and the rows that its operators received, the keys of
the rows that it sent, changes of an operator, finished changes of a view (or the file that holds them), a part of a
sink that a task has written, or why it could not, panes, dropped records, rows that user code failed on, the files with
results of lookups.
"""


class Parcel(NamedTuple):
    """One parcel. `view` is the number of a view in the plan; for counts, of a scan."""

    kind: str
    view: int
    side: int
    shard: int
    origin: int
    number: int
    source: pa.RecordBatch
    """The batch that holds it, and its place there."""
    at: int

    @property
    def batch(self) -> pa.RecordBatch:
        """The parcel as a batch of one row."""
        return self.source.slice(self.at, 1)

    @property
    def place(self) -> tuple[int, int]:
        """Its place among the parcels of one kind, view and side."""
        return self.origin, self.number

    @property
    def payload(self) -> memoryview:
        """Its bytes."""
        return memoryview(self.source.column(len(SCHEMA) - 1)[self.at].as_buffer())

    def rows(self) -> pl.DataFrame:
        """The rows of a frame that it holds."""
        frame = pl.from_arrow(pa.ipc.open_stream(self.payload).read_all())
        assert isinstance(frame, pl.DataFrame)
        return frame


class Sender:
    """Makes the parcels of one task."""

    def __init__(self, origin: int, shard: int = 0) -> None:
        self.origin, self.shard = origin, shard
        self.counts = KeyCounts()
        """The keys of the rows that were sent to operators."""
        self._number = 0

    def keys(self) -> Batches:
        """A parcel with the counts of keys, if there are any."""
        if self.counts.rows:
            yield self.data(KEYS, -1, orjson.dumps(self.counts.to_json()))

    def data(self, kind: str, view: int, payload: bytes, shard: int = 0) -> pa.RecordBatch:
        """A parcel with some bytes."""
        return self._batch(kind, view, 0, shard, payload)

    def rows(self, kind: str, view: int, frame: pl.DataFrame, shard: int = 0, side: int = 0) -> Batches:
        """Parcels with the rows of a frame."""
        parts = 1 + int(frame.estimated_size()) // PARCEL_BYTES
        size = max(1, -(-len(frame) // parts))
        for start in range(0, len(frame), size):
            yield self._batch(kind, view, side, shard, pack(frame.slice(start, size)))

    def records(self, edge: Edge, changes: pl.DataFrame) -> Batches:
        """Changes as single rows, for the expressions of an edge that Spark evaluates."""
        assert edge.schema is not None
        table = changes.select(edge.schema.names).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(edge.schema)
        for batch in table.to_batches(max_chunksize=RECORD_ROWS):
            self._number += 1
            count = batch.num_rows
            values = (RECORD, edge.number, 0, 0, self.origin, self._number)
            head = [pa.repeat(pa.scalar(v, f.type), count) for v, f in zip(values, SCHEMA, strict=False)]
            rows = pa.StructArray.from_arrays(batch.columns, fields=list(edge.schema))
            schema = SCHEMA.append(pa.field(edge.column, rows.type))
            yield pa.RecordBatch.from_arrays([*head, pa.nulls(count, pa.binary()), rows], schema=schema)

    def _batch(self, kind: str, view: int, side: int, shard: int, payload: bytes) -> pa.RecordBatch:
        self._number += 1
        values = [[kind], [view], [side], [shard], [self.origin], [self._number], [payload]]
        return pa.RecordBatch.from_arrays(
            [pa.array(v, f.type) for v, f in zip(values, SCHEMA, strict=True)], schema=SCHEMA
        )


def parcels_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
    """The parcels in some batches."""
    for batch in batches:
        head = [batch.column(i).to_pylist() for i in range(len(SCHEMA) - 1)]
        for at, (kind, view, side, shard, origin, number) in enumerate(zip(*head, strict=True)):
            yield Parcel(kind, view, side, shard, origin, number, batch, at)


def joined(payloads: Iterable[memoryview]) -> pa.Table:
    """The rows of several parcels, in order. Every stream that is opened costs, so that neighboring streams with equal
    schemas are read as one: it has the schema of the first and the batches of all.
    """
    groups: list[list[Any]] = []
    last = b""
    for payload in payloads:
        start = 8 + int.from_bytes(payload[4:8], "little")  # of the first batch, after a marker and the schema
        schema = bytes(payload[:start])
        if schema != last:
            groups.append([schema])
            last = schema
        groups[-1].append(payload[start : -len(_END)])
    tables = [pa.ipc.open_stream(b"".join([*group, _END])).read_all() for group in groups]
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def pack(frame: pl.DataFrame) -> bytes:
    """A frame as an Arrow stream, which `Parcel.rows` and `joined` read."""
    sink = io.BytesIO()
    frame.write_ipc_stream(sink, compat_level=pl.CompatLevel.newest())
    return sink.getvalue()
