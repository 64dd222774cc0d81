"""Ask sources for row positions where an aggregate or a Python operator depends on the order of rows."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.stages import Append, Chained, Plan, Stage

ORDERED = frozenset({"first", "last", "first_of", "last_of", "collect", "user", "sample"})
"""Aggregates whose answer depends on the order of records with equal event time, or tells such records apart."""


def _ordered(stage: Stage) -> bool:
    if isinstance(stage, Chained):
        return False
    if isinstance(stage, Append):
        return stage.ordered or stage.by_place
    return stage.keeps_records or any(m.kind in ORDERED for m in stage.measures)


def order(plan: Plan) -> Plan:
    """Set `positions` on the sources behind stages that go by the order of rows."""
    needing = {f.source for v in plan.views if _ordered(v.stage) for f in v.stage.feeds}
    return replace(plan, sources=tuple(replace(s, positions=s.name in needing) for s in plan.sources))
