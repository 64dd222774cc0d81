"""The kernel that holds rows until they change no more: a stream that changes becomes one that only grows, in order."""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels.outcome import Outcome, StageClock, State
from millstream.kernels.relations.changes import CONTENT, GROUP, arrived, hashes_of, held, repeated, whole, written
from millstream.model.reserved import OP
from millstream.plan.stages import Chained, Settled, Side


def advance(spec: Chained, changes: pl.DataFrame | None, state: State, clock: StageClock) -> Outcome:
    """Release rows whose time is past, in the order of time; hold the others."""
    side, what = spec.sides[0], spec.what
    assert isinstance(what, Settled)
    at = pl.col(what.column).cast(pl.Datetime("us", "UTC")).cast(pl.Int64) + what.slack
    rows, due = waiting(side, spec.keys, changes, state, clock, at.fill_null(END_OF_TIME))
    released = repeated(due.sort(what.column, *CONTENT), due.sort(what.column, *CONTENT)["$n"].to_numpy())
    given = released.select(pl.lit("+I").alias(OP), *spec.result) if len(released) else None
    kept = None if rows is None else rows.filter((pl.col("$x") > clock.watermark) & (pl.col("$n") != pl.col("$was")))
    if kept is None or not len(kept):
        return Outcome(given, None, np.empty(0, dtype=np.int64))
    state_rows = written(kept, pl.col("$x"), side.columns)
    return Outcome(given, state_rows, state_rows["$x"].to_numpy())


def waiting(
    side: Side,
    keys: tuple[str, ...],
    changes: pl.DataFrame | None,
    state: State,
    clock: StageClock,
    until: pl.Expr,
) -> tuple[pl.DataFrame | None, pl.DataFrame]:
    """The rows that changes touch, with ``$x``; and all rows whose ``$x`` is past now and was not before."""
    rows = None
    if changes is not None and len(changes):
        came = arrived(side, keys, changes, clock, () if side.grows else None)
        before = None if side.grows else held(state, hashes_of(came), clock)
        rows = whole(side, before, came).with_columns(until.alias("$x"))
    hashes = state.due({"$x": (clock.before, clock.watermark)}, clock.before)
    found = state.lookup(hashes, clock.before) if len(hashes) else None
    columns = [*GROUP, *CONTENT, "$n", "$x", *side.columns]
    parts = []
    if found is not None:
        past = (pl.col("$x") > clock.before) & (pl.col("$x") <= clock.watermark) & ~pl.col("$gone")
        old = found.filter(past).select(columns)
        parts.append(old if rows is None else old.join(rows, on=[*GROUP, *CONTENT], how="anti"))
    if rows is not None:
        parts.append(rows.filter((pl.col("$x") <= clock.watermark) & (pl.col("$n") > 0)).select(columns))
    if not parts:
        return rows, pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))
    return rows, pl.concat(parts, how="vertical_relaxed")


def is_due(state: State, clock: StageClock) -> bool:
    """Whether a row is to be released by the clock alone."""
    return bool(len(state.due({"$x": (clock.before, clock.watermark)}, clock.before)))
