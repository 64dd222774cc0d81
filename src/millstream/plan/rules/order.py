"""Requests row positions from sources if an aggregate or a Python operator depends on the order of rows."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.plan import Plan


def order(plan: Plan) -> Plan:
    """Set `positions` on the sources of operators that depend on the order of rows."""
    needing = {f.source for v in plan.views if v.operator.needs_positions for f in v.operator.feeds}
    return replace(plan, sources=tuple(replace(s, positions=s.name in needing) for s in plan.sources))
