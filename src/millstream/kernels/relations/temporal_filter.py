"""The kernel of temporal filters: a row is there from one instant of the epoch's clock until another.

Both instants follow from what is in the row, so that state holds only rows that are still to come or to go (`$pd` says
when), and, of rows that may be taken back, those that are there for good. A row whose time is past is dropped.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.clock import BEGINNING, END_OF_TIME
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import Outcome, StageClock, State, keeping
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
"""The column with the instant at which a row must be looked at next."""
_MARKS = (*GROUP, *CONTENT, "$was", "$n")


def advance(operator: TemporalFilter, inputs: Inputs, states: States, clock: StageClock, services: Services) -> Outcome:
    """Run one epoch: apply changes, and let rows come and go whose time has come."""
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


def due(state: State, clock: StageClock) -> pl.DataFrame | None:
    """The rows that come or go between the clock of the epoch before and that of this one."""
    hashes = state.due({DUE: (clock.since, clock.now)}, clock.before)
    found = state.lookup(hashes, clock.before) if len(hashes) else None
    if found is None:
        return None
    return found.filter((pl.col(DUE) > clock.since) & (pl.col(DUE) <= clock.now) & ~pl.col("$gone"))


def is_due(operator: TemporalFilter, state: State, clock: StageClock) -> bool:
    """Whether a row comes or goes by the clock alone."""
    del operator
    found = due(state, clock)
    return found is not None and len(found) > 0


def _there(at: int, copies: str) -> pl.Expr:
    """How many copies of a row are there at an instant."""
    return pl.when((pl.col("$since") <= at) & (pl.col("$end") > at)).then(pl.col(copies)).otherwise(0)


def _changes(operator: TemporalFilter, rows: pl.DataFrame) -> pl.DataFrame | None:
    """The copies that go and those that come."""
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


def _kept(operator: TemporalFilter, rows: pl.DataFrame, clock: StageClock) -> pl.DataFrame:
    """What becomes of rows in state: those that are past, or there for good, are held no longer."""
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
    """When a row comes or goes next, seen from an instant."""
    return pl.when(pl.col("$since") > at).then(pl.col("$since")).otherwise(pl.col("$end"))


KERNEL = Kernel(advance, is_due)
