"""Warnings about a new view: state that grows without bound, and an ORDER BY without effect."""

from __future__ import annotations

from dataclasses import replace

from millstream.plan.explain.operator_node import growing_states
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.operators.operator import view_of
from millstream.plan.operators.relations.join import Join
from millstream.plan.plan import Plan
from millstream.sql.parse.statement_values import Create, CreateView

BOUND_JOIN = "a comparison of event times in ON bounds it, or WITH (state_ttl = '1 day')"
BOUND = "a window in GROUP BY bounds it, e.g. TUMBLE({}, INTERVAL '1' HOUR)"
NO_BOUND = "only a window over an event time bounds it, and no source has one: WATERMARK FOR ts AS ts"


def notes(entry: Create, planned: Plan | None) -> str:
    """Return the warnings about a definition, one per line; `planned` is the flow that it runs in, if it has one."""
    return ("" if planned is None else _about_state(with_upstream(planned, entry.name))) + _about_order(entry)


def _about_state(planned: Plan) -> str:
    states = growing_states(planned)
    by_key = next((text for o, text in states if isinstance(o, Aggregation) and o.window.is_global and o.keys), None)
    if by_key is not None:
        times = [s.options.event_time for s in planned.sources if s.options.event_time is not None]
        return f"\nnote: its state is {by_key}; {BOUND.format(times[0]) if times else NO_BOUND}"
    join = next((o for o, _ in states if isinstance(o, Join)), None)
    if join is None:
        return ""
    growing = [name for name, side in zip(join.side_names, join.sides, strict=True) if not side.bounded]
    rows = "all rows" if len(growing) == len(join.sides) else f"all rows of its {growing[0]} side"
    return f"\nnote: the join keeps {rows} indefinitely; {BOUND_JOIN}"


def _about_order(entry: Create) -> str:
    query = entry.query if isinstance(entry, CreateView) else None
    unlimited = query is not None and query.args.get("order") is not None and query.args.get("limit") is None
    return "\nnote: a view has no order; its ORDER BY is ignored; order the rows in your query" if unlimited else ""


def with_upstream(planned: Plan, view: str) -> Plan:
    """Restrict a plan to one view and the views of the same flow that it is computed from."""
    names = [v.name for v in planned.views if view_of(v.name).lower() == view.lower()]
    for name in names:  # grows during the iteration
        names += [n for n in planned.view(name).operator.inputs if n not in names]
    return _restricted(planned, names) if names else planned


def _restricted(planned: Plan, names: list[str]) -> Plan:
    views = tuple(v for v in planned.views if v.name in names)
    used = {s for v in views for s in v.operator.sources}
    return replace(
        planned,
        views=views,
        sources=tuple(s for s in planned.sources if s.name in used),
        scans=tuple(s for s in planned.scans if s.source in used),
    )
