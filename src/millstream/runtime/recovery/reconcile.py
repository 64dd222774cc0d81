"""Determines where a flow resumes, from the store, the epoch records, the state and the sources.

The store is the authority. A mismatch either results from a crash between two writes of an epoch, and then the flow
resumes; or it does not, and then the flow stops with an error that names the files (`repair.py` repairs it). The table
of all cases is in docs/guide/recovery.md. Nothing is changed before everything was checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from millstream.clock import Micros
from millstream.connect.port import SourcePort
from millstream.errors import HomeDamaged, HomeTooNew, MillstreamError, RecoveryFailed
from millstream.plan.plan import Plan
from millstream.runtime.epoch.kept_versions import KEPT_VERSIONS, remove_left_overs
from millstream.runtime.epoch.records import EpochRecord, RecordBook
from millstream.runtime.epoch.stored_tables import Tables
from millstream.runtime.state_location import recorded
from millstream.state.durable import write_durably
from millstream.state.manifest import damage, inline_runs, load_version, manifest_entries
from millstream.state.run import missing_file
from millstream.state.storage import Storage
from millstream.state.version import Version
from millstream.store.files import has_store, store_file
from millstream.store.port import EpochRow, EpochStore

HINT = "`millstream repair` says what can be done"
RUN_FORMAT = 1

AHEAD, UNREADABLE, DIFFERS, ELSEWHERE, STATE, SOURCE = "ahead", "unreadable", "differs", "elsewhere", "state", "source"
"""Kinds of problems: records that the store does not know; an unreadable record; the record of the last epoch differs
from what the store committed; the open record does not begin where the store ends; a state file; a source.
"""


@dataclass(frozen=True)
class Standing:
    """The position of a flow: its last committed epoch and the result of that epoch."""

    number: int
    now: Micros
    version: Version
    watermarks: Mapping[str, int]


@dataclass(frozen=True)
class Problem:
    """An inconsistency, and the error that a start raises because of it."""

    kind: str
    error: MillstreamError
    where: str = ""
    """The epoch's number, the state file or the source."""


def reconcile(
    plan: Plan, store: EpochStore, book: RecordBook, state: Storage, ports: Mapping[str, SourcePort]
) -> Standing | None:
    """Return where the flow resumes; None when it has not run yet. Raises if the parts are inconsistent."""
    check(plan, store, book, state, ports)
    epochs = store.epochs(plan.flow, KEPT_VERSIONS + 2)
    remove_left_overs(state, [load_version(row.version, state) for row in epochs])
    if not epochs:
        return None
    last = epochs[0]
    record = book.read(last.number)
    if record is not None and record.state == "open":
        book.close(replace(record, plan=last.plan))  # the plan that has rerun it, not the one that opened it
    known = _steps(plan)
    version = load_version(last.version, state)
    mine = version.only(s for s in version.runs if s in known)
    return Standing(last.number, last.clock["now"], mine, last.clock["watermarks"])


def check(plan: Plan, store: EpochStore, book: RecordBook, state: Storage, ports: Mapping[str, SourcePort]) -> None:
    """Raise the first problem, if any; changes nothing."""
    last = store.last(plan.flow)
    for problem in (*of_records(plan.flow, last, book), *of_state(last, state, _steps(plan))):
        raise problem.error
    for problem in of_sources(plan.flow, last, book, ports):
        raise problem.error


def check_store(home: Path) -> None:
    """Refuse a home whose store is missing although flows have committed epochs to it, or tables were stored in it."""
    if has_store(home):
        return
    for table in Tables(home / "tables").newest():
        raise HomeDamaged(
            f"the store {store_file(home)} is missing", detail=f"the table `{table}` was stored in it", hint=HINT
        )
    state = recorded(home)
    for root in sorted((home / "flows").glob("*")):
        book = RecordBook(root / "epochs")
        committed = book.newest() > 1 or _closed(book, 1)
        if committed or (not book.newest() and state.of(root.name).runs.names()):
            raise HomeDamaged(
                f"the store {store_file(home)} is missing",
                detail=f"the flow `{root.name}` has committed epochs to it",
                hint=HINT,
            )


def of_records(flow: str, last: EpochRow | None, book: RecordBook) -> Iterator[Problem]:
    """Check that the epoch records match the store. Records before its last epoch no longer matter."""
    number, newest = (last.number if last is not None else 0), book.newest()
    done = _closed(book, newest)  # also refuses one of a newer version, whatever else is wrong
    if newest > number + 1 or (newest == number + 1 and done):
        error = RecoveryFailed(
            f"the store knows the flow `{flow}` up to epoch {number}, but there are records up to {newest}",
            detail="the store is older than the epoch records, as after restoring only one of the two",
            hint=HINT,
        )
        yield Problem(AHEAD, error, str(newest))
        return
    for epoch in (number, number + 1):
        try:
            record = book.read(epoch)
        except HomeTooNew:
            raise
        except HomeDamaged as error:
            yield Problem(UNREADABLE, error, str(epoch))
        else:
            if record is not None:
                yield from _of_record(flow, last, record, book)


def _of_record(flow: str, last: EpochRow | None, record: EpochRecord, book: RecordBook) -> Iterator[Problem]:
    number = last.number if last is not None else 0
    if last is not None and record.epoch == number:
        # an open record may come from the previous plan: then this plan has rerun it
        same_plan = record.state == "open" or record.plan == last.plan
        if record.slices_json() != last.slices or not same_plan:
            what = "slice" if same_plan else "plan"
            error: MillstreamError = RecoveryFailed(
                f"epoch {number} of `{flow}` has one {what} in the store and another in its record",
                detail=f"the record is {book.path(number)}",
                hint=HINT,
            )
            yield Problem(DIFFERS, error, str(number))
    if record.epoch == number + 1 and not _continues(record, last):
        error = RecoveryFailed(
            f"the open epoch {record.epoch} of `{flow}` does not begin where epoch {number} ends",
            detail=f"the record {book.path(record.epoch)} belongs to another store",
            hint=HINT,
        )
        yield Problem(ELSEWHERE, error, str(record.epoch))


def of_state(last: EpochRow | None, state: Storage, steps: frozenset[str] | None = None) -> Iterator[Problem]:
    """Check that the files of the last version exist with the right length. Their content is verified when they are
    opened.
    """
    if last is None:
        return
    for entry in inline_runs(last.version):
        if entry.get("format", RUN_FORMAT) > RUN_FORMAT:
            raise HomeTooNew(
                f"the state file {state.place(entry['file'])} has format {entry['format']}, and this Millstream knows "
                f"formats up to {RUN_FORMAT}",
                detail="it was written by a newer version; nothing was touched",
                hint="upgrade: pip install --upgrade millstream",
            )
    wrong = [Problem(STATE, e, m["file"]) for m in manifest_entries(last.version) if (e := damage(state, m))]
    yield from wrong
    if wrong:
        return  # what they name is not known
    version = load_version(last.version, state)
    runs = [r for step, of in sorted(version.runs.items()) for r in of if steps is None or step in steps]
    sizes = state.sizes(r.file for r in runs)
    for run in runs:
        size = sizes.get(run.file)
        if size is None:
            yield Problem(STATE, missing_file(state, run.file), run.file)
        elif size != run.bytes:
            error = HomeDamaged(
                f"the state file {state.place(run.file)} has {size} bytes instead of {run.bytes}", hint=HINT
            )
            yield Problem(STATE, error, run.file)


def of_sources(
    flow: str, last: EpochRow | None, book: RecordBook, ports: Mapping[str, SourcePort]
) -> Iterator[Problem]:
    """Check that every source still has what was read last, and what the open epoch is to read."""
    offsets = _offsets(last)
    record = book.read((last.number if last is not None else 0) + 1)
    for name, port in ports.items():
        at, waiting = offsets.get(name, {}), record.slices.get(name) if record is not None else None
        ends = {**at, **(waiting.end if waiting is not None else {})}
        first, head = port.start(), port.end()
        if first is None and waiting is None:
            continue  # a source without storage, such as memory: rows sent again are assumed to be the same
        trimmed = {p: start for p, start in (first or {}).items() if start > at.get(p, start)}
        behind = {p: end for p, end in ends.items() if head is not None and head.get(p, 0) < end}
        if trimmed:
            p, start = next(iter(trimmed.items()))
            error = RecoveryFailed(
                f"partition {p} of the source `{name}` begins at offset {start}, but `{flow}` has read it only up to "
                f"{at[p]}",
                detail=f"{start - at[p]} records were removed before they were read",
                hint=HINT,
            )
            yield Problem(SOURCE, error, name)
        elif behind and head is not None:
            p, end = next(iter(behind.items()))
            error = RecoveryFailed(
                f"partition {p} of the source `{name}` ends at offset {head.get(p, 0)}, "
                f"but `{flow}` has read it up to {end}",
                detail="the source is older than the views, or has lost records",
                hint=HINT if first is not None else "send the rows again, from the first one on, before the start",
            )
            yield Problem(SOURCE, error, name)


def note_kinds(root: Path, ports: Mapping[str, SourcePort]) -> None:
    """Record the kinds of a flow's sources, for a repair that has neither the flow nor its store."""
    path, kinds = root / "sources" / "kinds.json", {name: port.describe().kind for name, port in ports.items()}
    if kinds != read_kinds(root):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, orjson.dumps(kinds))


def read_kinds(root: Path) -> dict[str, str]:
    """Read what `note_kinds` wrote, as far as possible: files, generator, memory, or the word log and a topic."""
    try:
        return dict(orjson.loads((root / "sources" / "kinds.json").read_bytes()))
    except (OSError, ValueError, TypeError):
        return {}


def _steps(plan: Plan) -> frozenset[str]:
    return frozenset(o.state_step(s) for o in plan.stateful for s in o.states)


def _closed(book: RecordBook, number: int) -> bool:
    """Whether a record exists and reports that its epoch was committed."""
    try:
        record = book.read(number)
    except HomeDamaged:
        return False
    return record is not None and record.state == "closed"


def _offsets(last: EpochRow | None) -> dict[str, dict[int, int]]:
    offsets = last.progress["offsets"] if last is not None else {}
    return {s: {int(p): o for p, o in by.items()} for s, by in offsets.items()}


def _continues(record: EpochRecord, last: EpochRow | None) -> bool:
    """Whether an open record begins where the store ends. A new source or partition may begin anywhere."""
    offsets = _offsets(last)
    return all(
        start == offsets.get(name, {}).get(p, start)
        for name, part in record.slices.items()
        for p, (start, _) in part.ranges.items()
    )
