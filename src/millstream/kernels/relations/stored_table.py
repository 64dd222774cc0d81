"""The kernel of stored tables: emits the rows added and removed since the previous epoch."""

from __future__ import annotations

import polars as pl

from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome, State
from millstream.kernels.relations.changes import repeated
from millstream.kernels.relations.gather import all_rows
from millstream.kernels.relations.multiset import recompute
from millstream.model.reserved import OP
from millstream.plan.operators.relations.stored_table import StoredTable


def advance(operator: StoredTable, inputs: Inputs, states: States, clock: OperatorClock, services: Services) -> Outcome:
    """Run one epoch. The input is all current rows of the table, or None if it has not changed."""
    del services
    rows = inputs["rows"]
    changes = None if rows is None else _since(operator, rows, states["rows"], clock)
    return recompute(operator, changes, states["rows"], clock, all_rows)


def _since(operator: StoredTable, rows: pl.DataFrame, state: State, clock: OperatorClock) -> pl.DataFrame:
    """The rows that were removed and added since the table was last read."""
    before = state.scan(clock.before)
    if before is None:
        return rows
    there = before.filter(~pl.col("$gone"))
    gone = repeated(there, there["$n"].to_numpy()).select(pl.lit("-D").alias(OP), *operator.columns)
    return pl.concat([gone, rows.select(OP, *operator.columns)], how="vertical_relaxed")


KERNEL = Kernel(advance)
