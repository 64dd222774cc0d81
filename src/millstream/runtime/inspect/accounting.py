"""Accounts for every record: offered = accepted + rejected; accepted = applied + late + errors + filtered + pending.

All numbers count from the flow's first epoch. `balanced` reports whether they add up. For a source: as many rows were
read as offsets were passed (where an offset is a record: memory and the log). For a view: every good row of its sources
since the view was created was applied, late or filtered. It is None where that is unknown: for a view over exploded or
mapped rows, and for one whose filtered rows were not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from millstream.clock import Micros
from millstream.connect.port import SourcePort
from millstream.runtime.epoch.progress import Progress
from millstream.store.port import EpochRow

Ports = Mapping[str, Mapping[str, SourcePort]]
"""flow -> source -> port, for the flows that run in this process."""

INNER = "~"
"""Part of the names of the inner views of a chain; their records are those of the view at its end."""


class AccountStore(Protocol):
    """What is required of a store."""

    def flows(self) -> list[str]:
        """The flows that have run in this home."""
        ...

    def last(self, flow: str) -> EpochRow | None:
        """The newest epoch of a flow."""
        ...


def account_rows(store: AccountStore, ports: Ports, now: Micros) -> list[dict[str, Any]]:
    """Return one row per source and one per view of every flow."""
    listed: list[dict[str, Any]] = []
    for flow in store.flows():
        row = store.last(flow)
        progress = Progress.from_json(row.progress) if row is not None else Progress()
        waiting = {
            name: port.pending(progress.offsets.get(name, {}), now) for name, port in ports.get(flow, {}).items()
        }
        for source in sorted({*progress.offsets, *waiting}):
            listed.append({"kind": "source", "flow": flow, "name": source, **_source(progress, source, waiting)})
        views = (v for v in {*progress.applied, *progress.joined} if INNER not in v)
        for view in sorted(views):
            listed.append({"kind": "view", "flow": flow, "name": view, **_view(progress, view, waiting)})
    return listed


def _source(progress: Progress, name: str, waiting: Mapping[str, int | None]) -> dict[str, Any]:
    read, skipped, pending = progress.rows.get(name, 0), progress.skipped.get(name, 0), waiting.get(name)
    first, at = progress.first.get(name), progress.offsets.get(name, {})
    passed = read + skipped if first is None else sum(o - first.get(p, 0) for p, o in at.items())
    return {
        "offered": passed + (pending or 0),
        "read": read,
        "errors": progress.errors.get(name, 0),
        "skipped": skipped,
        "pending": pending,
        "balanced": passed == read + skipped,
    }


def _view(progress: Progress, name: str, waiting: Mapping[str, int | None]) -> dict[str, Any]:
    applied, late, filtered = progress.applied.get(name, 0), progress.late.get(name, 0), progress.filtered.get(name)
    sources, missed = progress.feeds.get(name), progress.joined.get(name, {})
    row = {"applied": applied, "late": late, "filtered": filtered}
    if sources is None:
        return {"offered": None, "read": None, **row, "errors": None, "pending": None, "balanced": None}
    good = sum(progress.good(s) - missed.get(s, 0) for s in sources)
    errors = sum(progress.errors.get(s, 0) for s in sources)
    known = [n for n in (waiting.get(s) for s in sources) if n is not None]
    pending = sum(known) if len(known) == len(sources) else None
    return {
        "offered": good + errors + (pending or 0),
        "read": good + errors,
        **row,
        "errors": errors,
        "pending": pending,
        "balanced": None if filtered is None else good == applied + late + filtered,
    }
