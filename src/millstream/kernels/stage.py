"""A stage that keeps state, whichever kernel it needs: the one place that chooses."""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.kernels import aggregate, corrected, hold, panes, relate
from millstream.kernels.combine import group_columns
from millstream.kernels.outcome import Outcome, StageClock, State, due_columns
from millstream.kernels.slices import closes_between
from millstream.plan.stages import Aggregation, Append, Chained, Stage


def advance(
    spec: Stage,
    partials: pl.DataFrame | None,
    state: State,
    clock: StageClock,
    records: State | None = None,
) -> Outcome:
    """Run one epoch of a stage. `records` is the state of the rows it keeps one by one, if it does."""
    if isinstance(spec, Chained):
        return relate.advance(spec, partials, state, clock)
    if isinstance(spec, Append):
        return hold.advance(spec, partials, state, clock)
    if spec.by_slices:
        return aggregate.advance(spec, partials, state, clock)
    return panes.advance(spec, partials, state, clock, records)


def records_step(spec: Stage) -> str | None:
    """The name under which a stage keeps rows one by one; None when it does not."""
    if not isinstance(spec, Aggregation):
        return None
    return f"{spec.step}$records" if spec.keeps_records else None


def records_unique(spec: Aggregation) -> list[str]:
    """The columns that make such a row unique."""
    return list(corrected.UNIQUE) if spec.corrected else ["$h", "$part", "$pos", *spec.keys]


def unique(spec: Stage) -> list[str]:
    """The columns that make a row of a stage's state unique."""
    if not isinstance(spec, Aggregation):
        return list(hold.UNIQUE if isinstance(spec, Append) else relate.UNIQUE)
    return group_columns(spec) if spec.by_slices else panes.identity(spec)


def leaving(spec: Stage, rows: pl.DataFrame) -> np.ndarray:
    """When each row of a stage's state may be forgotten."""
    if isinstance(spec, Aggregation) and spec.by_slices:
        return aggregate.leaving(spec, rows)
    return rows["$x"].to_numpy()


def is_due(spec: Stage, state: State, clock: StageClock) -> bool:
    """Whether a stage that holds something has something to do by the clock alone."""
    if isinstance(spec, Chained):
        return False  # it only has to do with what others give
    if isinstance(spec, Append):
        return state.first() <= clock.watermark
    if not spec.by_slices:
        hashes = state.due(due_columns(clock), clock.before)
        rows = state.lookup(hashes, clock.before) if len(hashes) else None
        if rows is None:
            return False
        due = pl.any_horizontal(pl.col(c) <= upto for c, (_, upto) in due_columns(clock).items())
        return not rows.filter(due & ~pl.col("$gone") & (pl.col("$x") > clock.before)).is_empty()
    return closes_between(spec.grid, clock.before, clock.watermark)
