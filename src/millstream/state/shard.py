"""Reads state: finds the newest row per key over the runs of a version, by binary search on the hash of the key.

A shard is a range of key groups, and key groups are the leading bits of the hash. Every shard is therefore a contiguous
range of every run, and the number of shards may change from epoch to epoch without rewriting anything. Kernels receive
a `StateReader` as their `State`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from millstream.clock import BEGINNING, END_OF_TIME, Micros
from millstream.state.run import OpenRun, StateRun

KEY_GROUPS = 4_096
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
    """Open runs by file. Runs are immutable, so a mapping stays valid until the run is forgotten."""

    def __init__(self, root: Path, *, verify: bool = True) -> None:
        self.root = root
        self._verify = verify
        self._open: dict[str, OpenRun] = {}
        self._used: dict[str, int] = {}
        """By open file: the last epoch that opened it, where epochs are told."""
        self._epoch = 0
        self._trusted: set[str] = set()
        """Files that need no verification: this process, or a task, has just written them."""
        self.notes: dict[str, object] = {}
        """Values cached by step. They save work and are never required."""

    def open(self, run: StateRun) -> OpenRun:
        """The mapped run."""
        opened = self._open.get(run.file)
        if opened is None:
            verify = self._verify and run.file not in self._trusted
            opened = self._open[run.file] = OpenRun(self.root, run, verify=verify)
        self._used[run.file] = self._epoch
        return opened

    def trust(self, run: StateRun) -> None:
        """Do not read a run back to verify it when it is opened: it has just been written."""
        self._trusted.add(run.file)

    def begin(self, epoch: int) -> None:
        """Begin an epoch: unmap runs that were not opened in this one or the one before it."""
        self._epoch = epoch
        self.forget([f for f, last in self._used.items() if last < epoch - 1])

    def forget(self, files: Sequence[str]) -> None:
        """Unmap runs that no version names any more."""
        for file in files:
            self._open.pop(file, None)
            self._used.pop(file, None)
            self._trusted.discard(file)


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
        for frame, _ in self._live(BEGINNING):
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
        for frame, keys in self._live(after):
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

    def _live(self, after: Micros) -> Iterator[tuple[pl.DataFrame, np.ndarray]]:
        """The batches with rows that expire after an instant, those of the newest run first."""
        for run in reversed(self._runs):
            for index, batch in enumerate(run.batches):
                if not batch.dropped and batch.last > after:
                    yield self._cache.open(run).batch(index)

    def _newest(self, parts: list[pl.DataFrame]) -> pl.DataFrame | None:
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0]
        together = pl.concat(parts, rechunk=False)
        places = together.select(self._unique).with_row_index("$row").unique(self._unique, keep="first")
        return together[places["$row"].sort()]


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
