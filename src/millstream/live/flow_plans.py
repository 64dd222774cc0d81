"""The plans of the flows that SQL has created. Every definition is bound once into its flow, and the flow is planned
once for each added definition: the plan that a statement was checked with is the one that runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from millstream.errors import MillstreamError
from millstream.live import sources
from millstream.model.flow import Flow
from millstream.plan.plan import Plan
from millstream.plan.planner import plan
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog
from millstream.sql.parse.statement_values import Create

Fingerprints = Callable[[str], Mapping[str, str]]
"""The fingerprints of the views of a flow, from the store."""


class BrokenDefinition(Exception):
    """A definition of a flow that no longer works, and why."""

    def __init__(self, entry: Create, error: MillstreamError) -> None:
        super().__init__(entry.name)
        self.entry, self.error = entry, error


@dataclass(frozen=True)
class PlannedFlow:
    """A flow with its definitions, bound and planned, and what the names in them referred to."""

    binder: Binder
    members: tuple[Create, ...]
    catalog: Catalog
    plan: Plan

    def fits(self, flow: str, start: str, catalog: Catalog, members: Sequence[Create]) -> bool:
        """Whether this is the plan of this flow with these members, and everything that they read is unchanged."""
        known, now = self.catalog, catalog
        return (
            (self.binder.flow.name, self.binder.start) == (flow, start)
            and len(self.members) == len(members)
            and all(a is b for a, b in zip(self.members, members, strict=True))
            and all(now.entries.get(n) is e for n, e in known.entries.items())
            and all(now.schemas.get(n) == s for n, s in known.schemas.items())
            and all(now.functions.get(n) is f for n, f in known.functions.items())
        )


class FlowPlans:
    """Binds and plans flows, and caches the plans. Thread-safe."""

    def __init__(self, fingerprints: Fingerprints) -> None:
        self._fingerprints = fingerprints
        self._planned: dict[str, PlannedFlow] = {}
        self._lock = threading.Lock()

    def add(self, flow: str, start: str, catalog: Catalog, members: Sequence[Create], entry: Create) -> Plan:
        """Plan a flow with an added definition. Refuses one that does not work next to the members."""
        with self._lock:
            known = self._planned.pop(flow, None)  # after a failure, a binder keeps a part of what it bound
            complete = True
            if known is not None and known.fits(flow, start, catalog, members):
                binder = known.binder
                binder.renew(catalog)
            else:
                binder = Binder(Flow(flow), catalog, sources.GENERATORS, start=start)
                for member in members:
                    try:
                        binder.definition(member)
                    except MillstreamError:  # one that has broken since is found when the flow starts
                        complete = False
            binder.definition(entry)
            planned = plan(binder.flow)
            if complete:
                self._planned[flow] = PlannedFlow(binder, (*members, entry), catalog.copy(), planned)
            return planned

    def of(self, flow: str, start: str, catalog: Catalog, members: Sequence[Create]) -> Plan:
        """The plan of a flow with these members. Raises BrokenDefinition for a member that no longer works."""
        with self._lock:
            known = self._planned.get(flow)
            if known is None or not known.fits(flow, start, catalog, members):
                known = _planned(flow, start, catalog, members)
            as_before: set[str] = set()
            while older := self._keyed_otherwise(known):
                as_before |= older
                known = _planned(flow, start, catalog, members, as_before)
            self._planned[flow] = known
            return known.plan

    def keep(self, flows: Container[str]) -> None:
        """Drop the plans of all other flows from the cache."""
        with self._lock:
            self._planned = {flow: planned for flow, planned in self._planned.items() if flow in flows}

    def _keyed_otherwise(self, known: PlannedFlow) -> set[str]:
        """The views with state from before their joins extracted keys from OR."""
        keyed = known.binder.keyed_by_or
        if not keyed:
            return set()
        stored = self._fingerprints(known.plan.flow)
        views = {v.name.lower(): v for v in known.plan.views if v.name.lower() in keyed}
        return {n for n, v in views.items() if stored.get(v.name, v.fingerprint) != v.fingerprint}


def check_alone(catalog: Catalog, entry: Create) -> None:
    """Refuse a definition that does not work, whichever flow it will run in."""
    binder = Binder(Flow("trial"), catalog, sources.GENERATORS)
    if binder.definition(entry) is not None:
        plan(binder.flow)


def _planned(
    flow: str, start: str, catalog: Catalog, members: Sequence[Create], as_before: set[str] | None = None
) -> PlannedFlow:
    binder = Binder(Flow(flow), catalog, sources.GENERATORS, start=start, as_before=as_before or set())
    for member in members:
        try:
            binder.definition(member)
        except MillstreamError as error:
            raise BrokenDefinition(member, error) from error
    try:
        planned = plan(binder.flow)
    except MillstreamError:
        for member in members:
            try:
                check_alone(catalog, member)
            except MillstreamError as error:
                raise BrokenDefinition(member, error) from error
        raise
    return PlannedFlow(binder, tuple(members), catalog.copy(), planned)
