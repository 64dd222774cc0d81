"""What a person asks first: which views are there, how fresh are they, how much was late or wrong."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from millstream.clock import ALL_READ, BEGINNING
from millstream.store.port import EpochRow


class _Reads(Protocol):
    def views(self) -> list[dict[str, Any]]: ...
    def flows(self) -> list[str]: ...
    def last(self, flow: str) -> EpochRow | None: ...


def view_rows(store: _Reads, now: int) -> list[dict[str, Any]]:
    """One row per view. `freshness_seconds` is how long ago the last epoch of its flow began."""
    listed = []
    rows: dict[str, EpochRow | None] = {}
    for view in store.views():
        flow = view["flow"]
        if flow not in rows:
            rows[flow] = store.last(flow)
        row = rows[flow]
        listed.append(
            {
                "view": view["view"],
                "flow": flow,
                "rows": view["rows"],
                "epoch": row.number if row else 0,
                "changed_in_epoch": row.progress["changed"].get(view["view"]) if row else None,
                "watermark": instant(min(row.progress["reached"].values())) if row else None,
                "freshness_seconds": round(max(0, now - row.clock["now"]) / 1_000_000, 3) if row else None,
                "applied": row.progress["applied"].get(view["view"], 0) if row else 0,
                "late": view["late"],
                "errors": sum(row.progress["errors"].values()) if row else 0,
            }
        )
    return listed


def flow_rows(store: _Reads, states: Mapping[str, str]) -> list[dict[str, Any]]:
    """One row per flow."""
    listed = []
    for flow in store.flows():
        row = store.last(flow)
        progress = row.progress if row else {}
        listed.append(
            {
                "flow": flow,
                "state": states.get(flow, "stopped"),
                "epoch": row.number if row else 0,
                "rows": sum(progress.get("rows", {}).values()),
                "errors": sum(progress.get("errors", {}).values()),
                "late": sum(progress.get("late", {}).values()),
                "watermark": instant(min(row.progress["reached"].values())) if row else None,
                "last_epoch_at": instant(row.clock["now"]) if row else None,
            }
        )
    return listed


def instant(micros: int) -> datetime | None:
    """An instant as a datetime; None before the first event and when all was read."""
    if micros <= BEGINNING or micros >= ALL_READ:
        return None
    try:
        return datetime.fromtimestamp(micros / 1_000_000, UTC)
    except (OverflowError, ValueError):
        return None
