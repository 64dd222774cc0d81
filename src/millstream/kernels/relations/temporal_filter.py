"""The kernel of temporal filters: a row is visible from one instant of the epoch's clock until another.

Both instants follow from the content of the row. State therefore holds only rows that will still appear or disappear
(`$pd` is the next instant) and, if rows may be retracted, those that stay visible permanently. A row whose time has
passed is dropped.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.clock import BEGINNING, END_OF_TIME
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome, State, keeping
from millstream.kernels.relations.changes import (
    CONTENT,
    GROUP,
    arrived,
    hashes_of,
    held,
    pair,
    repeated,
    whole,
    written,
)
from millstream.model.reserved import OP
from millstream.plan.operators.operator import ROW
from millstream.plan.operators.relations.temporal_filter import FROM, LEAVES, TemporalFilter

DUE = "$pd"
"""The column with the next instant at which a row must be processed."""
_MARKS = (*GROUP, *CONTENT, "$was", "$n")


def advance(
    operator: TemporalFilter, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Run one epoch: apply changes, and emit rows that the clock makes visible or invisible."""
    del services
    changes, state, side = inputs["rows"], states["rows"], operator.sides[0]
    rows = None
    if changes is not None and len(changes):
        came = arrived(side, operator.keys, changes, clock, () if side.append_only else None)
        before = None if side.append_only else held(state, hashes_of(came), clock)
        rows = whole(side, before, came).select(*_MARKS, *side.columns)
    found = due(state, clock)
    if found is not None:
        old = found.with_columns(pl.col("$n").alias("$was")).select(*_MARKS, *side.columns)
        if rows is not None:
            old = old.join(rows, on=[*GROUP, *CONTENT], how="anti", maintain_order="left")
            old = pl.concat([old, rows], how="vertical_relaxed")
        rows = old
    if rows is None or not len(rows):
        return Outcome()
    since = pl.col(FROM).fill_null(END_OF_TIME) if operator.waits else pl.lit(BEGINNING, pl.Int64)
    until = pl.col(LEAVES).fill_null(BEGINNING) if operator.leaves else pl.lit(END_OF_TIME, pl.Int64)
    rows = rows.with_columns(since.alias("$since"), until.alias("$end"))
    shown = [
        _there(at, copies).alias(n) for at, copies, n in ((clock.since, "$was", "$old"), (clock.now, "$n", "$new"))
    ]
    rows = rows.with_columns(*shown)
    return keeping(_changes(operator, rows), rows=_kept(operator, rows, clock))


def due(state: State, clock: OperatorClock) -> pl.DataFrame | None:
    """The rows that appear or disappear between the previous epoch's clock and this one's."""
    hashes = state.due({DUE: (clock.since, clock.now)}, clock.before)
    found = state.lookup(hashes, clock.before) if len(hashes) else None
    if found is None:
        return None
    return found.filter((pl.col(DUE) > clock.since) & (pl.col(DUE) <= clock.now) & ~pl.col("$gone"))


def is_due(operator: TemporalFilter, state: State, clock: OperatorClock) -> bool:
    """Whether a row appears or disappears by the clock alone."""
    del operator
    found = due(state, clock)
    return found is not None and len(found) > 0


def _there(at: int, copies: str) -> pl.Expr:
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


def _kept(operator: TemporalFilter, rows: pl.DataFrame, clock: OperatorClock) -> pl.DataFrame:
    """The rows of state to write. Rows that have expired, or that stay visible permanently, are no longer held."""
    over = (pl.col("$since") >= pl.col("$end")) | (pl.col("$end") <= clock.now)
    if operator.append_only:
        over = over | (pl.col("$since") <= clock.now)
    stay = pl.when(over).then(0).otherwise(pl.col("$n")).alias("$n")
    columns = [c for c in rows.columns if c not in (*_MARKS, "$since", "$end", "$old", "$new")]
    rows = rows.with_columns(stay, _next(clock.since).alias("$last"), _next(clock.now).alias(DUE))
    moved = (pl.col("$n") > 0) & (pl.col(DUE) != pl.col("$last"))
    touched = rows.filter((pl.col("$n") != pl.col("$was")) | moved)
    never = pl.lit(END_OF_TIME, pl.Int64)
    kept = written(touched, never, [*columns, DUE])
    return kept.with_columns(pl.when(pl.col("$gone")).then(never).otherwise(pl.col(DUE)).alias(DUE))


def _next(at: int) -> pl.Expr:
    """The next instant, after a given one, at which a row appears or disappears."""
    return pl.when(pl.col("$since") > at).then(pl.col("$since")).otherwise(pl.col("$end"))


KERNEL = Kernel(advance, is_due)
