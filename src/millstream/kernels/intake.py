"""Taking in the rows of a scan: count them, set errors and late rows apart, and combine the rest for every stage.

The same function serves an epoch in the driver and a task on an executor.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from millstream.kernels.aggregate import late
from millstream.kernels.aggregates import ORDER, is_exact
from millstream.kernels.combine import combine, fold, group_columns
from millstream.plan.stages import Aggregation, Append, Feed


@dataclass
class Tally:
    """What a source's slice held: rows, errors among them, and the newest event time per partition."""

    rows: int = 0
    bad: int = 0
    future: int = 0
    newest: dict[int, int] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Take another tally of the same slice in."""
        self.rows += other.rows
        self.bad += other.bad
        self.future += other.future
        for partition, time in other.newest.items():
            self.newest[partition] = max(time, self.newest.get(partition, time))


@dataclass(frozen=True)
class Role:
    """One stage that a scan feeds: the number of its view in the plan, the stage, its feed, and the watermark it
    works by.
    """

    view: int
    stage: Aggregation | Append
    feed: Feed
    watermark: int


@dataclass
class Intake:
    """Rows taken in: per view the frames for its stage, and how many rows of it came late."""

    tally: Tally = field(default_factory=Tally)
    frames: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    late: dict[int, int] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)

    def add(self, other: Intake) -> None:
        """Take another part of the same epoch in."""
        self.tally.add(other.tally)
        for view, frames in other.frames.items():
            self.frames.setdefault(view, []).extend(frames)
        for mine, theirs in ((self.late, other.late), (self.applied, other.applied)):
            for view, count in theirs.items():
                mine[view] = mine.get(view, 0) + count


def take_in(rows: pl.DataFrame, roles: list[Role], future: int) -> Intake:
    """Take in rows of a scan: system columns and the scan's own. `future` is the latest believable event time."""
    good, tally = _admit(rows, future)
    intake = Intake(tally)
    for role in roles:
        taken = _feed_rows(good, role)
        intake.applied[role.view] = len(taken)
        if isinstance(role.stage, Aggregation) and len(taken):
            behind = late(role.stage, taken["$s"], role.watermark)
            if behind.any():
                intake.late[role.view] = int(behind.sum())
                intake.applied[role.view] -= intake.late[role.view]
                taken = taken.filter(~behind)
            if len(taken) and all(is_exact(m) for m in role.stage.measures):
                taken = combine(role.stage, taken)
        if len(taken):
            intake.frames.setdefault(role.view, []).append(taken)
    return intake


def gather(stage: Aggregation, frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    """One partial row per key and slice from all that was taken in for a stage."""
    if not frames:
        return None
    together = frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical_relaxed")
    if not all(is_exact(m) for m in stage.measures):
        return combine(stage, together)
    return together if len(frames) == 1 else fold(stage, together, group_columns(stage))


def _admit(rows: pl.DataFrame, future: int) -> tuple[pl.DataFrame, Tally]:
    bad = rows["$bad"] != 0
    ahead = (rows["$ts"] > future).fill_null(value=False) & ~bad
    tally = Tally(len(rows), int(bad.sum()), int(ahead.sum()))
    good = rows if not tally.bad and not tally.future else rows.filter(~bad & ~ahead)
    if len(good):
        newest = good.group_by("$part").agg(pl.col("$ts").max())
        tally.newest = dict(zip(newest["$part"].to_list(), newest["$ts"].to_list(), strict=True))
    return good, tally


def _feed_rows(rows: pl.DataFrame, role: Role) -> pl.DataFrame:
    feed, stage = role.feed, role.stage
    kept = rows if feed.keep is None else rows.filter(pl.col(feed.keep))
    if isinstance(stage, Append):
        named = [pl.col(c).alias(n) for c, n in zip(feed.columns, stage.columns, strict=True)]
        return kept.select(*named, pl.col("$ts").alias("$ts"))
    keys = [pl.col(c).alias(n) for c, n in zip(feed.columns, stage.keys, strict=False)]
    with_argument = [m for m in stage.measures if m.has_argument]
    arguments = [
        pl.col(c).alias(f"@{m.name}") for c, m in zip(feed.columns[len(stage.keys) :], with_argument, strict=True)
    ]
    order = [c for c in ORDER if c in kept.columns]
    return kept.select(pl.col(feed.hash).alias("$h"), pl.col(feed.slice).alias("$s"), *order, *keys, *arguments)
