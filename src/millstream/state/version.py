"""Versions: the list of runs of every step, oldest first, and the compaction that keeps the lists short.

A version is part of the store's transaction, so it always matches the views. Compaction replaces neighboring runs by
one with the same rows. It never changes what a reader sees, so it may happen at any time between epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from millstream.clock import Micros
from millstream.state.packed_runs import PackedRuns
from millstream.state.run import RunWriter, StateRun
from millstream.state.shard import KEY_GROUPS, RunCache, StateReader, shard_range

if TYPE_CHECKING:
    from millstream.state.manifest import RunManifest

FANOUT = 4
"""Runs of one size class before they are merged."""

PIECE_ROWS = 500_000
"""A merge holds about this many rows in memory at a time."""


@dataclass(frozen=True)
class Version:
    """The runs of every step after an epoch.

    It may have hundreds of thousands of runs, so what an epoch does with all of them is done once per run, and a task
    that receives a version decodes only the runs of its shard.
    """

    runs: Mapping[str, Sequence[StateRun]] = field(default_factory=dict)
    manifests: Mapping[str, tuple[RunManifest, ...]] = field(default_factory=dict, compare=False)
    """The files that describe the oldest runs of steps with many (`state/manifest.py`)."""
    expired: Mapping[str, int] = field(default_factory=dict, compare=False)
    """By step: the watermark up to which batches were dropped since this version was loaded."""

    def of(self, step: str, hashes: tuple[int, int] | None = None) -> Sequence[StateRun]:
        """The runs of a step, oldest first; with `hashes`, those that may hold rows in this range."""
        runs = self.runs.get(step, ())
        if hashes is None:
            return runs
        return runs.meeting(hashes) if isinstance(runs, PackedRuns) else [r for r in runs if r.meets(hashes)]

    def only(self, steps: Iterable[str]) -> Version:
        """The runs of some steps."""
        return Version({step: self.runs[step] for step in steps if step in self.runs})

    def __reduce__(self) -> tuple[Any, ...]:
        """Packed for another process, which reads runs and no manifests."""
        return Version, ({step: PackedRuns.of(runs) for step, runs in self.runs.items()},)

    def advance(self, step: str, added: Iterable[StateRun], watermark: Micros) -> Version:
        """The version after an epoch: without expired batches, and with the new runs last."""
        live = [r for run in self.of(step) if (r := run.expire(watermark)) is not None]
        return replace(self, runs={**self.runs, step: (*live, *added)}, expired={**self.expired, step: watermark})

    def replaced(self, step: str, old: Sequence[StateRun], new: StateRun | None) -> Version:
        """The version with consecutive runs replaced by their merge."""
        names = {r.file for r in old}
        runs: list[StateRun] = []
        placed = False
        for run in self.of(step):
            if run.file not in names:
                runs.append(run)
            elif not placed:
                placed = True
                if new is not None:
                    runs.append(new)
        return replace(self, runs={**self.runs, step: tuple(runs)})

    @cached_property
    def files(self) -> frozenset[str]:
        """The files this version needs."""
        manifests = [m.file for of_step in self.manifests.values() for m in of_step]
        return frozenset([*(r.file for runs in self.runs.values() for r in runs), *manifests])

    def rows(self, step: str) -> int:
        """State rows of a step. A key changed since the last compaction counts once per change."""
        return sum(r.rows for r in self.of(step))

    def bytes(self, step: str) -> int:
        """Bytes on disk of a step."""
        return sum(r.bytes for r in self.of(step))

    def to_json(self) -> dict[str, Any]:
        """Plain data for the store."""
        return {step: [r.to_json() for r in runs] for step, runs in self.runs.items() if runs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Version:
        """Read what `to_json` wrote."""
        return cls({step: tuple(StateRun.from_json(r) for r in runs) for step, runs in data.items()})


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
