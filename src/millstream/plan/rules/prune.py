"""Drops sources that no view reads, and scans that no feed reads (but never a root scan: it accounts for rows)."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.plan import Plan


def prune(plan: Plan) -> Plan:
    """Drop what nothing reads."""
    read = {f.scan for v in plan.views for f in v.operator.feeds}
    used = {f.source for v in plan.views for f in v.operator.feeds}
    return replace(
        plan,
        sources=tuple(s for s in plan.sources if s.name in used),
        scans=tuple(s for s in plan.scans if s.source in used and (s.id in read or not s.ops)),
    )
