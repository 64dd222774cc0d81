"""Chooses the flow in which a new view or sink runs.

Views that are created before their flow has read anything share it, and with it one pass over their sources. A view
that is created later and needs the history gets a separate flow, which begins at the declared start and catches up
while the others keep running. With ``start = 'now'`` it joins the running flow at the next epoch instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import TYPE_CHECKING

from millstream.errors import DefinitionError
from millstream.model.connectors import LONGEST_NAME, check_name
from millstream.model.error_policy import FAIL
from millstream.plan.operators.operator import view_of
from millstream.sql.connectors import NOW
from millstream.sql.parse.statement_values import Create, CreateSink, CreateView

if TYPE_CHECKING:
    from millstream.live.definitions import Definitions
    from millstream.live.deployment import Deployment
    from millstream.sql.catalog import Catalog


@dataclass(frozen=True)
class FlowChoice:
    """A flow for a new definition."""

    flow: str
    start: str = ""
    """Where a new flow begins to read."""
    is_new: bool = False
    must_be_unread: bool = False
    """Whether it was chosen because it has read nothing yet: the definition misses nothing."""


def choose_flow(
    deployment: Deployment, catalog: Catalog, definitions: Definitions, entry: Create, settings: Mapping[str, object]
) -> FlowChoice:
    """Choose the flow in which a new view or sink will run. Changes nothing."""
    options = entry.options if isinstance(entry, CreateView) else {}
    flow_name = str(options.get("flow") or settings["flow"] or "")
    start = str(options.get("start") or settings["start"] or "")
    if flow_name:
        check_name(flow_name, "flow")
        flow_name = next((f for f in definitions.flows if f.lower() == flow_name.lower()), flow_name)
    my_sources = catalog.sources_of(entry)
    if isinstance(entry, CreateSink) and entry.view:
        view = definitions.entries.get(entry.view.lower())
        if view is not None and view.flow and not deployment.has_read(definitions, view.flow):
            return FlowChoice(view.flow, must_be_unread=True)
    used = definitions.used_flows()
    for flow in [flow_name] if flow_name else used:
        note = definitions.flows.get(flow)
        if note is None or (not flow_name and _stops_others(deployment, catalog, definitions, flow, options)):
            continue
        theirs = {s for e in deployment.members_of(catalog, definitions, flow) for s in catalog.sources_of(e)}
        fits = note.start == start and bool(theirs & my_sources or flow_name)
        joins_now = start == NOW and theirs >= my_sources
        if joins_now or (fits and not deployment.has_read(definitions, flow)):
            if not _knows(deployment, flow, entry.name):
                return FlowChoice(flow, must_be_unread=not joins_now)
    if flow_name and flow_name in definitions.flows:
        raise DefinitionError(
            f"the flow `{flow_name}` has already read records: a view that joins it sees only new ones",
            hint=f"WITH (flow = '{flow_name}', start = 'now'), or leave out the flow, and the view gets its own",
        )
    alone = not any(
        my_sources & catalog.sources_of(e) for f in used for e in deployment.members_of(catalog, definitions, f)
    )
    name = flow_name or ("_".join(sorted(my_sources)) if my_sources and alone else entry.name)
    return FlowChoice(_unused_name(deployment, definitions, name), start, is_new=True)


def _stops_others(
    deployment: Deployment, catalog: Catalog, definitions: Definitions, flow: str, options: Mapping[str, object]
) -> bool:
    """Whether a view that fails on its first bad row would stop others if it shared their flow."""
    members = deployment.members_of(catalog, definitions, flow)
    all_options = [options, *(e.options for e in members if isinstance(e, CreateView))]
    return any(str(o.get("on_error", "")).lower() == FAIL for o in all_options)


def _knows(deployment: Deployment, flow: str, view: str) -> bool:
    """Whether a flow may still have state of an earlier view of this name."""
    last = deployment.home.store.last(flow)
    return last is not None and any(view_of(step) == view for step in last.version)


def _unused_name(deployment: Deployment, definitions: Definitions, name: str) -> str:
    """Return an unused name for a new flow: this one, or a similar one. The names of flows that this statement drops
    are free.
    """
    home = deployment.home
    there = {*home.store.flows(), *(f.name for f in (home.path / "flows").glob("*"))}
    used = {f.lower() for f in (there - {*definitions.dropped}) | {*definitions.flows, "checkpoint"}}
    others = (f"{name[: LONGEST_NAME - 6]}_{i}" for i in count(2))
    return next(n for n in chain([name], others) if n.lower() not in used and len(n) <= LONGEST_NAME)
