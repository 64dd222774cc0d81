"""Runs: immutable Arrow IPC files of state rows, mapped into memory by every process that reads them.

A run holds record batches. Each batch belongs to one **bucket** of expiry and is sorted by the hash of the key, so that
a lookup is a binary search and a closed window drops whole batches. Files are named ``<epoch>-<attempt>.arrow``, and
their storage makes them durable and visible as a whole. A version keeps this of a run (format 1):

    {"file": "hot/000000000042-0.arrow", "crc": 2774893043, "bytes": 40312,
     "batches": [{"rows": 812, "first": 1767225610000000, "last": 1767225610000000, "dropped": false}, ...],
     "hashes": [-9221120237041090560, 9187343239835811839], "due": {"$x": [1767225610000000, 1767225610000000]}}

`first` and `last` are the least and the greatest expiry in the batch. `hashes` has the least and the greatest hash, so
that a shard opens only the runs that may hold its rows; `due` has the least and the greatest number of each column of
times, so that the driver knows what is due without opening runs.
"""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from millstream.clock import BEGINNING, END_OF_TIME, Micros
from millstream.errors import HomeDamaged
from millstream.state.storage import NewFile, Storage

TIMED = ("$pd", "$wd", "$fd", "$x", "$till")
"""The columns by which kernels look for rows that are due. A version has their bounds, so that runs without such rows
need not be opened.
"""

MAX_BATCHES = 256
"""In a run with more buckets than this, neighboring buckets are merged."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The metadata of one record batch of a run, available without opening the run."""

    rows: int
    first: int
    last: int
    dropped: bool = False


Encoded = bytes
"""Encoded JSON. (`StateRun.bytes` is a number.)"""


@dataclass(frozen=True)
class StateRun:
    """A run as a version names it."""

    file: str
    crc: int
    bytes: int
    batches: tuple[Batch, ...]
    hashes: tuple[int, int] | None = None
    """The least and the greatest hash of its rows; None if it was written by a version that did not record them."""
    due: tuple[tuple[str, int, int], ...] | None = None
    """The columns of times that it has, with the least and the greatest number; None as for `hashes`."""

    @property
    def step(self) -> str:
        """The name of the state it belongs to."""
        return self.file.partition("/")[0]

    @property
    def rows(self) -> int:
        """Rows that are not dropped."""
        return sum(b.rows for b in self.batches if not b.dropped)

    def meets(self, hashes: tuple[int, int]) -> bool:
        """Whether it may hold rows with a hash in a range (first and last)."""
        return self.hashes is None or (self.hashes[0] <= hashes[1] and hashes[0] <= self.hashes[1])

    def knows(self, column: str) -> bool:
        """Whether the bounds of a column are known; a run without rows in it has none."""
        return self.due is not None and column in TIMED

    def bounds(self, column: str) -> tuple[int, int] | None:
        """The least and the greatest number in a column of times; None if it has none, or they are not known."""
        return next(((low, high) for c, low, high in self.due or () if c == column), None)

    def expire(self, watermark: Micros) -> StateRun | None:
        """This run without the batches that closed at the watermark; None if nothing is left."""
        if watermark < self._next_expiry:
            return self
        if all(b.dropped or b.last <= watermark for b in self.batches):
            return None
        batches = tuple(b if b.dropped or b.last > watermark else replace(b, dropped=True) for b in self.batches)
        return replace(self, batches=batches)

    @cached_property
    def _next_expiry(self) -> int:
        """The watermark at which something of it expires next."""
        return min((b.last for b in self.batches if not b.dropped), default=BEGINNING)

    def to_json(self) -> dict[str, Any]:
        """Plain data for the epoch record."""
        return {
            "file": self.file,
            "crc": self.crc,
            "bytes": self.bytes,
            "batches": [[b.rows, b.first, b.last, int(b.dropped)] for b in self.batches],
            **({} if self.hashes is None else {"hashes": list(self.hashes)}),
            **({} if self.due is None else {"due": {c: [low, high] for c, low, high in self.due}}),
        }

    @cached_property
    def encoded(self) -> Encoded:
        """It as JSON, encoded once: a version may have hundreds of thousands of runs."""
        return orjson.dumps(self.to_json())

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StateRun:
        """Read what `to_json` wrote."""
        batches = tuple(Batch(r, f, last, bool(d)) for r, f, last, d in data["batches"])
        low, high = data.get("hashes", (None, None))
        known = data.get("due")
        due = None if known is None else tuple((c, least, most) for c, (least, most) in known.items())
        return cls(data["file"], data["crc"], data["bytes"], batches, None if low is None else (low, high), due)


class RunWriter:
    """Writes a run piece by piece. It is durable and visible under its name only after `finish`.

    Each piece is sorted and cut into one batch per bucket, so a piece should hold a contiguous range of hashes.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self._name = name
        self._batches: list[Batch] = []
        self._hashes: tuple[int, int] | None = None
        self._due: dict[str, tuple[int, int]] = {}
        self._file = _Checked(storage.create(name))
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self.content: pa.Buffer | None = None
        """The content of the finished run, if it is in memory."""

    def add(self, rows: pl.DataFrame, expiry: np.ndarray) -> None:
        """Append rows (with their hash in ``$h``) and the expiry of each."""
        buckets = _buckets(expiry)
        hashes = rows["$h"].to_numpy()
        self._note_hashes(hashes)
        self._note_times(rows)
        order = np.lexsort((hashes, buckets))
        ordered = rows[pl.Series(order, dtype=pl.UInt32)].rechunk().to_arrow()
        edges = np.flatnonzero(np.diff(buckets[order])) + 1
        bounds = [0, *edges.tolist(), len(rows)]
        sorted_expiry = expiry[order]
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._file, ordered.schema)
        for start, end in pairwise(bounds):
            if end > start:
                piece = ordered.slice(start, end - start).combine_chunks()
                self._writer.write_table(piece, max_chunksize=end - start)
                span = sorted_expiry[start:end]
                self._batches.append(Batch(end - start, int(span.min()), int(span.max())))

    def finish(self) -> StateRun | None:
        """Make the run durable; None (and no file) if nothing was added."""
        if self._writer is None:
            self._file.new.discard()
            return None
        self._writer.close()
        self.content = self._file.new.finish()
        due = tuple((c, low, high) for c, (low, high) in sorted(self._due.items()))
        return StateRun(self._name, self._file.crc, self._file.bytes, tuple(self._batches), self._hashes, due)

    def _note_times(self, rows: pl.DataFrame) -> None:
        for column in TIMED:
            if column not in rows.columns:
                continue
            numbers = rows[column].drop_nulls()
            if len(numbers):
                low, high = int(numbers.min()), int(numbers.max())  # type: ignore[arg-type]
                known = self._due.get(column, (low, high))
                self._due[column] = min(low, known[0]), max(high, known[1])

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """Leave no file if the writing failed."""
        if failed is not None:
            self._file.new.discard()

    def _note_hashes(self, hashes: np.ndarray) -> None:
        if len(hashes):
            low, high = int(hashes.min()), int(hashes.max())
            known = self._hashes or (low, high)
            self._hashes = min(low, known[0]), max(high, known[1])


class _Checked(io.RawIOBase):
    """A new file that counts and checksums what is written to it."""

    def __init__(self, new: NewFile) -> None:
        self.new = new
        self.crc, self.bytes = 0, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        written = len(memoryview(data).cast("B"))
        self.bytes += written
        self.new.write(data)
        return written


class OpenRun:
    """A run mapped into memory: hashes as numpy arrays, rows as Polars frames without a copy. Without `content`, it is
    mapped from the storage.
    """

    def __init__(
        self, storage: Storage, run: StateRun, *, verify: bool = True, content: pa.Buffer | None = None
    ) -> None:
        self.run = run
        try:
            mapped = storage.map(run.file) if content is None else content
        except OSError as error:
            raise missing_file(storage, run.file, error) from None
        if verify and (mapped.size != run.bytes or zlib.crc32(mapped) != run.crc):
            raise damaged_file(storage, run.file)
        try:
            self._reader = pa.ipc.open_file(mapped)
        except pa.ArrowInvalid as error:
            raise damaged_file(storage, run.file, "cannot be read", str(error).splitlines()[0]) from None
        self._frames: dict[int, tuple[pl.DataFrame, np.ndarray]] = {}

    def batch(self, index: int) -> tuple[pl.DataFrame, np.ndarray]:
        """The rows of a batch and their hashes, sorted by hash."""
        if index not in self._frames:
            table = pa.Table.from_batches([self._reader.get_batch(index)])
            hashes = table["$h"].chunk(0).to_numpy(zero_copy_only=True)
            self._frames[index] = (pl.from_arrow(table, rechunk=False), hashes)  # type: ignore[assignment]
        return self._frames[index]


def missing_file(storage: Storage, file: str, error: OSError | None = None) -> HomeDamaged:
    """The error for a state file that is not there, or cannot be read."""
    if error is None or isinstance(error, FileNotFoundError):
        return damaged_file(storage, file, "is missing")
    return damaged_file(storage, file, "cannot be read", str(error).splitlines()[0])


def damaged_file(
    storage: Storage, file: str, what: str = "does not match its checksum", detail: str | None = None
) -> HomeDamaged:
    """The error for a state file with another content than it was written with."""
    return HomeDamaged(
        f"the state file {storage.place(file)} {what}",
        detail=detail,
        hint="`millstream repair` says what can be done",
    )


def _buckets(expiry: np.ndarray) -> np.ndarray:
    """The bucket of each row: its expiry, coarsened if there would be too many buckets."""
    buckets = expiry
    distinct = np.unique(expiry)
    if len(distinct) > MAX_BATCHES:
        finite = distinct[distinct < END_OF_TIME]
        width = max(1, int(finite[-1] - finite[0]) // (MAX_BATCHES - 1) + 1)
        buckets = np.where(expiry < END_OF_TIME, (expiry - finite[0]) // width, END_OF_TIME)
    return buckets
