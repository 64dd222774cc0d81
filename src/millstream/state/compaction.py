"""Compaction: which neighboring runs of a step are merged, and the merge itself.

A merge replaces runs by one with the same rows. It never changes what a reader sees, so it may happen at any time
between epochs (`runtime/epoch/compactor.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from millstream.clock import Micros
from millstream.state.run import RunWriter, StateRun
from millstream.state.shard import KEY_GROUPS, RunCache, StateReader, shard_range

FANOUT = 4
"""Runs of one size class before they are merged."""

PIECE_ROWS = 500_000
"""A merge holds about this many rows in memory at a time."""


def due(runs: Sequence[StateRun]) -> Sequence[StateRun] | None:
    """The consecutive runs to merge now: the newest FANOUT or more neighbors of no greater size class; None if no merge
    is due.
    """
    classes = [int(math.log(max(r.rows, 1), FANOUT)) for r in runs]
    for start in range(len(runs)):
        stretch = classes[start:]
        if len(stretch) >= FANOUT and max(stretch) <= classes[start] and stretch.count(classes[start]) >= FANOUT:
            return runs[start:]
        if len(stretch) >= FANOUT and sum(r.rows for r in runs[start + 1 :]) >= FANOUT * max(runs[start].rows, 1):
            return runs[start:]
    return runs[-FANOUT * 3 :] if len(runs) > FANOUT * 6 else None


def merge(
    cache: RunCache,
    name: str,
    runs: Sequence[StateRun],
    unique: Sequence[str],
    expiry: Callable[[pl.DataFrame], np.ndarray],
    watermark: Micros,
    *,
    oldest: bool = False,
) -> StateRun | None:
    """Write one run with the newest rows of several, one range of hashes at a time. Expired rows are dropped and, if
    `oldest` (no run precedes these), so are the deletion marks of rows that are ``$gone``.
    """
    pieces = min(KEY_GROUPS, 1 + sum(r.rows for r in runs) // PIECE_ROWS)
    with RunWriter(cache.storage, name) as writer:
        for piece in range(pieces):
            rows = StateReader(cache, runs, unique, shard_range(piece, pieces)).scan(watermark)
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
