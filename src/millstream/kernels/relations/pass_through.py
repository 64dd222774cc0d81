"""The kernel of pass-through operators: emits rows of scans unchanged. It keeps no state."""

from __future__ import annotations

import polars as pl

from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome
from millstream.kernels.scan_input import Role, ScanInput, as_they_are, positions, together
from millstream.plan.operators.relations.pass_through import PassThrough

PLACE = ("$part", "$pos")


def _select(rows: pl.DataFrame, role: Role) -> pl.DataFrame:
    feed, operator = role.feed, role.operator
    kept = rows if feed.keep is None else rows.filter(pl.col(feed.keep))
    named = [pl.col(c).alias(n) for c, n in zip(feed.columns, operator.columns, strict=True)]
    return kept.select(*named, *(positions(kept, role) if operator.needs_positions else ["$ts"]))


def _in_time(rows: pl.DataFrame, role: Role) -> tuple[pl.DataFrame, pl.Series | None]:
    if not role.operator.takes_late_rows:
        return rows, None
    late = rows["$ts"] < role.watermark
    return (rows.filter(~late), late) if late.any() else (rows, None)


def _gather(operator: PassThrough, frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    del operator
    return together(frames)


SCAN_INPUT = ScanInput(_select, _in_time, as_they_are, _gather)


def advance(operator: PassThrough, inputs: Inputs, states: States, clock: OperatorClock, services: Services) -> Outcome:
    """Run one epoch: emit rows as they arrive, or ordered by partition and offset."""
    del states, clock, services
    rows = inputs["rows"]
    if rows is None or not len(rows):
        return Outcome()
    return Outcome(rows.sort(*PLACE, maintain_order=True) if operator.by_place else rows)


KERNEL = Kernel(advance, scan=SCAN_INPUT)
