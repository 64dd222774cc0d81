"""Replay of late records into their view as a separate epoch: which records, over which history, and the resulting
changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from millstream.connect.port import SourceSlice
from millstream.engine.driver.epoch_io import polars
from millstream.errors import UnknownName, Unsupported
from millstream.kernels.outcome import net
from millstream.kernels.windows.late_replay import check, difference
from millstream.plan.plan import Plan, PlannedView
from millstream.runtime.epoch.progress import Progress
from millstream.store.port import EpochStore


def view_of(plan: Plan, name: str) -> PlannedView:
    """Return the view of this name, if its late records can be replayed."""
    found = next((v for v in plan.views if v.name == name and not v.inner), None)
    if found is None:
        raise UnknownName(
            f"the flow `{plan.flow}` has no view `{name}`",
            detail="it has: " + ", ".join(v.name for v in plan.views if not v.inner),
        )
    if not found.kept:
        raise Unsupported(f"`{name}` is a sink: there is no table to take late records into")
    check(found.operator, name)
    if any(plan.reads_clock(f) for f in found.operator.feeds):
        raise Unsupported(
            f"the late records of `{name}` cannot be replayed",
            detail="it uses the time of processing, and reading the records again would give them another one",
            hint=f"they can be read with SELECT * FROM `{name}$late`",
        )
    behind = [v for v in plan.downstream[name] if v != name]
    if behind:
        raise Unsupported(
            f"the late records of `{name}` cannot be replayed",
            detail=f"{', '.join(f'`{v}`' for v in behind)} would not follow: computed from its changes",
            hint=f"they can be read with SELECT * FROM `{name}$late`",
        )
    return found


def standing(progress: Progress, sources: Mapping[str, Any]) -> dict[str, SourceSlice]:
    """Return empty slices at the current offsets of every source."""
    return {s: SourceSlice({p: (o, o) for p, o in progress.offsets.get(s, {}).items()}) for s in sources}


def history(progress: Progress, view: PlannedView, ports: Mapping[str, Any]) -> dict[str, SourceSlice]:
    """Return slices of everything that was ever read from the sources of a view."""
    for source in sorted(view.operator.sources):
        starts = ports[source].start() or {}
        if any(starts.values()):
            raise Unsupported(
                f"the late records of `{view.name}` cannot be replayed: its source `{source}` was trimmed",
                detail="their windows are computed anew from all records, and the oldest are gone",
            )
    return {
        s: SourceSlice({p: (0, o) for p, o in progress.offsets.get(s, {}).items()})
        for s in sorted(view.operator.sources)
    }


def with_replayed(output: Any, view: PlannedView, store: EpochStore) -> Any:
    """Return the output of an epoch, with the changes that turn the current rows of a view into the recomputed ones."""
    if output.replayed is None:
        return output
    new = polars(output.replayed)
    ends = new[view.time_column].unique() if view.time_column is not None and len(new) else None
    old = polars(store.shown(view.name))
    if ends is not None and view.time_column is not None:
        old = old.filter(pl.col(view.time_column).is_in(ends.implode()))
    else:
        old = old.clear()
    retract = view.operator.retracting
    changes = difference(old, new, view.identity or (), retract=retract)
    if not len(changes):
        return output
    before = output.changes.get(view.name)
    together = changes if before is None else pl.concat([polars(before), changes], how="vertical_relaxed")
    stored = net(together, view.identity or ()).to_arrow()
    return replace(
        output,
        changes={**output.changes, view.name: together.to_arrow()},
        stored={**output.stored, view.name: stored},
    )
