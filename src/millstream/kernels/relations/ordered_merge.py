"""The kernel of ordered merges: holds rows until the watermark passes their time, then emits them in event-time order.

Ties are broken by source, partition and offset, so the order does not depend on how rows arrived. A row that arrives
after the watermark has passed its time is late: later rows have already been emitted.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from millstream.kernels.aggregates.partials import ORDER
from millstream.kernels.hashing import hashed
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome, keeping
from millstream.kernels.relations.hold_until import is_due
from millstream.kernels.relations.pass_through import SCAN_INPUT as PASSED_ON
from millstream.kernels.scan_input import Role
from millstream.plan.operators.relations.ordered_merge import OrderedMerge


def _select(rows: pl.DataFrame, role: Role) -> pl.DataFrame:
    """The rows with the hash of the key by which the next operator is distributed, so that they can wait there."""
    kept = PASSED_ON.select(rows, role)
    keys = role.operator.keys
    return kept.with_columns(pl.Series("$h", hashed(kept, keys)[0], dtype=pl.Int64)) if keys else kept


SCAN_INPUT = replace(PASSED_ON, select=_select)


def advance(
    operator: OrderedMerge, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Release held rows that the watermark has passed, in order; hold the new ones. Changes are appended rows."""
    del operator, services
    rows = inputs["rows"]
    state_rows = states["rows"].scan(clock.before)
    number = 0
    released = None
    if state_rows is not None:
        number = int(state_rows["$no"].max()) + 1  # type: ignore[arg-type]
        waiting = state_rows.filter(pl.col("$x") > clock.before)
        due = waiting.filter(pl.col("$x") <= clock.watermark)
        released = due.sort(*(c for c in ORDER if c in due.columns), "$no") if len(due) else None
    if rows is None or not len(rows):
        return keeping(released)
    order = [c for c in ORDER if c in rows.columns]
    new_state = rows.sort(*order, maintain_order=True).with_columns(
        pl.col("$h") if "$h" in rows.columns else pl.lit(0, pl.Int64).alias("$h"),
        (pl.int_range(pl.len(), dtype=pl.Int64) + number).alias("$no"),
        (pl.col("$ts") + 1).alias("$x"),
    )
    return keeping(released, rows=new_state)


KERNEL = Kernel(advance, is_due, scan=SCAN_INPUT)
