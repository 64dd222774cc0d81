"""Ask sources for row positions where an aggregate depends on the order of rows."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.stages import Append, Chained, Plan, Stage

ORDERED = frozenset({"first", "last", "collect", "user"})
"""Aggregates whose answer depends on the order of records with equal event time."""


def _ordered(stage: Stage) -> bool:
    if isinstance(stage, Chained):
        return False
    if isinstance(stage, Append):
        return stage.ordered
    return stage.keeps_records or any(m.kind in ORDERED for m in stage.measures)


def order(plan: Plan) -> Plan:
    """Set `positions` on the sources behind ordered aggregates."""
    needing = {f.source for s in plan.stateful if _ordered(s) for f in s.feeds}
    return replace(plan, sources=tuple(replace(s, positions=s.name in needing) for s in plan.sources))
