"""Reads state: finds the newest row per key over the runs of a version, by binary search on the hash of the key.

A shard is a range of key groups, and key groups are the leading bits of the hash. Every shard is therefore a contiguous
range of every run, and the number of shards may change from epoch to epoch without rewriting anything. Kernels receive
a `StateReader` as their `State`.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from millstream.clock import BEGINNING, END_OF_TIME, Micros
from millstream.state.local_copies import COPIES
from millstream.state.local_storage import LocalStorage
from millstream.state.run import Batch, OpenRun, RunWriter, StateRun
from millstream.state.storage import Storage

KEY_GROUPS = 4_096
FETCHES = 8
"""How many runs of a remote storage are copied at a time."""
_GROUP_SHIFT = 52


def key_group(hashes: np.ndarray) -> np.ndarray:
    """The key group (0 to 4,095) of signed 64-bit hashes: their leading twelve bits, in hash order."""
    return (hashes >> _GROUP_SHIFT) + KEY_GROUPS // 2


def shard_range(shard: int, shards: int) -> tuple[int, int]:
    """The hashes of a shard, first and last."""
    first = shard * KEY_GROUPS // shards - KEY_GROUPS // 2
    after = (shard + 1) * KEY_GROUPS // shards - KEY_GROUPS // 2
    return first << _GROUP_SHIFT, (after << _GROUP_SHIFT) - 1


def shard_of(hashes: np.ndarray, shards: int) -> np.ndarray:
    """Which shard each hash belongs to."""
    edges = np.array([shard_range(s, shards)[0] for s in range(1, shards)], dtype=np.int64)
    return np.searchsorted(edges, hashes, side="right")


class RunCache:
    """Open runs by file. Runs are immutable, so a mapping stays valid until the run is forgotten. Mappings of a remote
    storage are local copies: those that were not used for longest are dropped (`local_copies.py`).
    """

    def __init__(self, storage: Storage | Path, *, verify: bool = True) -> None:
        self.storage: Storage = LocalStorage(storage) if isinstance(storage, Path) else storage
        self._verify = verify or self.storage.copies
        self._open: dict[str, OpenRun] = {}
        self._used: dict[str, int] = {}
        """By open or trusted file: the last epoch that used it, if epochs are known."""
        self._epoch = 0
        self._trusted: set[str] = set()
        """Files that need no verification: this process, or a task, has just written them."""
        self.notes: dict[str, object] = {}
        """Values cached by step. They save work and are never required."""

    def open(self, run: StateRun) -> OpenRun:
        """The mapped run."""
        opened = self._open.get(run.file)
        if opened is None or opened.run.crc != run.crc:
            verify = self._verify and (self.storage.copies or run.file not in self._trusted)
            return self._hold(OpenRun(self.storage, run, verify=verify))
        self._used[run.file] = self._epoch
        if self.storage.copies:
            COPIES.use((id(self), run.file))
        return opened

    def write(self, name: str, rows: pl.DataFrame, expiry: np.ndarray) -> StateRun:
        """Write rows as a run, and keep it open if its content is in memory."""
        writer = RunWriter(self.storage, name)
        with writer:
            writer.add(rows, expiry)
            run = writer.finish()
        assert run is not None, "a run has at least one row"
        self.adopt(run, writer.content)
        return run

    def adopt(self, run: StateRun, content: pa.Buffer | None) -> None:
        """Keep a run that this process has just written."""
        self.trust(run)
        if content is not None:
            self._hold(OpenRun(self.storage, run, verify=False, content=content))

    def trust(self, run: StateRun) -> None:
        """Do not read a run back to verify it: it has just been written for this version."""
        opened = self._open.get(run.file)
        if opened is not None and opened.run.crc != run.crc:
            self.forget([run.file])  # an epoch that was run again has written other rows
        self._trusted.add(run.file)
        self._used[run.file] = self._epoch

    def begin(self, epoch: int) -> None:
        """Begin an epoch: unmap runs that were not used in this one or the one before it. Local copies stay: to fetch
        them again costs more, and their number is bounded.
        """
        self._epoch = epoch
        if not self.storage.copies:
            self.forget([f for f, last in self._used.items() if last < epoch - 1])

    def fetch(self, runs: Sequence[StateRun]) -> None:
        """Copy runs of a remote storage that will be needed, several at a time, as far as they fit."""
        if not self.storage.copies:
            return
        wanted, left = list[StateRun](), self.storage.copies_limit // 2
        for run in runs:
            if run.file not in self._open and run.bytes <= left:
                wanted.append(run)
                left -= run.bytes
        if len(wanted) > 1:
            with ThreadPoolExecutor(min(FETCHES, len(wanted)), thread_name_prefix="millstream-fetch") as pool:
                list(pool.map(self.open, wanted))

    def forget(self, files: Sequence[str]) -> None:
        """Unmap runs that no version names any more."""
        for file in files:
            self._trusted.discard(file)
            self._used.pop(file, None)
            if self._open.pop(file, None) is not None and self.storage.copies:
                COPIES.release((id(self), file))

    def _hold(self, opened: OpenRun) -> OpenRun:
        file = opened.run.file
        self._open[file] = opened
        self._used[file] = self._epoch
        if self.storage.copies:
            drop = partial(_dropped, weakref.ref(self), file)
            COPIES.add((id(self), file), opened.run.bytes, drop, self.storage.copies_limit)
        return opened

    def __del__(self) -> None:
        for file in self._open if self.storage.copies else ():
            COPIES.release((id(self), file))


def _dropped(cache: weakref.ref[RunCache], file: str) -> None:
    held = cache()
    if held is not None:
        held._open.pop(file, None)
        held._used.pop(file, None)
        held._trusted.discard(file)


class StateReader:
    """The state of one step as of a version, for a range of hashes.

    `unique` are the columns that make a state row unique. Newer runs come later in the version.
    """

    def __init__(
        self,
        cache: RunCache,
        runs: Sequence[StateRun],
        unique: Sequence[str],
        hashes: tuple[int, int] | None = None,
    ) -> None:
        self._cache = cache
        self._runs = runs if hashes is None else [r for r in runs if r.meets(hashes)]
        self._unique = list(unique)
        self._range = hashes

    def lookup(self, hashes: np.ndarray, after: Micros) -> pl.DataFrame | None:
        """The newest rows for these hashes (sorted, distinct) that expire after an instant; None if there are none."""
        parts: list[pl.DataFrame] = []
        for frame, keys in self._live(after):
            rows = _positions(keys, hashes)
            if len(rows):
                parts.append(frame[pl.Series(rows, dtype=pl.UInt32)])
        return self._newest(parts)

    def scan(self, after: Micros) -> pl.DataFrame | None:
        """The newest rows of all keys that expire after an instant. May include expired rows of a mixed bucket."""
        parts: list[pl.DataFrame] = []
        for frame, keys in self._live(after):
            rows = frame
            if self._range is not None:
                low = int(np.searchsorted(keys, self._range[0], side="left"))
                high = int(np.searchsorted(keys, self._range[1], side="right"))
                rows = frame.slice(low, high - low)
            if len(rows):
                parts.append(rows)
        return self._newest(parts)

    def first(self) -> int:
        """The earliest expiry of any row; the end of time if there are no rows."""
        return min((b.first for r in self._runs for b in r.batches if not b.dropped), default=END_OF_TIME)

    def next(self, column: str, above: int) -> int:
        """The least number in a column above a given one; END_OF_TIME if there is none. Rows that newer ones have
        replaced count too, so it may be too early.
        """
        least: int = END_OF_TIME
        unknown: list[StateRun] = []
        for run in self._runs:
            bounds = run.bounds(column)
            if not run.knows(column) or (bounds is not None and bounds[0] <= above < bounds[1]):
                unknown.append(run)
            elif bounds is not None and bounds[0] > above:
                least = min(least, bounds[0])
        for frame, _ in self._live(BEGINNING, unknown):
            if column in frame.columns:
                numbers = frame[column].to_numpy()
                later = numbers[numbers > above]
                least = min(least, int(later.min(initial=END_OF_TIME)))
        return least

    def due(self, columns: Mapping[str, tuple[int, int]], after: Micros) -> np.ndarray:
        """The sorted hashes of rows that have a number in one of these columns within its range. A range excludes its
        first number and includes its second. A newer row may have replaced the row: `lookup` shows the current one.
        """
        parts: list[np.ndarray] = []
        may = [r for r in self._runs if any(_may_hold(r, c, span) for c, span in columns.items())]
        for frame, keys in self._live(after, may):
            hit = np.zeros(len(keys), dtype=bool)
            for column, (above, upto) in columns.items():
                numbers = frame[column].to_numpy()
                hit |= (numbers > above) & (numbers <= upto)
            if hit.any():
                parts.append(keys[hit])
        if not parts:
            return np.empty(0, dtype=np.int64)
        hashes = distinct(np.concatenate(parts))
        if self._range is not None:
            hashes = hashes[(hashes >= self._range[0]) & (hashes <= self._range[1])]
        return hashes

    def _live(self, after: Micros, runs: Sequence[StateRun] | None = None) -> Iterator[tuple[pl.DataFrame, np.ndarray]]:
        """The batches with rows that expire after an instant, those of the newest run first."""
        live = [r for r in (self._runs if runs is None else runs) if any(_is_live(b, after) for b in r.batches)]
        self._cache.fetch(live)
        for run in reversed(live):
            for index, batch in enumerate(run.batches):
                if _is_live(batch, after):
                    yield self._cache.open(run).batch(index)

    def _newest(self, parts: list[pl.DataFrame]) -> pl.DataFrame | None:
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0]
        together = pl.concat(parts, rechunk=False)
        places = together.select(self._unique).with_row_index("$row").unique(self._unique, keep="first")
        return together[places["$row"].sort()]


def _is_live(batch: Batch, after: Micros) -> bool:
    return not batch.dropped and batch.last > after


def _may_hold(run: StateRun, column: str, span: tuple[int, int]) -> bool:
    """Whether a run may have numbers in a range, which excludes its first one and includes its second."""
    bounds = run.bounds(column)
    return not run.knows(column) or (bounds is not None and bounds[1] > span[0] and bounds[0] <= span[1])


def distinct(hashes: np.ndarray) -> np.ndarray:
    """Sorted, distinct hashes."""
    ordered = np.sort(hashes)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered


def _positions(keys: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The positions in sorted `keys` of all entries that are in sorted, distinct `targets`."""
    if len(keys):
        targets = targets[np.searchsorted(targets, keys[0], "left") : np.searchsorted(targets, keys[-1], "right")]
    if not len(keys) or not len(targets):
        return np.empty(0, dtype=np.int64)
    low = np.searchsorted(keys, targets, side="left")
    hit = low < len(keys)
    hit[hit] = keys[low[hit]] == targets[hit]
    low, present = low[hit], targets[hit]
    high = np.searchsorted(keys, present, side="right")
    lengths = high - low
    if len(lengths) and lengths.max() > 1:
        starts = np.repeat(low - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths)
        return np.arange(lengths.sum()) + starts
    return low
