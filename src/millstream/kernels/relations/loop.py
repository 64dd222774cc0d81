"""The kernel of loops: a body is repeated over tables until nothing changes; the difference to before is given.

The answer is computed anew from all rows when some of them changed, before and after; so it is right for rows that go
away, too. Rows are put in order first and one thread computes, so that the same rows always give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels.outcome import Outcome, StageClock, State
from millstream.kernels.relations.changes import CONTENT, GROUP, arrived, pair, repeated, types_of, whole, written
from millstream.model.reserved import OP
from millstream.plan.operators.loop import Loop
from millstream.plan.stages import ROW, Chained, Side

Repeat = Callable[[Loop, list[pl.DataFrame]], pl.DataFrame]
"""Repeats the body of a loop over tables."""


def advance(
    spec: Chained,
    came: Sequence[pl.DataFrame | None],
    states: Sequence[State],
    clock: StageClock,
    repeat: Repeat,
) -> Outcome:
    """Run one epoch of a loop."""
    what = spec.what
    assert isinstance(what, Loop)
    if all(c is None or not len(c) for c in came):
        return Outcome(None, None, np.empty(0, dtype=np.int64))
    sides = [_side(s, c, state, clock) for s, c, state in zip(spec.sides, came, states, strict=True)]
    before, after = (_answer(spec, what, sides, count, repeat) for count in ("$was", "$n"))
    kept = [_kept(s, rows) for s, rows in zip(spec.sides, sides, strict=True)]
    expiry = np.empty(0, dtype=np.int64) if kept[0] is None else kept[0]["$x"].to_numpy()
    changes = _difference(spec, before, after)
    return Outcome(changes, kept[0], expiry, records=kept[1] if len(kept) > 1 else None)


def _side(side: Side, came: pl.DataFrame | None, state: State, clock: StageClock) -> pl.DataFrame:
    """All rows of a side, how often each was there and is."""
    held = state.scan(clock.before)
    if held is not None:
        held = held.filter(~pl.col("$gone"))
    none = pl.DataFrame(schema={**dict.fromkeys((*GROUP, *CONTENT, "$d"), pl.Int64), **types_of(side)})
    new = none if came is None or not len(came) else arrived(side, side.columns, came, clock)
    return whole(side, held, new)


def _kept(side: Side, rows: pl.DataFrame) -> pl.DataFrame | None:
    changed = rows.filter(pl.col("$n") != pl.col("$was"))
    return written(changed, pl.lit(END_OF_TIME, pl.Int64), side.columns) if len(changed) else None


def _answer(spec: Chained, what: Loop, sides: list[pl.DataFrame], count: str, repeat: Repeat) -> pl.DataFrame:
    """The rows of a loop over the rows that were there, or are."""
    tables = []
    for side, rows in zip(spec.sides, sides, strict=True):
        there = rows.filter(pl.col(count) > 0).sort(*CONTENT)
        tables.append(repeated(there, there[count].to_numpy()).select(side.columns))
    found = repeat(what, tables).cast(types_of(spec.sides[0]))  # type: ignore[arg-type]
    found = found.with_columns(pair(CONTENT, found, what.names))
    found = found.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over(*CONTENT).alias("$copy"))
    return found.with_columns(pair(ROW, found, (*CONTENT, "$copy")))


def _difference(spec: Chained, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame | None:
    gone = before.join(after, on=list(ROW), how="anti", maintain_order="left")
    come = after.join(before, on=list(ROW), how="anti", maintain_order="left")
    parts = [r.select(pl.lit(op).alias(OP), *spec.result) for r, op in ((gone, "-D"), (come, "+I")) if len(r)]
    return pl.concat(parts) if parts else None
