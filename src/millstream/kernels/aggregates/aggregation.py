"""The kernel of aggregations over rows of scans.

It runs `kernels/aggregates/slices.py` where windows share slices, and `kernels/windows/panes.py` where windows have
panes.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.kernels.aggregates import slices
from millstream.kernels.aggregates.combine import over_nothing
from millstream.kernels.aggregates.scan_input import SCAN_INPUT
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome, State, due_columns
from millstream.kernels.windows import panes
from millstream.kernels.windows.slice_times import closes_between
from millstream.plan.operators.aggregates.aggregation import Aggregation


def advance(operator: Aggregation, inputs: Inputs, states: States, clock: OperatorClock, services: Services) -> Outcome:
    """Run one epoch. The input is partials, or rows if the operator keeps single rows. A frame without
    columns means that an operator that is never empty must emit its first row; a shard without rows has columns.
    """
    partials = inputs["rows"]
    if operator.is_never_empty and partials is not None and not partials.width:
        hashes = [services.key_hash(operator, n) for n in operator.totals] or (0,)
        partials = over_nothing(operator, hashes)
    if operator.by_slices:
        return slices.advance(operator, partials, states["windows"], clock)
    return panes.advance(operator, partials, states["windows"], clock, states.get("records"))


def is_due(operator: Aggregation, state: State, clock: OperatorClock) -> bool:
    """Whether a window closes or fires by the clock alone."""
    if operator.by_slices:
        return closes_between(operator.grid, clock.before, clock.watermark)
    hashes = state.due(due_columns(clock), clock.before)
    found = state.lookup(hashes, clock.before) if len(hashes) else None
    if found is None:
        return False
    due = pl.any_horizontal(pl.col(c) <= upto for c, (_, upto) in due_columns(clock).items())
    return not found.filter(due & ~pl.col("$gone") & (pl.col("$x") > clock.before)).is_empty()


def expiry(operator: Aggregation, rows: pl.DataFrame) -> np.ndarray:
    """When slices or windows leave state."""
    if operator.by_slices:
        return slices.leaving(operator, rows)
    leaves: np.ndarray = rows["$x"].to_numpy()
    return leaves


KERNEL = Kernel(advance, is_due, expiry, SCAN_INPUT)
