"""Blocks: neighboring runs of a step as columns of numbers, without an object per run.

A version of a large flow has hundreds of thousands of runs, and the driver handles all of them in every epoch. In a
block, what an epoch asks of them (which have expired, which meet a shard, how many rows they have) is arithmetic on
arrays, and a block that has not changed is not looked at. `StateRun` objects are made only for runs that are read.

As JSON, a block is (format 2; numbers of one run after the other):

    {"format": 2, "files": ["hot/000000000042-1-0-7.arrow", ...],
     "runs": [crc, bytes, least hash, greatest hash, known, batches, bounds, ...],
     "batches": [rows, first, last, dropped, ...], "due": [number in `TIMED`, least, greatest, ...]}

`known` is 1 if the hashes are known, plus 2 if the bounds of columns of times are. `batches` and `bounds` of a run say
how many entries of the two other columns belong to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import orjson

from millstream.clock import BEGINNING, END_OF_TIME, Micros
from millstream.state.run import TIMED, Batch, StateRun

FORMAT = 2
_CRC, _BYTES, _LOW, _HIGH, _KNOWN, _BATCHES, _BOUNDS = range(7)
_ROWS, _FIRST, _LAST, _DROPPED = range(4)
_HASHES_KNOWN, _BOUNDS_KNOWN = 1, 2
_ALL = (-(2**63), 2**63 - 1)
_WIDTHS = {"runs": 7, "batches": 4, "due": 3}
_NUMBER_OF = {column: number for number, column in enumerate(TIMED)}


@dataclass(frozen=True)
class ManifestFile:
    """The file that describes a block, as a version names it (`manifest.py`)."""

    file: str
    crc: int
    bytes: int
    expired: int | None = None
    """The watermark up to which batches of the block have been dropped since the file was written; None: none."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for the store."""
        return {"file": self.file, "crc": self.crc, "bytes": self.bytes, "expired": self.expired}


@dataclass(frozen=True, eq=False)
class RunBlock:
    """Neighboring runs of a step, oldest first. Never empty."""

    files: Sequence[str]
    numbers: np.ndarray
    """A row of numbers per run."""
    batches: np.ndarray
    due: np.ndarray
    """The bounds of columns of times."""
    manifest: ManifestFile | None = None

    @classmethod
    def of(cls, runs: Iterable[StateRun]) -> RunBlock:
        """The block of some runs."""
        kept = list(runs)
        numbers: list[int] = []
        due: list[int] = []
        for r in kept:
            known = _HASHES_KNOWN * (r.hashes is not None) + _BOUNDS_KNOWN * (r.due is not None)
            bounds = [b for b in r.due or () if b[0] in _NUMBER_OF]
            numbers += (r.crc, r.bytes, *(r.hashes or _ALL), known, len(r.batches), len(bounds))
            due += [n for column, low, high in bounds for n in (_NUMBER_OF[column], low, high)]
        batches = [n for r in kept for b in r.batches for n in (b.rows, b.first, b.last, b.dropped)]
        block = cls([r.file for r in kept], _rows("runs", numbers), _rows("batches", batches), _rows("due", due))
        block.__dict__["runs"] = tuple(kept)
        return block

    # ---- columns

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def batch_ends(self) -> np.ndarray:
        """Where the batches of each run end."""
        return np.cumsum(self.numbers[:, _BATCHES])

    @cached_property
    def rows(self) -> int:
        """Rows that are not dropped."""
        return int(self.batches[self.batches[:, _DROPPED] == 0, _ROWS].sum())

    @cached_property
    def size(self) -> int:
        """The bytes of all files."""
        return int(self.numbers[:, _BYTES].sum())

    @cached_property
    def layers(self) -> list[tuple[int, int]]:
        """Where each layer begins, and how many rows it has. A layer is a stretch of runs that follow each other in
        the order of hashes and do not overlap, such as the runs that the shards of one epoch wrote.
        """
        lows, highs = self.numbers[1:, _LOW], self.numbers[:-1, _HIGH]
        starts = np.concatenate(([0], np.flatnonzero(lows <= highs) + 1))
        live = np.where(self.batches[:, _DROPPED] == 0, self.batches[:, _ROWS], 0)
        until = np.concatenate(([0], np.cumsum(live)))[np.concatenate(([0], self.batch_ends))]
        rows = np.diff(until[np.append(starts, len(self))])
        return list(zip(starts.tolist(), rows.tolist(), strict=True))

    @cached_property
    def first(self) -> int:
        """The earliest expiry of any row."""
        return int(self.batches[self.batches[:, _DROPPED] == 0, _FIRST].min(initial=END_OF_TIME))

    def meeting(self, hashes: tuple[int, int]) -> list[StateRun]:
        """The runs that may hold rows with a hash in a range (first and last)."""
        found = np.flatnonzero((self.numbers[:, _LOW] <= hashes[1]) & (self.numbers[:, _HIGH] >= hashes[0]))
        if len(found) == len(self):
            return list(self.runs)
        return [self.run(i) for i in found.tolist()]

    def of_step(self, step: str, of: Sequence[str]) -> RunBlock | None:
        """Its runs of one step; None if there are none. `of` are all steps that it may have runs of."""
        if len(of) == 1:
            return self
        prefix = f"{step}/"
        found = [i for i, file in enumerate(self.files) if file.startswith(prefix)]
        return self.take(np.array(found)) if found else None

    # ---- runs

    @cached_property
    def runs(self) -> tuple[StateRun, ...]:
        """All runs as objects."""
        return tuple(self._run(i) for i in range(len(self)))

    def run(self, index: int) -> StateRun:
        """One run as an object."""
        return self.runs[index] if "runs" in self.__dict__ else self._run(index)

    def _run(self, index: int) -> StateRun:
        crc, size, low, high, known, batches, bounds = self.numbers[index].tolist()
        end = int(self.batch_ends[index])
        of_run = [Batch(r, f, last, bool(d)) for r, f, last, d in self.batches[end - batches : end].tolist()]
        due = None
        if known & _BOUNDS_KNOWN:
            end = int(self._due_ends[index])
            due = tuple((TIMED[c], least, most) for c, least, most in self.due[end - bounds : end].tolist())
        hashes = (low, high) if known & _HASHES_KNOWN else None
        return StateRun(self.files[index], crc, size, tuple(of_run), hashes, due)

    @cached_property
    def _due_ends(self) -> np.ndarray:
        return np.cumsum(self.numbers[:, _BOUNDS])

    # ---- other blocks

    def expire(self, watermark: Micros) -> RunBlock | None:
        """This block without the batches that closed at the watermark; None if nothing is left."""
        if watermark < self._next_expiry:
            return self
        gone = (self.batches[:, _DROPPED] != 0) | (self.batches[:, _LAST] <= watermark)
        left = np.flatnonzero(self._live_batches(~gone))
        if not len(left):
            return None
        batches = self.batches.copy()
        batches[gone, _DROPPED] = 1
        block = replace(self, batches=batches)
        block = block if len(left) == len(self) else block.take(left)
        if self.manifest is None:
            return block
        return replace(block, manifest=replace(self.manifest, expired=int(watermark)))

    def take(self, index: np.ndarray) -> RunBlock:
        """A block of some of its runs, in a given order. No manifest describes it."""
        numbers = self.numbers[index]
        at_batches = _spans(self.batch_ends[index], numbers[:, _BATCHES])
        at_due = _spans(self._due_ends[index], numbers[:, _BOUNDS])
        files = [self.files[i] for i in index.tolist()]
        return RunBlock(files, numbers, self.batches[at_batches], self.due[at_due])

    @classmethod
    def joined(cls, blocks: Sequence[RunBlock]) -> RunBlock:
        """One block of the runs of several."""
        return cls(
            list(chain.from_iterable(b.files for b in blocks)),
            np.concatenate([b.numbers for b in blocks]),
            np.concatenate([b.batches for b in blocks]),
            np.concatenate([b.due for b in blocks]),
        )

    def _live_batches(self, live: np.ndarray) -> np.ndarray:
        """How many batches of each run are live."""
        return np.diff(np.concatenate(([0], np.cumsum(live)))[self.batch_ends], prepend=0)

    @cached_property
    def _next_expiry(self) -> int:
        """The watermark at which something of it expires next."""
        live = self.batches[:, _DROPPED] == 0
        if not self._live_batches(live).all():
            return BEGINNING
        return int(self.batches[live, _LAST].min())

    # ---- as data

    def encoded(self) -> bytes:
        """It as JSON."""
        return orjson.dumps(self.to_columns(), option=orjson.OPT_SERIALIZE_NUMPY)

    def to_columns(self) -> dict[str, Any]:
        """What `from_columns` reads, with flat arrays."""
        columns = {"runs": self.numbers, "batches": self.batches, "due": self.due}
        flat = {name: np.ascontiguousarray(numbers).ravel() for name, numbers in columns.items()}
        return {"format": FORMAT, "files": self.files, **flat}

    @classmethod
    def from_columns(cls, parts: Sequence[Mapping[str, Any]]) -> RunBlock:
        """The block of the runs of several, from what JSON has of each."""
        runs, batches, due = (_flat(name, [p[name] for p in parts]) for name in _WIDTHS)
        return cls(list(chain.from_iterable(p["files"] for p in parts)), runs, batches, due)

    def __reduce__(self) -> tuple[Any, ...]:
        """Packed for another process, which reads runs and no manifests."""
        return _unpacked, ("\n".join(self.files), self.numbers, self.batches, self.due)


def _unpacked(files: str, numbers: np.ndarray, batches: np.ndarray, due: np.ndarray) -> RunBlock:
    return RunBlock(files.split("\n"), numbers, batches, due)


def _rows(name: str, numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.int64).reshape(-1, _WIDTHS[name])


def _flat(name: str, parts: Sequence[Sequence[int]]) -> np.ndarray:
    numbers = np.fromiter(chain.from_iterable(parts), np.int64, sum(map(len, parts)))
    return numbers.reshape(-1, _WIDTHS[name])


def _spans(ends: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The positions of several spans, one after the other."""
    starts: np.ndarray = np.repeat(ends - np.cumsum(counts), counts)
    return starts + np.arange(len(starts))
