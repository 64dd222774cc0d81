"""Compaction: which neighboring runs of a step are merged, and the merge itself.

A merge replaces runs by others with the same rows. It never changes what a reader sees, so it may happen at any time
between epochs (`runtime/epoch/compactor.py`). Runs are counted in layers: the runs that the shards of one epoch wrote
do not overlap, and a reader of a key opens one of them, so together they are one layer. A merge makes one layer of
several. It may be cut into parts by ranges of hashes, which different tasks perform.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from millstream.clock import Micros
from millstream.state.run import RunWriter, StateRun
from millstream.state.run_list import RunList
from millstream.state.shard import KEY_GROUPS, RunCache, StateReader, shard_range

FANOUT = 4
"""Layers of one size class before they are merged."""

PIECE_ROWS = 500_000
"""A merge holds about this many rows in memory at a time."""

Expiry = Callable[[pl.DataFrame], np.ndarray]


@dataclass(frozen=True)
class RunMerge:
    """A merge of neighboring runs, as a value that travels to tasks."""

    step: str
    name: str
    """The beginning of the names of its files."""
    runs: RunList
    unique: tuple[str, ...]
    expiry: Expiry
    watermark: Micros
    oldest: bool
    """Whether no run precedes these."""

    @property
    def rows(self) -> int:
        """The rows that it reads."""
        return self.runs.rows


def due(runs: Iterable[StateRun]) -> RunList | None:
    """The consecutive runs to merge now: the newest FANOUT or more neighboring layers of no greater size class; None if
    no merge is due.
    """
    held = RunList.of(runs)
    layers = held.layers
    if len(layers) < FANOUT:
        return None
    found: int | None = None
    greatest, newer, counts = 0, 0, dict[int, int]()
    for start in range(len(layers) - 1, -1, -1):
        rows = max(layers[start][1], 1)
        of_class = int(math.log(rows, FANOUT))
        greatest = max(greatest, of_class)
        counts[of_class] = counts.get(of_class, 0) + 1
        if len(layers) - start >= FANOUT:
            many = of_class == greatest and counts[of_class] >= FANOUT
            if many or newer >= FANOUT * rows:
                found = start
        newer += layers[start][1]
    if found is None and len(layers) > FANOUT * 6:
        found = len(layers) - FANOUT * 3
    return None if found is None else held.since(layers[found][0])


def merge(
    cache: RunCache,
    name: str,
    runs: Sequence[StateRun],
    unique: Sequence[str],
    expiry: Expiry,
    watermark: Micros,
    *,
    oldest: bool = False,
    part: tuple[int, int] = (0, 1),
) -> StateRun | None:
    """Write one run with the newest rows of several, one range of hashes at a time. Expired rows are dropped and, if
    `oldest` (no run precedes these), so are the deletion marks of rows that are ``$gone``. With `part` (number, of how
    many), only this part of the hashes.
    """
    number, parts = part
    rows_of_part = sum(r.rows for r in runs) // parts
    pieces = max(1, min(KEY_GROUPS // parts, 1 + rows_of_part // PIECE_ROWS))
    with RunWriter(cache.storage, name) as writer:
        for piece in range(number * pieces, (number + 1) * pieces):
            rows = StateReader(cache, runs, unique, shard_range(piece, parts * pieces)).scan(watermark)
            if rows is None:
                continue
            if oldest and "$gone" in rows.columns:
                rows = rows.filter(~pl.col("$gone"))
            ends = expiry(rows)
            live = ends > watermark
            if not live.all():
                rows, ends = rows.filter(pl.Series(live)), ends[live]
            if len(rows):
                writer.add(rows, ends)
        merged = writer.finish()
    if merged is not None:
        cache.adopt(merged, writer.content)
    return merged
