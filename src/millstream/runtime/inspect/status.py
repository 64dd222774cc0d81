"""The status of views and flows: which exist, how fresh they are, and how many records were late or wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from millstream.clock import ALL_READ, BEGINNING, Micros
from millstream.errors import DefinitionError, ViewFailed
from millstream.model.types.duration import Duration
from millstream.runtime.epoch.progress import Progress
from millstream.runtime.epoch.watermarks import SourceStanding
from millstream.runtime.inspect.accounting import Ports, account_rows
from millstream.store.port import EpochRow

ERROR, WARN = "error", "warn"
FAILED_VIEWS = (ERROR, WARN)
"""What a query on a failed view returns: an error, or its last rows with a warning."""


class _Reads(Protocol):
    def views(self) -> list[dict[str, Any]]: ...
    def flows(self) -> list[str]: ...
    def last(self, flow: str) -> EpochRow | None: ...
    def failures(self) -> Mapping[str, str]: ...


class _Names(Protocol):
    def failures(self) -> Mapping[str, str]: ...
    def last(self, flow: str) -> EpochRow | None: ...
    def flow_of_view(self, name: str) -> str | None: ...


def state_of(flow: str, states: Mapping[str, str], failures: Mapping[str, str]) -> str:
    """The state of a flow: that of its run, or how its last run ended."""
    return states.get(flow) or failures.get(flow, "stopped")


def has_failed(state: str) -> bool:
    """Whether a flow in this state has stopped because it failed."""
    return state.startswith(("failed", "crash loop"))


def checked_failed_views(how: str) -> str:
    """Validate how failed views are treated."""
    if how not in FAILED_VIEWS:
        raise DefinitionError(
            f"failed_views is {how!r}",
            detail="'error' refuses a query of a view that has failed, 'warn' answers it with a warning",
            hint="one of: " + ", ".join(FAILED_VIEWS),
        )
    return how


def warnings_for(
    store: _Names, states: Mapping[str, str], tables: Iterable[str], now: Micros, how: str = WARN
) -> tuple[str, ...]:
    """Return the warnings about the rows of some views: which of them have failed, since when, and why. With
    ``how="error"`` a failed view raises ViewFailed. Its quarantined records (``v$errors``) can still be read.
    """
    failures = store.failures()
    broken = {f for f in {*states, *failures} if has_failed(state_of(f, states, failures))}
    if not broken:
        return ()
    warnings = []
    for name, flow in [(t, store.flow_of_view(t)) for t in tables]:
        if flow is None or flow not in broken:
            continue
        why = f"the flow `{flow}` {state_of(flow, states, failures)}"
        last = store.last(flow)
        age = "" if last is None else f"; its rows are {spoken_age(now - last.clock['now'])} old"
        if checked_failed_views(how) == ERROR and "$" not in name:
            raise ViewFailed(
                f"the view `{name}` has failed",
                detail=f"{why}{age}",
                hint=f"fix the cause, then RESUME {flow}; SET failed_views = 'warn' shows the old rows",
            )
        warnings.append(f"the view `{name}` has failed{age}: {why}")
    return tuple(warnings)


def spoken_age(micros: int) -> str:
    """Format an age in one unit.

    >>> spoken_age(4_200_000), spoken_age(7_200_000_000), spoken_age(90_000_000)
    ('4 seconds', '2 hours', '1 minute')
    """
    seconds = max(0, micros) // 1_000_000
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}{'' if seconds // size == 1 else 's'}"
    return f"{seconds} second{'' if seconds == 1 else 's'}"


def view_rows(
    store: _Reads, now: Micros, ports: Ports | None = None, states: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return one row per view. `freshness_seconds` is the time since the last epoch of its flow began. Pending records
    of a source are known only where its port is available.
    """
    listed = []
    rows: dict[str, EpochRow | None] = {}
    failures = store.failures()
    counts = {(r["flow"], r["name"]): r for r in account_rows(store, ports or {}, now) if r["kind"] == "view"}
    for view in store.views():
        flow = view["flow"]
        if flow not in rows:
            rows[flow] = store.last(flow)
        row, counted = rows[flow], counts.get((flow, view["view"]), {})
        listed.append(
            {
                "view": view["view"],
                "flow": flow,
                "rows": view["rows"],
                "epoch": row.number if row else 0,
                "changed_in_epoch": row.progress["changed"].get(view["view"]) if row else None,
                "watermark": instant(min(row.progress["reached"].values(), default=None)) if row else None,
                "freshness_seconds": round(max(0, now - row.clock["now"]) / 1_000_000, 3) if row else None,
                "offered": counted.get("offered"),
                "applied": row.progress["applied"].get(view["view"], 0) if row else 0,
                "late": view["late"],
                "errors": sum(row.progress["errors"].values()) if row else 0,
                "filtered": counted.get("filtered"),
                "pending": counted.get("pending"),
                "state": state_of(flow, states or {}, failures),
            }
        )
    return listed


def flow_rows(store: _Reads, states: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return one row per flow."""
    listed = []
    failures = store.failures()
    for flow in dict.fromkeys([*store.flows(), *sorted(failures), *states]):
        row = store.last(flow)
        progress = row.progress if row else {}
        listed.append(
            {
                "flow": flow,
                "state": state_of(flow, states, failures),
                "epoch": row.number if row else 0,
                "rows": sum(progress.get("rows", {}).values()),
                "errors": sum(progress.get("errors", {}).values()),
                "late": sum(progress.get("late", {}).values()),
                "skipped": sum(progress.get("skipped", {}).values()),
                "watermark": instant(min(row.progress["reached"].values(), default=None)) if row else None,
                "last_epoch_at": instant(row.clock["now"]) if row else None,
            }
        )
    return listed


def watermark_rows(store: _Reads, now: Micros | None) -> list[dict[str, Any]]:
    """Return one row per partition of every source. `offset` is the committed offset of the flow, `holds` reports
    whether the partition holds its flow back, and `since` for how long it has done so without moving. Without `now`,
    everything is as of the last epoch of each flow.
    """
    listed = []
    for flow in store.flows():
        row = store.last(flow)
        if row is not None:
            listed += _partitions(flow, Progress.from_json(row.progress), row.clock["now"] if now is None else now)
    return listed


def _partitions(flow: str, progress: Progress, now: Micros) -> list[dict[str, Any]]:
    marks = progress.watermarks
    looks = [
        SourceStanding(
            name,
            tuple(sorted(at)) or (0,),
            finished=progress.reached.get(name, 0) >= ALL_READ,
            **marks.rules.get(name, {}),
        )
        for name, at in ((n, progress.offsets.get(n, {})) for n in progress.reached)
    ]
    holder, since = marks.holder(looks, now), _since(progress, looks, now)
    rows = []
    for source in looks:
        times, heard = marks.newest.get(source.name, {}), marks.active.get(source.name, {})
        late, over = source.lateness if source.timed else None, source.finished or not source.timed
        for partition in source.partitions:
            newest, holds = times.get(partition), holder == (source.name, partition)
            rows.append(
                {
                    "flow": flow,
                    "source": source.name,
                    "partition": partition,
                    "offset": progress.offsets.get(source.name, {}).get(partition),
                    "newest": instant(newest),
                    "watermark": None if newest is None or over else instant(newest - (late or 0)),
                    "lateness": None if late is None else str(Duration(late)),
                    "heard_at": instant(heard.get(partition)),
                    "idle": not source.finished and marks.is_idle(source, partition, now),
                    "ended": source.finished,
                    "holds": holds,
                    "since": instant(since) if holds else None,
                }
            )
    return rows


def _since(progress: Progress, looks: list[SourceStanding], now: Micros) -> int | None:
    """Since when the flow has been held at its position: by the partition of the last epoch, or by another one since
    that one became idle.
    """
    marks, holds = progress.watermarks, progress.watermarks.held
    if not holds or marks.holder(looks, now) == (holds["source"], holds["partition"]):
        return holds.get("since")
    idle = next((s.idle for s in looks if s.name == holds["source"]), None)
    heard = marks.active.get(holds["source"], {}).get(holds["partition"], marks.since.get(holds["source"], now))
    return min(now, heard + (idle or 0))


def instant(micros: int | None) -> datetime | None:
    """Convert an instant to a datetime; None before the first event and when everything was read."""
    if micros is None or micros <= BEGINNING or micros >= ALL_READ:
        return None
    try:
        return datetime.fromtimestamp(micros / 1_000_000, UTC)
    except (OverflowError, ValueError):
        return None
