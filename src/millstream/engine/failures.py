"""Rows that user code failed on, behind the sources: set apart in ``<view>$errors``, or only counted."""

from __future__ import annotations

import pyarrow as pa

from millstream.kernels.process import Processed
from millstream.model.process import QUARANTINE
from millstream.model.schema import TIMESTAMP
from millstream.plan.processing import Asking, Processing
from millstream.plan.stages import Chained, Plan

ERRORS = pa.schema(
    [
        ("epoch", pa.int64()),
        ("reason", pa.string()),
        ("raw", pa.string()),
        ("partition", pa.string()),
        ("offset", pa.int64()),
        ("seen_at", TIMESTAMP),
    ]
)


def errors_of(outcome: Processed, epoch: int, now: int) -> pa.Table:
    """What was set apart, as a table of errors."""
    rows = [{"epoch": epoch, "reason": f.reason, "raw": f.record, "seen_at": now} for f in outcome.failures]
    return pa.Table.from_pylist(rows, schema=ERRORS)


def reached(plan: Plan, name: str) -> tuple[str, ...]:
    """The views that people see which get something of a view's stage, itself among them."""
    inside = {name}
    for view in plan.views:  # in the order of their chains
        if isinstance(view.stage, Chained) and inside & set(view.stage.inputs):
            inside.add(view.name)
    return tuple(v.name for v in plan.views if v.name in inside and not v.inner)


def quarantines(plan: Plan) -> tuple[str, ...]:
    """The views that rows may be set apart for because user code fails on them."""
    found: dict[str, None] = {}
    for view in plan.views:
        what = view.stage.what if isinstance(view.stage, Chained) else None
        if isinstance(what, Processing | Asking) and what.errors == QUARANTINE:
            found.update(dict.fromkeys(reached(plan, view.name)))
    return tuple(found)
