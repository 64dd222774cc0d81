"""Runs: immutable Arrow IPC files of state rows, memory-mapped by every process that reads them.

A run holds record batches. Each batch belongs to one **bucket** of expiry and is sorted by the hash of the key, so that
a lookup is a binary search and a closed window drops whole batches. Files are named ``<epoch>-<attempt>.arrow`` and are
written in the order temp, fsync, rename, directory fsync. A version keeps this of a run (format 1):

    {"file": "hot/000000000042-0.arrow", "crc": 2774893043, "bytes": 40312,
     "batches": [{"rows": 812, "first": 1767225610000000, "last": 1767225610000000, "dropped": false}, ...],
     "hashes": [-9221120237041090560, 9187343239835811839]}

`first` and `last` are the least and the greatest expiry in the batch. `hashes` has the least and the greatest hash, so
that a shard opens only the runs that may hold its rows.
"""

from __future__ import annotations

import errno
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
import pyarrow as pa

from millstream import paths
from millstream.clock import BEGINNING, END_OF_TIME, Micros
from millstream.errors import DiskFull, HomeDamaged

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC

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
    closes: int = field(init=False, repr=False, compare=False)
    """The watermark at which its next batch is dropped."""
    ends: int = field(init=False, repr=False, compare=False)
    """The watermark at which its last batch is dropped."""

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

    def __post_init__(self) -> None:
        live = [b.last for b in self.batches if not b.dropped]
        object.__setattr__(self, "closes", min(live, default=END_OF_TIME))
        object.__setattr__(self, "ends", max(live, default=BEGINNING))

    def expire(self, watermark: Micros) -> StateRun | None:
        """This run without the batches that closed at the watermark; None if nothing is left."""
        if self.ends <= watermark:
            return None
        if self.closes > watermark:
            return self
        return replace(self, batches=tuple(replace(b, dropped=b.dropped or b.last <= watermark) for b in self.batches))

    def to_json(self) -> dict[str, Any]:
        """Plain data for the epoch record."""
        return {
            "file": self.file,
            "crc": self.crc,
            "bytes": self.bytes,
            "batches": [[b.rows, b.first, b.last, int(b.dropped)] for b in self.batches],
            **({} if self.hashes is None else {"hashes": list(self.hashes)}),
        }

    @property
    def encoded(self) -> Encoded:
        """It as JSON, encoded once: a version may have hundreds of thousands of runs."""
        if "_encoded" not in self.__dict__:
            self.__dict__["_encoded"] = orjson.dumps(self.to_json())
        return self.__dict__["_encoded"]  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> StateRun:
        """Read what `to_json` wrote."""
        batches = tuple(Batch(r, f, last, bool(d)) for r, f, last, d in data["batches"])
        low, high = data.get("hashes", (None, None))
        return cls(data["file"], data["crc"], data["bytes"], batches, None if low is None else (low, high))


class RunWriter:
    """Writes a run piece by piece. It is durable and visible under its name only after `finish`.

    Each piece is sorted and cut into one batch per bucket, so a piece should hold a contiguous range of hashes.
    """

    def __init__(self, root: Path, name: str) -> None:
        self._name = name
        self._path = root / name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._temp = self._path.with_name(f".{self._path.name}.tmp")
        self._batches: list[Batch] = []
        self._hashes: tuple[int, int] | None = None
        self._file = _Checked(self._temp)
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, rows: pl.DataFrame, expiry: np.ndarray) -> None:
        """Append rows (with their hash in ``$h``) and the expiry of each."""
        buckets = _buckets(expiry)
        hashes = rows["$h"].to_numpy()
        self._note_hashes(hashes)
        order = np.lexsort((hashes, buckets))
        ordered = rows[pl.Series(order, dtype=pl.UInt32)].rechunk().to_arrow()
        edges = np.flatnonzero(np.diff(buckets[order])) + 1
        bounds = [0, *edges.tolist(), len(rows)]
        sorted_expiry = expiry[order]
        with disk_full_named(self._path):
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
        with disk_full_named(self._path):
            if self._writer is None:
                self._file.close()
                paths.delete_file(self._temp)
                return None
            self._writer.close()
            self._file.sync()
            paths.rename(self._temp, self._path)
            paths.sync_directory(self._path.parent)
        return StateRun(self._name, self._file.crc, self._file.bytes, tuple(self._batches), self._hashes)

    def _note_hashes(self, hashes: np.ndarray) -> None:
        if len(hashes):
            low, high = int(hashes.min()), int(hashes.max())
            known = self._hashes or (low, high)
            self._hashes = min(low, known[0]), max(high, known[1])


def write_run(root: Path, name: str, rows: pl.DataFrame, expiry: np.ndarray) -> StateRun:
    """Write rows as a run. It is durable when this returns."""
    writer = RunWriter(root, name)
    writer.add(rows, expiry)
    run = writer.finish()
    assert run is not None, "a run has at least one row"
    return run


class _Checked(io.RawIOBase):
    """A file that counts and checksums what is written to it."""

    def __init__(self, path: Path) -> None:
        self._file = os.fdopen(paths.open_file(path, _WRITE, 0o666), "wb")
        self.crc, self.bytes = 0, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.crc = zlib.crc32(data, self.crc)
        written = len(memoryview(data).cast("B"))
        self.bytes += written
        self._file.write(data)
        return written

    def sync(self) -> None:
        """Flush to the disk itself, and close."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        self._file.close()
        super().close()


def write_durably(path: Path, data: Any) -> None:
    """Write temp, fsync, rename, directory fsync. A full disk raises its own error."""
    temp = path.with_name(f".{path.name}.tmp")
    with disk_full_named(path):
        try:
            with os.fdopen(paths.open_file(temp, _WRITE, 0o666), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            paths.rename(temp, path)
            paths.sync_directory(path.parent)
        except OSError:
            paths.delete_file(temp, missing_ok=True)
            raise


@contextmanager
def disk_full_named(path: Path) -> Iterator[None]:
    """Translate the error of a full disk into one that users understand."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise DiskFull(
            f"no space left to write {path}",
            hint="free some space and start the flow again; nothing that was committed is lost",
        ) from error


class OpenRun:
    """A run mapped into memory: hashes as numpy arrays, rows as Polars frames without a copy."""

    def __init__(self, root: Path, run: StateRun, *, verify: bool) -> None:
        path = root / run.file
        try:
            self._map = pa.memory_map(str(path))
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            raise HomeDamaged(
                f"the state file {path} " + ("is missing" if missing else "cannot be read"),
                detail=None if missing else str(error).splitlines()[0],
                hint="`millstream repair` says what can be done",
            ) from None
        if verify and (self._map.size() != run.bytes or zlib.crc32(self._map.read_buffer()) != run.crc):
            raise HomeDamaged(
                f"the state file {path} does not match its checksum",
                hint="`millstream repair` says what can be done",
            )
        self._reader = pa.ipc.open_file(self._map)
        self._frames: dict[int, tuple[pl.DataFrame, np.ndarray]] = {}

    def batch(self, index: int) -> tuple[pl.DataFrame, np.ndarray]:
        """The rows of a batch and their hashes, sorted by hash."""
        if index not in self._frames:
            table = pa.Table.from_batches([self._reader.get_batch(index)])
            hashes = table["$h"].chunk(0).to_numpy(zero_copy_only=True)
            self._frames[index] = (pl.from_arrow(table, rechunk=False), hashes)  # type: ignore[assignment]
        return self._frames[index]


def _buckets(expiry: np.ndarray) -> np.ndarray:
    """The bucket of each row: its expiry, coarsened if there would be too many buckets."""
    buckets = expiry
    distinct = np.unique(expiry)
    if len(distinct) > MAX_BATCHES:
        finite = distinct[distinct < END_OF_TIME]
        width = max(1, int(finite[-1] - finite[0]) // (MAX_BATCHES - 1) + 1)
        buckets = np.where(expiry < END_OF_TIME, (expiry - finite[0]) // width, END_OF_TIME)
    return buckets
