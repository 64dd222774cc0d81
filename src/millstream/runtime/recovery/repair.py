"""Repair of a home that no process owns: what is wrong, how it can be repaired, and what that would lose.

`look` changes nothing. `mend` applies the findings as one swap (`swap.py`): all or nothing, and it keeps what it
replaces. The store remains the authority: records are made to match it, and state is copied from a checkpoint if it has
the same file. Otherwise the home is restored to a checkpoint, or a flow is recomputed from the beginning of its
sources.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from millstream import paths
from millstream.clock import SystemClock
from millstream.connect import file_parts
from millstream.connect.sinks import Reach
from millstream.errors import HomeDamaged, HomeTooNew, MillstreamError, RecoveryFailed, UnknownName
from millstream.log.log import Log
from millstream.runtime import state_location
from millstream.runtime.epoch import outbox
from millstream.runtime.epoch.kept_versions import KEPT_VERSIONS
from millstream.runtime.epoch.parts_manifest import PartsManifest, staged_table
from millstream.runtime.epoch.records import RecordBook
from millstream.runtime.epoch.stored_tables import Tables
from millstream.runtime.home_dir import files_named
from millstream.runtime.recovery import checkpoint, file_checks, gap_recovery, reconcile
from millstream.runtime.recovery.checkpoint import crc_of
from millstream.runtime.recovery.repair_actions import (
    Finding,
    RepairContext,
    Restore,
    asides,
    copied,
    deleted,
    message_of,
    rewritten,
    stored,
)
from millstream.runtime.recovery.source_checks import cannot_begin, source_problems, wrong_offsets
from millstream.runtime.recovery.swap import FOLDER, Failpoint, Swap, finish
from millstream.runtime.state_location import StateLocation
from millstream.runtime.supervision.lease import HomeLock
from millstream.state.manifest import damage, load_version, manifest_entries
from millstream.state.storage import Storage
from millstream.store.files import has_store, open_store, store_file
from millstream.store.port import EpochRow


def look(home: Path, *, rebuild: Collection[str] = ()) -> list[Finding]:
    """Find what is wrong with a home, and what `mend` would do. `rebuild` are flows to be recomputed from the
    beginning.
    """
    with files_named(home):
        return _look(home, rebuild)


def _look(home: Path, rebuild: Collection[str]) -> list[Finding]:
    half = [p.parent for p in (home / FOLDER).glob("*/swap.json")]
    if half:
        return [Finding("", f"a repair or a restore was interrupted: {half[0]}", "it is finished first", do=_nothing)]
    if wrong := file_checks.first(home):
        return wrong
    known = {p.name for p in (home / "flows").glob("*")}
    if unknown := set(rebuild) - known:
        raise UnknownName(
            f"there is no flow `{min(unknown)}` in this home",
            detail="there are: " + (", ".join(sorted(known)) or "none"),
        )
    from millstream.store.repair import generations

    rows = _last_rows(home)
    if not isinstance(rows, MillstreamError) and (wrong := _tables(home)):
        return wrong
    if isinstance(rows, MillstreamError):
        findings = [Finding("", message_of(rows), "", back=True)]
    else:
        numbers = (generations(store_file(home)) if rows else None) or {}
        findings = [
            finding
            for flow in sorted({*rows, *known})
            for finding in _flow(home, flow, rows.get(flow, []), numbers, rebuild=flow in rebuild)
        ]
    if not any(f.back for f in findings):
        return findings
    return _gone_back(home, findings, rows if isinstance(rows, dict) else {})


def locked(home: Path) -> HomeLock:
    """Own a home to repair it. A link or a directory in place of its lock is moved away."""
    path = home / "lock"
    if path.is_symlink() or path.is_dir():
        for number in range(1000):
            away = home / f"lock.{number:03d}"
            if not os.path.lexists(away):
                paths.rename(path, away, link_ok=True)
                break
    with files_named(home):
        return HomeLock(path)


def mend(home: Path, findings: Sequence[Finding], *, failpoint: Failpoint = lambda _: None) -> Path | None:
    """Apply the findings; returns the directory that keeps what was replaced, if anything was. The home must be owned,
    and its store closed. The next start completes or discards an interrupted repair.
    """
    if any(f.do is _nothing for f in findings):
        return next(iter(finish(home)), None)
    stuck = [f for f in findings if f.do is None]
    if stuck:
        raise RecoveryFailed(stuck[0].problem, detail=stuck[0].would, hint="nothing was changed")
    for finding in findings:
        if isinstance(finding.do, Restore):
            return checkpoint.restore(home, finding.do.name, failpoint=failpoint)
    if not findings:
        return None
    swap = Swap(home, "; ".join(f.would for f in findings), failpoint=failpoint)
    try:
        work = RepairContext(home, swap)
        for finding in findings:
            assert finding.do is not None
            finding.do(work)
        work.finish()
    except BaseException:
        swap.cancel()
        raise
    return swap.commit()


def _nothing(work: RepairContext) -> None:
    """Do nothing: finishing what was begun is the whole repair."""
    raise AssertionError(work)


def _last_rows(home: Path) -> dict[str, list[EpochRow]] | MillstreamError:
    """Return the last epochs of every flow, newest first, or the error when the store cannot be read."""
    from millstream.store.repair import read_all

    try:
        reconcile.check_store(home)
        if not has_store(home):
            return {}
        read_all(store_file(home))
        store = open_store(home, read_only=True)
    except HomeDamaged as error:
        return error
    try:
        return {flow: store.epochs(flow, KEPT_VERSIONS + 2) for flow in store.flows()}
    except MillstreamError as error:
        return error
    except Exception as error:  # noqa: BLE001 - whatever DuckDB says of a damaged file
        return HomeDamaged(f"the store {store_file(home)} cannot be read", detail=str(error).splitlines()[0])
    finally:
        store.close()


def _tables(home: Path) -> list[Finding]:
    """Find problems of stored tables."""
    from millstream.store.repair import stored_table, table_versions

    path = store_file(home)
    if not path.exists():
        return []
    ahead = Tables(home / "tables").ahead(*table_versions(path))
    return list(file_checks.tables(home, lambda name: stored_table(path, name), ahead))


# ---------------------------------------------------------------- one flow


def _flow(
    home: Path, flow: str, rows: Sequence[EpochRow], numbers: Mapping[str, int], *, rebuild: bool
) -> Iterator[Finding]:
    root, last = paths.flow_folder(home, flow), rows[0] if rows else None
    book, location = RecordBook(root / "epochs"), state_location.recorded(home)
    state = location.of(flow).runs
    if rebuild:
        yield _rebuilt(home, flow, last, "it is recomputed")
        return
    for message in source_problems(home, paths.flow_folder(home, flow), last):
        yield Finding(flow, message, "", back=True)
    for file, message in _broken(last, state):
        donor = _donor(home, flow, file, last, state)
        if donor is None:
            yield Finding(flow, message, "", back=True)
        else:
            put = copied(donor, f"flows/{flow}/state/{file}") if location.in_home else stored(donor, state, file)
            yield Finding(flow, message, f"the same file is taken from {donor}", do=put)
    for problem in reconcile.of_records(flow, last, book):
        yield _of_record(home, flow, last, book, problem)
    yield from _left_overs(flow, rows, location)
    yield from _undelivered(flow, root / "out", last, numbers)
    yield from _short_topics(home, flow, last, numbers)
    yield from _stopped(flow, root / "stopped.json", last)


def _of_record(home: Path, flow: str, last: EpochRow | None, book: RecordBook, problem: reconcile.Problem) -> Finding:
    number = last.number if last is not None else 0
    message, epoch = message_of(problem.error), int(problem.where)
    if problem.kind == reconcile.AHEAD:
        if last is None:
            return Finding(flow, message, "", back=True)
        ahead = [book.path(n) for n in book.numbers() if n > number]
        lost = f"the results of epochs {number + 1} to {epoch} are recomputed, if the sources still have their records"
        return Finding(
            flow,
            message,
            f"the flow resumes after epoch {number}, the last one in the store",
            lost,
            asides(flow, ahead),
        )
    if epoch == number and last is not None:
        return Finding(flow, message, "the record is rewritten from the store", do=rewritten(home, last, book))
    would = f"the record of epoch {epoch}, which was not committed, is removed; the epoch starts over"
    return Finding(flow, message, would, do=asides(flow, [book.path(epoch)]))


def _broken(last: EpochRow | None, state: Storage) -> Iterator[tuple[str, str]]:
    """Find state files of the last version that do not match their checksums, and what is wrong with them."""
    wrong = {p.where: message_of(p.error) for p in reconcile.of_state(last, state)}
    yield from wrong.items()
    if last is None or not wrong.keys().isdisjoint(m["file"] for m in manifest_entries(last.version)):
        return
    for runs in load_version(last.version, state).runs.values():
        for run in runs:
            if run.file not in wrong and zlib.crc32(state.map(run.file)) != run.crc:
                yield run.file, f"the state file {state.place(run.file)} does not match its checksum"


def _donor(home: Path, flow: str, file: str, last: EpochRow | None, state: Storage) -> Path | None:
    """Return the same file in a checkpoint of the home, if there is one."""
    assert last is not None
    size_and_crc = {m["file"]: (m["bytes"], m["crc"]) for m in manifest_entries(last.version)}
    if file not in size_and_crc:
        runs = (r for by in load_version(last.version, state).runs.values() for r in by)
        size_and_crc = {r.file: (r.bytes, r.crc) for r in runs}
    for row in checkpoint.listed(home):
        path = Path(row["folder"]) / "flows" / flow / "state" / file
        if path.exists() and (path.stat().st_size, crc_of(path)) == size_and_crc[file]:
            return path
    return None


def _left_overs(flow: str, rows: Sequence[EpochRow], location: StateLocation) -> Iterator[Finding]:
    state = location.of(flow).runs
    if any(damage(state, m) for r in rows for m in manifest_entries(r.version)):
        return  # what they name is not known
    named: frozenset[str] = frozenset().union(*(load_version(r.version, state).files for r in rows))
    number = rows[0].number if rows else 0
    left = sorted(f for f in state.names() - named if _epoch_of(f) > number)  # an unused merge is normal
    if left:
        problem = f"{len(left)} state files of failed epochs are left over, the first is {state.place(left[0])}"
        folder = paths.flow_folder(location.home, flow) / "state"
        do = asides(None, [folder / f for f in left]) if location.in_home else deleted(state, left)
        yield Finding(flow, problem, "they are removed", do=do, harmless=True)


def _epoch_of(file: str) -> int:
    name = file.rpartition("/")[2].lstrip(".").partition("-")[0]
    return int(name) if name.isdigit() else 0


def _undelivered(flow: str, out: Path, last: EpochRow | None, numbers: Mapping[str, int]) -> Iterator[Finding]:
    """Find changes for sinks that are damaged or missing."""
    lost = "these changes never reach the sink"
    expected = last.progress.get("out", ()) if last is not None else ()
    for path in sorted(out.glob("*.arrow")):
        if not outbox.intact(path):
            problem = f"the changes {path} do not match their checksum"
            yield Finding(flow, problem, "they are removed", lost, _abandon(path, aside=True))
            continue
        entry = f"{_generation(flow, outbox.sink_of(path.name), numbers)}/{path.name}"
        manifest = PartsManifest.of(staged_table(path)) if entry in expected else None
        if manifest is not None and (why := file_parts.lost(manifest.parts, verify=True)):
            problem, would = f"the changes {path} are incomplete: {why}", "the flow resumes without its staged parts"
            yield Finding(flow, problem, would, lost, _abandon(path, aside=True))

    for path in outbox.lost(out, expected, lambda sink: _generation(flow, sink, numbers)):
        problem = f"the changes {path} are missing, and it is not known whether they were delivered"
        yield Finding(flow, problem, "the flow resumes without them", lost, _abandon(path))


def _generation(flow: str, sink: str, numbers: Mapping[str, int]) -> int:
    return max(numbers.get(key, 0) for key in (flow, f"{flow}/{sink}", ""))


def _short_topics(home: Path, flow: str, last: EpochRow | None, numbers: Mapping[str, int]) -> Iterator[Finding]:
    """Find topics that lack what sinks have written to them."""
    reaches = last.progress.get("reach", {}) if last is not None else {}
    log = Log(home / "log", SystemClock())
    try:
        for sink, known in reaches.items():
            if "topic" not in known or known["generation"] != _generation(flow, sink, numbers):
                continue  # it wrote elsewhere, or has been reset since
            reach, topic = Reach.from_json(known), None
            if log.exists(reach.topic):
                topic = log.topic(reach.topic)
            missing = "it is gone" if topic is None else reach.missing_in(topic)
            if missing is None:
                continue
            problem = f"the topic `{reach.topic}` lacks changes that the sink `{sink}` has written to it: {missing}"
            whole = topic is None or topic.id != reach.id or topic.partitions == 1
            would = f"the sink writes the changes {'of the last epoch, and those ' if whole else ''}that follow"
            lost = f"earlier changes stay missing; to have them, put {home / 'log' / reach.topic} back first"
            yield Finding(flow, problem, would, lost, _written_on(flow, sink, again=whole))
    finally:
        log.close()


def _written_on(flow: str, sink: str, *, again: bool) -> Callable[[RepairContext], None]:
    """Let a sink write to its topic as a new producer; `again` is what was delivered of the last epoch."""

    def do(work: RepairContext) -> None:
        out = paths.flow_folder(work.home, flow) / "out"
        for path in out.glob(f"*{outbox.DONE}") if again else ():
            if outbox.sink_of(path.name) == sink and outbox.intact(path):
                copied(path, str(path.with_suffix(".arrow").relative_to(work.home)))(work)
                work.aside(path)
        work.new_generation(f"{flow}/{sink}")

    return do


def _stopped(flow: str, path: Path, last: EpochRow | None) -> Iterator[Finding]:
    """Check the note of a flow that stopped cleanly: it exists until the flow is started again."""
    try:
        if path.exists():
            gap_recovery.read_note(path)
    except HomeDamaged as error:
        data = gap_recovery.note(last.number if last is not None else 0)

        def do(work: RepairContext) -> None:
            work.swap.put(str(path.relative_to(work.home))).write_bytes(data)

        yield Finding(flow, message_of(error), "it is rewritten", do=do)


def _abandon(path: Path, *, aside: bool = False) -> Callable[[RepairContext], None]:
    """Treat changes as delivered."""

    def do(work: RepairContext) -> None:
        if aside:
            work.aside(path)
        work.swap.put(str(outbox.done(path).relative_to(work.home))).write_bytes(b"")

    return do


# ---------------------------------------------------------------- going back


def _gone_back(home: Path, findings: Sequence[Finding], rows: Mapping[str, Sequence[EpochRow]]) -> list[Finding]:
    """Assign an action to the findings that need an earlier state: a checkpoint, or
    recomputation from the beginning.
    """
    newest = _newest_intact(home)
    if newest is not None:
        needs = [f for f in findings if f.back]
        would = f"the whole home is restored to the checkpoint `{newest}` and resumes from there"
        lost = "later results are recomputed, if the sources still have their records"
        if undone := checkpoint.undone(home, newest):
            lost += f"; created or replaced since then, and undone: {', '.join(undone)}"
        return [Finding(f.flow, f.problem, would, lost, Restore(newest), back=True) for f in needs]
    mended: list[Finding] = []
    rebuilt: set[str] = {f.flow for f in findings if f.back and f.flow}
    lost_store = [f for f in findings if f.back and not f.flow]
    if lost_store:
        flows = sorted(p.name for p in (home / "flows").glob("*"))
        mended = [_rebuilt(home, flow, None, lost_store[0].problem, new_store=True) for flow in flows]
        return mended or [Finding("", lost_store[0].problem, "a new one is made", do=RepairContext.new_store)]
    for flow in sorted(rebuilt):
        why = next(f.problem for f in findings if f.flow == flow and f.back)
        last = rows.get(flow, [])
        mended.append(_rebuilt(home, flow, last[0] if last else None, why))
    return mended + [f for f in findings if f.flow not in rebuilt]


def _newest_intact(home: Path) -> str | None:
    """Return the newest intact checkpoint whose flows find in their sources what they resume with."""
    for row in checkpoint.listed(home):
        folder = Path(row["folder"])
        try:
            manifest = checkpoint.verify(folder)
        except (HomeDamaged, HomeTooNew):
            continue
        fits = (wrong_offsets(home, folder / "flows" / f, entry["offsets"]) for f, entry in manifest.flows.items())
        if not any(fits):
            return str(row["checkpoint"])
    return None


def _rebuilt(home: Path, flow: str, last: EpochRow | None, problem: str, *, new_store: bool = False) -> Finding:
    """Recompute the flow from the beginning of its sources, if all of them still have it."""
    reason = cannot_begin(home, flow, last)
    if reason is not None:
        would = f"nothing can be done: there is no intact checkpoint, and {reason}"
        return Finding(flow, problem, would, "restore the home from a copy, or start with a new one")

    def do(work: RepairContext) -> None:
        if new_store:
            work.new_store()
        else:
            from millstream.store.repair import drop_flow

            drop_flow(work.store, flow, last.progress["offsets"] if last is not None else ())
        for part in ("epochs", "state", "out", "stopped.json"):
            work.aside(paths.flow_folder(home, flow) / part)
        if source_problems(home, paths.flow_folder(home, flow), last):
            for ledger in (paths.flow_folder(home, flow) / "sources").glob("*.jsonl"):
                work.aside(ledger)
        work.new_generation(flow)

    return Finding(
        flow, problem, "its views are emptied and recomputed from the beginning of its sources",
        "results whose records are no longer there, and stored late and wrong records, until they are found again", do,
    )  # fmt: skip
