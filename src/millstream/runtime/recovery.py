"""Where a flow goes on when it starts: what store, epoch records, state and sources say, put together.

The store is the authority. What does not fit it is either explained by a crash between two writes of an epoch, and then
the flow goes on, or it is not, and then the flow stops with an error that names the files (`millstream repair` helps).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from millstream.connect.port import SourcePort
from millstream.errors import HomeDamaged, RecoveryFailed
from millstream.kernels.stage import records_step
from millstream.plan.stages import Plan
from millstream.runtime.records import RecordBook
from millstream.state.version import Version
from millstream.store.port import Store


@dataclass(frozen=True)
class Standing:
    """Where a flow stands: its last committed epoch, and what that left."""

    number: int
    now: int
    version: Version
    watermarks: Mapping[str, int]


def reconcile(
    plan: Plan, store: Store, book: RecordBook, state: Path, ports: Mapping[str, SourcePort]
) -> Standing | None:
    """Where the flow goes on; None when it has not run yet. Refuses what cannot be put together."""
    del ports
    last = store.last(plan.flow)
    newest = book.newest()
    number = last.number if last is not None else 0
    if newest > number + 1:
        raise RecoveryFailed(
            f"the store knows the flow `{plan.flow}` up to epoch {number}, but there are records up to {newest}",
            detail="the store is older than the state beside it, as after restoring only one of them",
            hint="restore the whole home from one copy",
        )
    if last is None:
        return None
    record = book.read(number)
    if record is not None and record.slices_json() != last.slices:
        raise RecoveryFailed(
            f"epoch {number} of `{plan.flow}` has one slice in the store and another in its record",
            hint="restore the whole home from one copy",
        )
    if record is not None and record.state == "open":
        book.close(record)
    version = Version.from_json(last.version)
    missing = [f for f in sorted(version.files) if not (state / f).exists()]
    if missing:
        raise HomeDamaged(
            f"the state file {state / missing[0]} is missing",
            hint="restore the home from a copy; docs/guide/operations.md says how",
        )
    known = {step for s in plan.stateful for step in (s.step, records_step(s))}
    kept = Version({s: runs for s, runs in version.runs.items() if s in known})
    return Standing(number, last.clock["now"], kept, last.clock["watermarks"])
