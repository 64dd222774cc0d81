"""Trying definitions beside the others of their flow, before they are taken in.

The flow that the last definition was tried in is kept: the next one is bound beside it, and not all of them anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors import MillstreamError
from millstream.live import sources
from millstream.model.flow import Flow
from millstream.plan.planner import plan
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog
from millstream.sql.parse.statements import Create


@dataclass(frozen=True)
class _Trial:
    """A flow with definitions that work beside each other."""

    binder: Binder
    members: tuple[Create, ...]
    catalog: Catalog
    """What their names meant."""

    def fits(self, flow: str, start: str, catalog: Catalog, members: Sequence[Create]) -> bool:
        """Whether it is this flow, with these members, and all that they read is what it was."""
        known, now = self.catalog, catalog
        return (
            (self.binder.flow.name, self.binder.start) == (flow, start)
            and len(self.members) == len(members)
            and all(a is b for a, b in zip(self.members, members, strict=True))
            and all(now.entries.get(n) is e for n, e in known.entries.items())
            and all(now.schemas.get(n) == s for n, s in known.schemas.items())
            and all(now.functions.get(n) is f for n, f in known.functions.items())
        )


class Trials:
    """Tries definitions, and keeps the flow of the last one that worked."""

    def __init__(self) -> None:
        self._last: _Trial | None = None

    def definition(self, flow: str, start: str, catalog: Catalog, members: Sequence[Create], entry: Create) -> None:
        """Refuse a definition that does not work in a flow, beside the members that are there."""
        last, self._last = self._last, None  # what fails leaves a part of it behind
        whole = True
        if last is not None and last.fits(flow, start, catalog, members):
            binder = last.binder
            binder.renew(catalog)
        else:
            binder = Binder(Flow(flow), catalog, sources.GENERATORS, start=start)
            for other in members:
                try:
                    binder.definition(other)
                except MillstreamError:  # one that has broken since is found when the flow starts
                    whole = False
        binder.definition(entry)
        plan(binder.flow)
        if whole:
            self._last = _Trial(binder, (*members, entry), catalog.copy())
