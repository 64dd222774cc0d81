"""Rows that an expression or user code failed on, downstream of the sources: quarantined in ``<view>$errors``, or
counted.

The driver collects them and adds them to the output of the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from millstream.kernels.outcome import Outcome
from millstream.model.dead_letters import ERRORS
from millstream.model.error_policy import QUARANTINE
from millstream.plan.operators.operator import view_of
from millstream.plan.plan import Plan

MENDED = pa.schema([("partition", pa.string()), ("raw", pa.string()), ("times", pa.int64())])


def errors_of(outcome: Outcome, epoch: int, now: int) -> pa.Table:
    """The quarantined rows, as a table of errors."""
    rows = [{"epoch": epoch, "reason": f.reason, "raw": f.record, "seen_at": now} for f in outcome.failures]
    return pa.Table.from_pylist(rows, schema=ERRORS)


@dataclass
class Errors:
    """The rows of an epoch that expressions failed on, and those whose error was retracted, for every view."""

    net: dict[tuple[str, str, str], tuple[int, str]] = field(default_factory=dict)
    """By view, step and row: the net number of new errors, and the reason."""

    def add(self, view: str, step: str, row: str, times: int, reason: str) -> None:
        """Record a failing row that was added (`times` is positive) or removed."""
        before, _ = self.net.get((view, step, row), (0, ""))
        self.net[view, step, row] = (before + times, reason)

    def of(self, view: str, epoch: int, now: int) -> tuple[pa.Table, pa.Table]:
        """The new errors of a view, and the retracted ones."""
        mine = [(step, row, *counted) for (name, step, row), counted in self.net.items() if name == view]
        new = [
            {"epoch": epoch, "reason": reason, "raw": row, "partition": step, "seen_at": now}
            for step, row, times, reason in mine
            for _ in range(times)
        ]
        over = [{"partition": s, "raw": row, "times": -times} for s, row, times, _ in mine if times < 0]
        return pa.Table.from_pylist(new, schema=ERRORS), pa.Table.from_pylist(over, schema=MENDED)

    @property
    def views(self) -> tuple[str, ...]:
        """The views with new or retracted errors."""
        return tuple(dict.fromkeys(view for view, _, _ in self.net))


def reached(plan: Plan, name: str) -> tuple[str, ...]:
    """The visible views downstream of a view's operator, including itself."""
    inside = {name}
    for view in plan.views:  # in topological order
        if inside & set(view.operator.inputs):
            inside.add(view.name)
    return tuple(v.name for v in plan.views if v.name in inside and not v.inner)


def policy(plan: Plan, name: str) -> str:
    """The policy for rows that an expression on the way to a view's operator fails on. Inner views have the policy of
    the view that they are named after.
    """
    owner = view_of(name)
    return next((v.on_error for v in plan.views if v.name == owner), QUARANTINE)


def quarantines(plan: Plan) -> tuple[str, ...]:
    """The views for which rows may be quarantined because an expression or user code fails on them."""
    return tuple(v.name for v in plan.views if not v.inner)
