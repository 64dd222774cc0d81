"""The kernel of loops: repeats a body over tables to a fixpoint, and emits the difference from the previous result.

When some input rows change, the result is recomputed from all rows, as of before and after the epoch. That is correct
for retractions too. Rows are sorted first and one thread computes, so that equal input always gives equal results.
"""

from __future__ import annotations

import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome, State, keeping
from millstream.kernels.relations.changes import CONTENT, GROUP, arrived, pair, repeated, types_of, whole, written
from millstream.model.reserved import OP
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.operator import ROW
from millstream.plan.operators.relations.loop import Loop


def advance(operator: Loop, inputs: Inputs, states: States, clock: OperatorClock, services: Services) -> Outcome:
    """Run one epoch of a loop."""
    names = operator.side_names[: len(operator.sides)]
    if all((rows := inputs[n]) is None or not len(rows) for n in names):
        return Outcome()
    sides = [_side(s, inputs[n], states[n], clock) for s, n in zip(operator.sides, names, strict=True)]
    before, after = (_answer(operator, sides, count, services) for count in ("$was", "$n"))
    kept = {n: _kept(s, rows) for n, s, rows in zip(names, operator.sides, sides, strict=True)}
    return keeping(_difference(operator, before, after), **kept)


def _side(side: Side, came: pl.DataFrame | None, state: State, clock: OperatorClock) -> pl.DataFrame:
    """All rows of a side, with their numbers of copies before and after."""
    held = state.scan(clock.before)
    if held is not None:
        held = held.filter(~pl.col("$gone"))
    none = pl.DataFrame(schema={**dict.fromkeys((*GROUP, *CONTENT, "$d"), pl.Int64), **types_of(side)})
    new = none if came is None or not len(came) else arrived(side, side.columns, came, clock)
    return whole(side, held, new)


def _kept(side: Side, rows: pl.DataFrame) -> pl.DataFrame | None:
    changed = rows.filter(pl.col("$n") != pl.col("$was"))
    return written(changed, pl.lit(END_OF_TIME, pl.Int64), side.columns) if len(changed) else None


def _answer(operator: Loop, sides: list[pl.DataFrame], count: str, services: Services) -> pl.DataFrame:
    """The result of a loop over the rows from before, or after, the epoch."""
    tables = []
    for side, rows in zip(operator.sides, sides, strict=True):
        there = rows.filter(pl.col(count) > 0).sort(*CONTENT)
        tables.append(repeated(there, there[count].to_numpy()).select(side.columns))
    found = services.fixpoint(operator, tables).cast(types_of(operator.sides[0]))  # type: ignore[arg-type]
    found = found.with_columns(pair(CONTENT, found, operator.names))
    found = found.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over(*CONTENT).alias("$copy"))
    return found.with_columns(pair(ROW, found, (*CONTENT, "$copy")))


def _difference(operator: Loop, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame | None:
    gone = before.join(after, on=list(ROW), how="anti", maintain_order="left")
    come = after.join(before, on=list(ROW), how="anti", maintain_order="left")
    parts = [r.select(pl.lit(op).alias(OP), *operator.result) for r, op in ((gone, "-D"), (come, "+I")) if len(r)]
    return pl.concat(parts) if parts else None


KERNEL = Kernel(advance)
