"""Ask sources for row positions where an aggregate depends on the order of rows."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.stages import Plan

ORDERED = frozenset({"first", "last", "collect", "user"})
"""Aggregates whose answer depends on the order of records with equal event time."""


def order(plan: Plan) -> Plan:
    """Set `positions` on the sources behind ordered aggregates."""
    needing = {f.source for a in plan.aggregations if any(m.kind in ORDERED for m in a.measures) for f in a.feeds}
    return replace(plan, sources=tuple(replace(s, positions=s.name in needing) for s in plan.sources))
