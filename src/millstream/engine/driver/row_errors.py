"""Rows that an expression or user code failed on, behind the sources: set apart in ``<view>$errors``, or counted."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from millstream.kernels.outcome import Outcome
from millstream.model.dead_letters import ERRORS
from millstream.model.error_policy import QUARANTINE
from millstream.plan.operators.operator import view_of
from millstream.plan.stages import Plan

MENDED = pa.schema([("partition", pa.string()), ("raw", pa.string()), ("times", pa.int64())])


def errors_of(outcome: Outcome, epoch: int, now: int) -> pa.Table:
    """What was set apart, as a table of errors."""
    rows = [{"epoch": epoch, "reason": f.reason, "raw": f.record, "seen_at": now} for f in outcome.failures]
    return pa.Table.from_pylist(rows, schema=ERRORS)


@dataclass
class Errors:
    """The rows of an epoch that expressions failed on, and those whose error is over, for every view."""

    found: dict[tuple[str, str, str], tuple[int, str]] = field(default_factory=dict)
    """By view, step and row: how many errors more there are than before, and the reason."""

    def add(self, view: str, step: str, row: str, times: int, reason: str) -> None:
        """A row that fails has come (`times` is positive) or gone."""
        before, _ = self.found.get((view, step, row), (0, ""))
        self.found[view, step, row] = (before + times, reason)

    def of(self, view: str, epoch: int, now: int) -> tuple[pa.Table, pa.Table]:
        """The errors of a view that are new, and those that are over."""
        mine = [(step, row, *told) for (name, step, row), told in self.found.items() if name == view]
        new = [
            {"epoch": epoch, "reason": reason, "raw": row, "partition": step, "seen_at": now}
            for step, row, times, reason in mine
            for _ in range(times)
        ]
        over = [{"partition": s, "raw": row, "times": -times} for s, row, times, _ in mine if times < 0]
        return pa.Table.from_pylist(new, schema=ERRORS), pa.Table.from_pylist(over, schema=MENDED)

    @property
    def views(self) -> tuple[str, ...]:
        """The views with errors that came or went."""
        return tuple(dict.fromkeys(view for view, _, _ in self.found))


def reached(plan: Plan, name: str) -> tuple[str, ...]:
    """The views that people see which get something of a view's stage, itself among them."""
    inside = {name}
    for view in plan.views:  # in the order of their chains
        if inside & set(view.operator.inputs):
            inside.add(view.name)
    return tuple(v.name for v in plan.views if v.name in inside and not v.inner)


def policy(plan: Plan, name: str) -> str:
    """What is done about rows that an expression on the way to a view's stage fails on. Inner views have the policy of
    the view that they are named after.
    """
    owner = view_of(name)
    return next((v.on_error for v in plan.views if v.name == owner), QUARANTINE)


def quarantines(plan: Plan) -> tuple[str, ...]:
    """The views that rows may be set apart for because an expression or user code fails on them."""
    return tuple(v.name for v in plan.views if not v.inner)
