"""The planner: lowers a flow, then applies RULES in order. Each rule is one file, plan in and plan out.

`runtime/` hands the finished plan to the engine.
"""

from __future__ import annotations

from millstream.errors import DefinitionError
from millstream.model.flow import Flow
from millstream.plan.lowering.lower import lower
from millstream.plan.plan import Plan
from millstream.plan.rules.first_rows import first_rows
from millstream.plan.rules.identify import identify
from millstream.plan.rules.order import order
from millstream.plan.rules.prune import prune

RULES = (
    prune,  # drops sources and scans that no view reads
    order,  # requests row positions where a result depends on order
    identify,  # adds fingerprints of operators and of the plan
    first_rows,  # tells joins which pairs a top-N can use
)


def plan(flow: Flow) -> Plan:
    """Build the plan of a flow."""
    if not flow.views:
        raise DefinitionError(
            f"the flow `{flow.name}` has no view and no sink, so there is nothing to compute",
            hint='end a stream with .view("some_name")',
        )
    planned = lower(flow)
    for rule in RULES:
        planned = rule(planned)
    return planned
