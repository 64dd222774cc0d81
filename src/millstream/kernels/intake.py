"""Taking in the rows of a scan: count them, set errors and late rows apart, and combine the rest for every stage.

The same function serves an epoch in the driver and a task on an executor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from millstream.kernels.aggregates.combine import combine, fold, group_columns
from millstream.kernels.aggregates.partials import ORDER, is_exact
from millstream.kernels.disorder import buckets
from millstream.kernels.windows import assign
from millstream.model.windows.kinds import Session
from millstream.plan.stages import Aggregation, Append, Feed


@dataclass
class Tally:
    """What a source's slice held: rows, errors among them, and the newest event time per partition (with punctuation,
    the newest that was promised).
    """

    rows: int = 0
    bad: int = 0
    future: int = 0
    newest: dict[int, int] = field(default_factory=dict)
    disorder: dict[int, int] = field(default_factory=dict)
    """How many good rows came how far behind (buckets of `kernels/disorder.py`), where a trigger asks for it."""

    def add(self, other: Tally) -> None:
        """Take another tally of the same slice in."""
        self.rows += other.rows
        self.bad += other.bad
        self.future += other.future
        for partition, time in other.newest.items():
            self.newest[partition] = max(time, self.newest.get(partition, time))
        for bucket, count in other.disorder.items():
            self.disorder[bucket] = self.disorder.get(bucket, 0) + count

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tally:
        """A tally that travelled as JSON, which knows text as keys only."""
        counted = ({int(k): n for k, n in data[name].items()} for name in ("newest", "disorder"))
        return cls(data["rows"], data["bad"], data["future"], *counted)


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
    """Rows taken in: per view the frames for its stage, and how many of the good rows were applied, came late, or were
    left out by its condition.
    """

    tally: Tally = field(default_factory=Tally)
    frames: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    late: dict[int, int] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)
    filtered: dict[int, int] = field(default_factory=dict)

    def add(self, other: Intake) -> None:
        """Take another part of the same epoch in."""
        self.tally.add(other.tally)
        for view, frames in other.frames.items():
            self.frames.setdefault(view, []).extend(frames)
        both = ((self.late, other.late), (self.applied, other.applied), (self.filtered, other.filtered))
        for mine, theirs in both:
            for view, rows in theirs.items():
                _count(mine, view, rows)


def take_in(rows: pl.DataFrame, roles: list[Role], future: int, known: Mapping[int, int] | None = None) -> Intake:
    """Take in rows of a scan: system columns and the scan's own. `future` is the latest believable event time, `known`
    the newest event time per partition before this epoch if disorder is to be counted.
    """
    good, tally = _admit(rows, future, known)
    intake = Intake(tally)
    for role in roles:
        taken = _feed_rows(good, role)
        _count(intake.filtered, role.view, len(good) - len(taken))
        _count(intake.applied, role.view, len(taken))
        if isinstance(role.stage, Append) and role.stage.is_timely and len(taken):
            late = taken["$ts"] < role.watermark
            if late.any():
                _came_late(intake, role, late)
                taken = taken.filter(~late)
        if isinstance(role.stage, Aggregation) and len(taken):
            late = pl.Series([False])
            if not role.stage.corrected:  # whether a correction comes too late is seen when its record is looked up
                taken, late = assign.in_time(role.stage, taken, role.watermark)
            if late.any():
                _came_late(intake, role, late)
            if len(taken) and _combines(role.stage):
                taken = combine(role.stage, taken)
        if len(taken):
            intake.frames.setdefault(role.view, []).append(taken)
    return intake


def _came_late(intake: Intake, role: Role, late: pl.Series) -> None:
    _count(intake.late, role.view, int(late.sum()))
    _count(intake.applied, role.view, -int(late.sum()))


def _count(into: dict[int, int], view: int, rows: int) -> None:
    """Add to a counter; several feeds of a view may come from one scan."""
    into[view] = into.get(view, 0) + rows


def gather(stage: Aggregation, frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    """One partial row per key and slice from all that was taken in for a stage."""
    if not frames:
        return None
    together = frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical_relaxed")
    if stage.keeps_records:
        return together
    if not _combines(stage):
        return combine(stage, together)
    if len(frames) == 1:
        return together
    if isinstance(stage.window, Session):
        together = assign.sessions(together, stage.keys)
    return fold(stage, together, group_columns(stage))


def _combines(stage: Aggregation) -> bool:
    """Whether rows may be combined piece by piece."""
    return not stage.keeps_records and all(is_exact(m) for m in stage.measures)


def _admit(rows: pl.DataFrame, future: int, known: Mapping[int, int] | None) -> tuple[pl.DataFrame, Tally]:
    bad = rows["$bad"] != 0
    ahead = (rows["$ts"] > future).fill_null(value=False) & ~bad
    tally = Tally(len(rows), int(bad.sum()), int(ahead.sum()))
    good = rows if not tally.bad and not tally.future else rows.filter(~bad & ~ahead)
    if len(good):
        moving = "$mark" if "$mark" in good.columns else "$ts"
        newest = good.group_by("$part").agg(pl.col(moving).max()).drop_nulls()
        tally.newest = dict(zip(newest["$part"].to_list(), newest[moving].to_list(), strict=True))
        if known is not None:
            tally.disorder = _behind(good, known)
    return good, tally


def _behind(rows: pl.DataFrame, known: Mapping[int, int]) -> dict[int, int]:
    """How far rows are behind the newest event time that their partition had shown before."""
    times, parts = rows["$ts"].to_numpy(), rows["$part"].to_numpy()
    behind = np.zeros(len(rows), dtype=np.int64)
    for partition, newest in known.items():
        here = parts == partition
        behind[here] = np.maximum(newest - times[here], 0)
    return buckets(behind)


def _revisions(rows: pl.DataFrame, role: Role) -> list[pl.Expr]:
    """Which record a row revises, and how (see `kernels/windows/corrections.py`). A row of a source without
    corrections revises none.
    """
    feed = role.feed
    if "$key" in rows.columns:
        columns = [pl.col(c) for c in ("$kh", "$key", "$ver")]
        does = pl.col("$del").cast(pl.Int8)
    else:
        place = pl.concat_str(pl.lit(feed.source), "$part", "$pos", separator=" ")
        columns = [pl.col(feed.hash).alias("$kh"), place.alias("$key"), pl.lit(None, pl.Int64).alias("$ver")]
        does = pl.lit(0, pl.Int8)
    if feed.keep is not None:
        dropped = (does == 0) & ~pl.col(feed.keep).fill_null(value=False)
        does = pl.when(dropped).then(pl.lit(2, pl.Int8)).otherwise(does)
    return [*columns, does.alias("$del")]


def _order(rows: pl.DataFrame, role: Role) -> list[pl.Expr]:
    """The columns that rows are ordered by; where several feeds come together, the feed counts before the partition."""
    feeds = role.stage.feeds
    before = feeds.index(role.feed) << 20
    part = pl.col("$part") if len(feeds) == 1 else pl.col("$part").cast(pl.Int64) + before
    return [part.alias(c) if c == "$part" else pl.col(c) for c in ORDER if c in rows.columns]


def _feed_rows(rows: pl.DataFrame, role: Role) -> pl.DataFrame:
    feed, stage = role.feed, role.stage
    corrected = isinstance(stage, Aggregation) and stage.corrected
    kept = rows if feed.keep is None or corrected else rows.filter(pl.col(feed.keep))
    if isinstance(stage, Append):
        named = [pl.col(c).alias(n) for c, n in zip(feed.columns, stage.columns, strict=True)]
        return kept.select(*named, *(_order(kept, role) if stage.ordered or stage.by_place else ["$ts"]))
    keys = [pl.col(c).alias(n) for c, n in zip(feed.columns, stage.keys, strict=False)]
    with_argument = [m for m in stage.measures if m.has_argument]
    arguments = [
        pl.col(c).alias(f"@{m.name}") for c, m in zip(feed.columns[len(stage.keys) :], with_argument, strict=True)
    ]
    order = _order(kept, role)
    gap = [pl.col(feed.gap).alias("$gap")] if feed.gap else []
    if corrected:
        gap += _revisions(kept, role)
    return kept.select(pl.col(feed.hash).alias("$h"), pl.col(feed.slice).alias("$s"), *gap, *order, *keys, *arguments)
