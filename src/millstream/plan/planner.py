"""The planner: lower a flow, then apply RULES in order. Each rule is one file, plan in and plan out."""

from __future__ import annotations

from millstream.errors import DefinitionError
from millstream.model.flow import Flow
from millstream.plan.lowering.lower import lower
from millstream.plan.rules.identify import identify
from millstream.plan.rules.order import order
from millstream.plan.rules.prune import prune
from millstream.plan.stages import Plan

RULES = (
    prune,  # sources and scans that no view reads
    order,  # rows carry their position where an aggregate depends on order
    identify,  # fingerprints of stages, and of the plan
)


def plan(flow: Flow) -> Plan:
    """The plan of a flow."""
    if not flow.views:
        raise DefinitionError(
            f"the flow `{flow.name}` has no view and no sink, so there is nothing to compute",
            hint='end a stream with .view("some_name")',
        )
    planned = lower(flow)
    for rule in RULES:
        planned = rule(planned)
    return planned
