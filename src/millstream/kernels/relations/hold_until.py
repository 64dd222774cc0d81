"""The kernel that holds rows until they are final. It turns a changing stream into an append-only, ordered one."""

from __future__ import annotations

import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels.changes import (
    CONTENT,
    GROUP,
    pair,
    repeated,
    touched_rows,
    written,
)
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome, State, keeping
from millstream.model.reserved import OP, PLACE
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.relations.hold_until import HoldUntil


def advance(operator: HoldUntil, inputs: Inputs, states: States, clock: OperatorClock, services: Services) -> Outcome:
    """Release final rows in time order; hold the others."""
    del services
    side = operator.sides[0]
    at = pl.col(operator.column).cast(pl.Datetime("us", "UTC")).cast(pl.Int64) + operator.slack
    rows, due = waiting(side, operator.keys, inputs["rows"], states["rows"], clock, at.fill_null(END_OF_TIME))
    order: list[str] = []
    if operator.by_content:
        order = [f"{PLACE}{i}" for i in range(3)]
        time = pl.col(operator.column).cast(pl.Datetime("us", "UTC")).cast(pl.Int64).alias(order[0])
        due = due.with_columns(time, *pair(order[1:], due, operator.result))
    ordered = due.sort(order or [operator.column, *CONTENT])
    released = repeated(ordered, ordered["$n"].to_numpy())
    changes = released.select(pl.lit("+I").alias(OP), *order, *operator.result) if len(released) else None
    new_state = (
        None if rows is None else rows.filter((pl.col("$x") > clock.watermark) & (pl.col("$n") != pl.col("$was")))
    )
    if new_state is None or not len(new_state):
        return Outcome(changes)
    return keeping(changes, rows=written(new_state, pl.col("$x"), side.columns))


def waiting(
    side: Side,
    keys: tuple[str, ...],
    changes: pl.DataFrame | None,
    state: State,
    clock: OperatorClock,
    until: pl.Expr,
) -> tuple[pl.DataFrame | None, pl.DataFrame]:
    """The rows that changes touch, with ``$x``, and all rows whose ``$x`` the watermark passed in this epoch."""
    rows = touched_rows(side, keys, changes, state, clock)
    if rows is not None:
        rows = rows.with_columns(until.alias("$x"))
    hashes = state.due({"$x": (clock.before, clock.watermark)}, clock.before)
    state_rows = state.lookup(hashes, clock.before) if len(hashes) else None
    columns = [*GROUP, *CONTENT, "$n", "$x", *side.columns]
    parts = []
    if state_rows is not None:
        past = (pl.col("$x") > clock.before) & (pl.col("$x") <= clock.watermark) & ~pl.col("$gone")
        old = state_rows.filter(past).select(columns)
        parts.append(old if rows is None else old.join(rows, on=[*GROUP, *CONTENT], how="anti"))
    if rows is not None:
        parts.append(rows.filter((pl.col("$x") <= clock.watermark) & (pl.col("$n") > 0)).select(columns))
    if not parts:
        return rows, pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))
    return rows, pl.concat(parts, how="vertical_relaxed")


def is_due(operator: Operator, state: State, clock: OperatorClock) -> bool:
    """Whether the clock alone releases a row."""
    del operator
    return bool(len(state.due({"$x": (clock.before, clock.watermark)}, clock.before)))


KERNEL = Kernel(advance, is_due)
