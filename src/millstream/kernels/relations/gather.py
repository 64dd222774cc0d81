"""The kernel of gathered rows: emits every row with all its copies. Append-only rows pass through without state."""

from __future__ import annotations

import polars as pl

from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome
from millstream.kernels.relations.changes import repeated
from millstream.kernels.relations.multiset import copies, identified, recompute
from millstream.model.reserved import OP
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.relations.gather import GatheredRows


def advance(
    operator: GatheredRows, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Run one epoch."""
    del services
    changes = inputs["rows"]
    if changes is not None and len(changes) and operator.append_only_input:
        return Outcome(changes.select(OP, *operator.result))
    return recompute(operator, changes, states["rows"], clock, all_rows)


def all_rows(operator: Operator, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """All current rows, with the number of each copy."""
    there = rows.filter(pl.col(count) > 0)
    return identified(operator, copies(repeated(there, there[count].to_numpy()), operator.columns))


KERNEL = Kernel(advance)
