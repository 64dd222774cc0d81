"""A stage that keeps state, whichever kernel it needs: the one place that chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import polars as pl

from millstream.kernels.aggregates import slices
from millstream.kernels.aggregates.combine import group_columns
from millstream.kernels.outcome import Outcome, StageClock, State, due_columns
from millstream.kernels.patterns import pattern
from millstream.kernels.python import lookup, process, user_aggregate
from millstream.kernels.relations import (
    as_of_join,
    changelog,
    changes,
    hold_until,
    join,
    loop,
    multiset,
    ordered_merge,
    temporal_filter,
)
from millstream.kernels.windows import corrections, panes
from millstream.kernels.windows.slice_times import closes_between
from millstream.plan.operators.changelog import Logged
from millstream.plan.operators.loop import Loop
from millstream.plan.operators.pattern import Match
from millstream.plan.operators.process import Asking, Folded, Processing
from millstream.plan.operators.temporal_filter import Present
from millstream.plan.stages import Aggregation, Append, AsOf, Chained, Join, Settled, Stage


class Rows(Protocol):
    """What tells how many rows of state a step has."""

    def rows(self, step: str) -> int:
        """State rows of a step."""
        ...


def advance(
    spec: Aggregation | Append,
    partials: pl.DataFrame | None,
    state: State,
    clock: StageClock,
    records: State | None = None,
) -> Outcome:
    """Run one epoch of a stage. `records` is the state of the rows it keeps one by one, if it does."""
    if isinstance(spec, Append):
        return ordered_merge.advance(spec, partials, state, clock)
    if spec.by_slices:
        return slices.advance(spec, partials, state, clock)
    return panes.advance(spec, partials, state, clock, records)


_ONE_SIDED: dict[type, Callable[[Chained, pl.DataFrame | None, State, StageClock], Outcome]] = {
    Settled: hold_until.advance,
    Logged: changelog.advance,
    Match: pattern.advance,
    Folded: user_aggregate.advance,
    Processing: process.advance,
    Present: temporal_filter.advance,
}
"""Kernels of chained stages with one side, by what they do; `relate` does the rest."""


def advance_chained(
    spec: Chained,
    came: Sequence[pl.DataFrame | None],
    states: Sequence[State],
    clock: StageClock,
    holds: join.Holds,
    asks: lookup.Ask | None = None,
    repeat: loop.Repeat | None = None,
) -> Outcome:
    """Run one epoch of a chained stage: changes and state by side."""
    what = spec.what
    if isinstance(what, Join):
        return join.advance(spec, (came[0], came[1]), (states[0], states[1]), clock, holds)
    if isinstance(what, AsOf):
        return as_of_join.advance(spec, (came[0], came[1]), (states[0], states[1]), clock)
    if isinstance(what, Loop):
        assert repeat is not None, "somebody repeats"
        return loop.advance(spec, came, states, clock, repeat)
    if isinstance(what, Asking):
        assert asks is not None, "somebody asks"
        return lookup.advance(spec, came[0], states[0], clock, asks)
    kernel = _ONE_SIDED.get(type(what), multiset.advance)
    return kernel(spec, came[0], states[0], clock)


def records_step(spec: Stage) -> str | None:
    """The name under which a stage keeps rows one by one, or those of its second side; None when it does not."""
    if isinstance(spec, Chained):
        return f"{spec.step}$right" if len(spec.sides) > 1 else None
    if isinstance(spec, Append):
        return None
    return f"{spec.step}$records" if spec.keeps_records else None


def records_unique(spec: Stage) -> list[str]:
    """The columns that make such a row unique."""
    if not isinstance(spec, Aggregation):
        return list(changes.UNIQUE)
    return list(corrections.UNIQUE) if spec.corrected else ["$h", "$part", "$pos", *spec.keys]


def unique(spec: Stage) -> list[str]:
    """The columns that make a row of a stage's state unique."""
    if not isinstance(spec, Aggregation):
        return list(ordered_merge.UNIQUE if isinstance(spec, Append) else changes.UNIQUE)
    return group_columns(spec) if spec.by_slices else panes.identity(spec)


def states(spec: Stage) -> list[tuple[str, list[str]]]:
    """The states of a stage: names of their steps, and the columns that make a row unique there."""
    second = records_step(spec)
    return [(spec.step, unique(spec)), *([] if second is None else [(second, records_unique(spec))])]


def lacks_its_row(spec: Stage, held: Rows) -> bool:
    """Whether a stage that has a row with or without input has not given it yet: it has no state."""
    return not isinstance(spec, Append) and spec.is_never_empty and not held.rows(spec.step)


def leaving(spec: Stage, held: pl.DataFrame) -> np.ndarray:
    """When each row of a stage's state may be forgotten."""
    if isinstance(spec, Aggregation) and spec.by_slices:
        return slices.leaving(spec, held)
    return held["$x"].to_numpy()


def _is_chained_due(spec: Chained, state: State, clock: StageClock) -> bool:
    """Whether a chained stage has something to do by the clock alone; most only have to do with what others give."""
    if isinstance(spec.what, Settled | AsOf):
        return hold_until.is_due(state, clock)
    if isinstance(spec.what, Match):
        return pattern.is_due(state, clock)
    if isinstance(spec.what, Processing):
        return process.is_due(spec, state, clock)
    if isinstance(spec.what, Present):
        return temporal_filter.is_due(state, clock)
    return isinstance(spec.what, Join) and join.is_due(spec, state, clock)


def is_due(spec: Stage, state: State, clock: StageClock) -> bool:
    """Whether a stage that holds something has something to do by the clock alone."""
    if isinstance(spec, Chained):
        return _is_chained_due(spec, state, clock)
    if isinstance(spec, Append):
        return hold_until.is_due(state, clock)
    if not spec.by_slices:
        hashes = state.due(due_columns(clock), clock.before)
        found = state.lookup(hashes, clock.before) if len(hashes) else None
        if found is None:
            return False
        due = pl.any_horizontal(pl.col(c) <= upto for c, (_, upto) in due_columns(clock).items())
        return not found.filter(due & ~pl.col("$gone") & (pl.col("$x") > clock.before)).is_empty()
    return closes_between(spec.grid, clock.before, clock.watermark)
