"""Intake: count the rows of a scan, separate errors and late rows, and combine the remaining rows for every operator.

The same function serves an epoch in the driver and a task on an executor. `gather` hands the combined rows to the
kernel of each operator. Late rows are only counted here: `windows/late_rows.py` decides which they are (`in_time`), and
`engine/input/rejects.py` collects them for the ``$late`` table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from millstream.clock import Micros
from millstream.kernels.aggregates.shared_partials import bases, shares
from millstream.kernels.disorder import buckets
from millstream.kernels.kernel import kernel_of
from millstream.kernels.scan_input import Role
from millstream.plan.operators.operator import Operator


@dataclass
class Tally:
    """Counts over the slice of a source: rows, errors among them, and the newest event time per partition. With
    punctuation, that is the newest event time that a record has promised.
    """

    rows: int = 0
    bad: int = 0
    future: int = 0
    newest: dict[int, int] = field(default_factory=dict)
    disorder: dict[int, int] = field(default_factory=dict)
    """Good rows by how far they lag (buckets of `kernels/disorder.py`), if a trigger needs it."""

    def add(self, other: Tally) -> None:
        """Add another tally of the same slice."""
        self.rows += other.rows
        self.bad += other.bad
        self.future += other.future
        for partition, time in other.newest.items():
            self.newest[partition] = max(time, self.newest.get(partition, time))
        for bucket, count in other.disorder.items():
            self.disorder[bucket] = self.disorder.get(bucket, 0) + count

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tally:
        """Read a tally from JSON, where all keys are text."""
        counted = ({int(k): n for k, n in data[name].items()} for name in ("newest", "disorder"))
        return cls(data["rows"], data["bad"], data["future"], *counted)


@dataclass
class Intake:
    """The rows of an epoch by view, as frames for its operator, and how many good rows were applied, late, or filtered
    out by the view's condition.
    """

    tally: Tally = field(default_factory=Tally)
    frames: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    late: dict[int, int] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)
    filtered: dict[int, int] = field(default_factory=dict)

    def add(self, other: Intake) -> None:
        """Add another part of the same epoch."""
        self.tally.add(other.tally)
        for view, frames in other.frames.items():
            self.frames.setdefault(view, []).extend(frames)
        both = ((self.late, other.late), (self.applied, other.applied), (self.filtered, other.filtered))
        for mine, theirs in both:
            for view, rows in theirs.items():
                _count(mine, view, rows)


def take_in(rows: pl.DataFrame, roles: list[Role], future: Micros, known: Mapping[int, Micros] | None = None) -> Intake:
    """Take in the rows of a scan, with system columns and the scan's own columns. `future` is the latest plausible
    event time. `known` is the newest event time per partition before this epoch; pass it to measure disorder.
    """
    good, tally = _admit(rows, future, known)
    intake = Intake(tally)
    for role in _share(good, roles, intake):
        scan = kernel_of(role.operator).scan
        assert scan is not None
        rows = scan.select(good, role)
        _count(intake.filtered, role.view, len(good) - len(rows))
        _count(intake.applied, role.view, len(rows))
        if not len(rows):
            continue
        rows, late = scan.in_time(rows, role)
        if late is not None and late.any():
            _count(intake.late, role.view, int(late.sum()))
            _count(intake.applied, role.view, -int(late.sum()))
        if len(rows):
            intake.frames.setdefault(role.view, []).append(scan.combine(role.operator, rows))
    return intake


def _share(good: pl.DataFrame, roles: list[Role], intake: Intake) -> list[Role]:
    """Combine the rows for aggregations that share partials. Returns the other roles."""
    if len(roles) < 2 or not len(good):
        return roles
    shared, others = bases(roles)
    for base in shared:
        found = shares(base, good)
        if found is None:
            others += base.roles
            continue
        for share in found:
            view = share.role.view
            _count(intake.filtered, view, len(good) - share.kept)
            _count(intake.applied, view, share.kept - share.late)
            if share.late:
                _count(intake.late, view, share.late)
            if len(share.partials):
                intake.frames.setdefault(view, []).append(share.partials)
    return others


def _count(into: dict[int, int], view: int, rows: int) -> None:
    """Add to a counter. Several feeds of a view may come from one scan."""
    into[view] = into.get(view, 0) + rows


def gather(operator: Operator, frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    """Combine the frames of an operator into the input of its kernel."""
    scan = kernel_of(operator).scan
    assert scan is not None
    return scan.gather(operator, frames)


def _admit(rows: pl.DataFrame, future: Micros, known: Mapping[int, Micros] | None) -> tuple[pl.DataFrame, Tally]:
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


def _behind(rows: pl.DataFrame, known: Mapping[int, Micros]) -> dict[int, int]:
    """Count rows by how far they lag the newest event time that their partition had reached before this epoch."""
    times, parts = rows["$ts"].to_numpy(), rows["$part"].to_numpy()
    behind = np.zeros(len(rows), dtype=np.int64)
    for partition, newest in known.items():
        here = parts == partition
        behind[here] = np.maximum(newest - times[here], 0)
    return buckets(behind)
