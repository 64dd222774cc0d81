"""The kernel of temporal filters: a row is visible from one instant of the epoch's clock until another.

Both instants follow from the content of the row. State therefore holds only rows that will still appear or disappear
(`$pd` is the next instant) and, if rows may be retracted, those that stay visible permanently. A row whose time has
passed is dropped.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.clock import BEGINNING, END_OF_TIME, Micros
from millstream.kernels.changes import (
    CONTENT,
    GROUP,
    pair,
    repeated,
    touched_rows,
    written,
)
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import DUE_BY_CLOCK, OperatorClock, Outcome, State, keeping
from millstream.model.reserved import OP
from millstream.plan.operators.operator import ROW
from millstream.plan.operators.relations.temporal_filter import FROM, LEAVES, TemporalFilter

_MARKS = (*GROUP, *CONTENT, "$was", "$n")


def advance(
    operator: TemporalFilter, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Run one epoch: apply changes, and emit rows that the clock makes visible or invisible."""
    del services
    changes, state, side = inputs["rows"], states["rows"], operator.sides[0]
    rows = touched_rows(side, operator.keys, changes, state, clock)
    if rows is not None:
        rows = rows.select(*_MARKS, *side.columns)
    due_rows = due(state, clock)
    if due_rows is not None:
        old = due_rows.with_columns(pl.col("$n").alias("$was")).select(*_MARKS, *side.columns)
        if rows is not None:
            old = old.join(rows, on=[*GROUP, *CONTENT], how="anti", maintain_order="left")
            old = pl.concat([old, rows], how="vertical_relaxed")
        rows = old
    if rows is None or not len(rows):
        return Outcome()
    since = pl.col(FROM).fill_null(END_OF_TIME) if operator.waits else pl.lit(BEGINNING, pl.Int64)
    until = pl.col(LEAVES).fill_null(BEGINNING) if operator.leaves else pl.lit(END_OF_TIME, pl.Int64)
    rows = rows.with_columns(since.alias("$since"), until.alias("$end"))
    visible = [
        _there(at, copies).alias(n) for at, copies, n in ((clock.since, "$was", "$old"), (clock.now, "$n", "$new"))
    ]
    rows = rows.with_columns(*visible)
    return keeping(_changes(operator, rows), rows=_new_state(operator, rows, clock))


def due(state: State, clock: OperatorClock) -> pl.DataFrame | None:
    """The rows that appear or disappear between the previous epoch's clock and this one's."""
    hashes = state.due({DUE_BY_CLOCK: (clock.since, clock.now)}, clock.before)
    state_rows = state.lookup(hashes, clock.before) if len(hashes) else None
    if state_rows is None:
        return None
    return state_rows.filter(
        (pl.col(DUE_BY_CLOCK) > clock.since) & (pl.col(DUE_BY_CLOCK) <= clock.now) & ~pl.col("$gone")
    )


def is_due(operator: TemporalFilter, state: State, clock: OperatorClock) -> bool:
    """Whether a row appears or disappears by the clock alone."""
    del operator
    due_rows = due(state, clock)
    return due_rows is not None and len(due_rows) > 0


def _there(at: Micros, copies: str) -> pl.Expr:
    """How many copies of a row are visible at an instant."""
    return pl.when((pl.col("$since") <= at) & (pl.col("$end") > at)).then(pl.col(copies)).otherwise(0)


def _changes(operator: TemporalFilter, rows: pl.DataFrame) -> pl.DataFrame | None:
    """The copies that disappear and those that appear."""
    parts = []
    for op, first, last in (("-D", "$new", "$old"), ("+I", "$old", "$new")):
        moved = rows.filter(pl.col(last) > pl.col(first))
        if not len(moved):
            continue
        copies = (moved[last] - moved[first]).to_numpy()
        moved = repeated(moved, copies)
        if not operator.append_only:
            start = np.concatenate(([0], np.cumsum(copies)[:-1]))
            number = np.arange(len(moved)) - np.repeat(start, copies) + moved[first].to_numpy()
            moved = moved.with_columns(pl.Series("$copy", number, dtype=pl.Int64))
            moved = moved.with_columns(pair(ROW, moved, (*CONTENT, "$copy")))
        parts.append(moved.select(pl.lit(op).alias(OP), *operator.result))
    return pl.concat(parts, how="vertical_relaxed") if parts else None


def _new_state(operator: TemporalFilter, rows: pl.DataFrame, clock: OperatorClock) -> pl.DataFrame:
    """The rows of state to write. Rows that have expired, or that stay visible permanently, are no longer held."""
    over = (pl.col("$since") >= pl.col("$end")) | (pl.col("$end") <= clock.now)
    if operator.append_only:
        over = over | (pl.col("$since") <= clock.now)
    stay = pl.when(over).then(0).otherwise(pl.col("$n")).alias("$n")
    columns = [c for c in rows.columns if c not in (*_MARKS, "$since", "$end", "$old", "$new")]
    rows = rows.with_columns(stay, _next(clock.since).alias("$last"), _next(clock.now).alias(DUE_BY_CLOCK))
    moved = (pl.col("$n") > 0) & (pl.col(DUE_BY_CLOCK) != pl.col("$last"))
    touched = rows.filter((pl.col("$n") != pl.col("$was")) | moved)
    never = pl.lit(END_OF_TIME, pl.Int64)
    new_state = written(touched, never, [*columns, DUE_BY_CLOCK])
    return new_state.with_columns(
        pl.when(pl.col("$gone")).then(never).otherwise(pl.col(DUE_BY_CLOCK)).alias(DUE_BY_CLOCK)
    )


def _next(at: Micros) -> pl.Expr:
    """The next instant, after a given one, at which a row appears or disappears."""
    return pl.when(pl.col("$since") > at).then(pl.col("$since")).otherwise(pl.col("$end"))


KERNEL = Kernel(advance, is_due)
