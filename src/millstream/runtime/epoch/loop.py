"""The epoch loop, one thread per flow. An epoch follows the path of a record (`FlowLoop._epoch`):

  head     the end of every source
  slice    the part that this epoch reads
  record   ``epochs/n.json`` is opened with slice, clock, plan and token, and fsynced
  engine   runs the epoch; runs of state are written and fsynced
  outbox   the changes for sinks are staged (`outbox.py`)
  store    commits views, errors, late rows and the epoch's row in one transaction
  sinks    receive their staged changes
  record   ``epochs/n.json`` is closed

After a crash between any two steps, the store is the authority: `recovery/reconcile.py` resumes from there. A flow that
may lose records (``at_most_once``) writes no epoch records: after a failure it resumes without its state
(`recovery/gap_recovery.py`). docs/life-of-a-record.md walks through all crashes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.clock import BEGINNING, Clock, Micros
from millstream.connect.port import Offsets, SourcePort, SourceSlice
from millstream.engine.driver.epoch_io import EpochInput, EpochOutput, OperatorLoad, Replay
from millstream.model.guarantees import AT_MOST_ONCE
from millstream.plan.plan import Plan
from millstream.runtime.closing import Closes, closed
from millstream.runtime.engine_port import EnginePort, TapPort
from millstream.runtime.epoch import late_replay
from millstream.runtime.epoch.compactor import Compactor
from millstream.runtime.epoch.epoch_input import input_of
from millstream.runtime.epoch.kept_versions import Upkeep
from millstream.runtime.epoch.memory_limit import bounded, usual_limit
from millstream.runtime.epoch.outbox import Outbox
from millstream.runtime.epoch.part_times import PartTimes
from millstream.runtime.epoch.progress import Progress, count
from millstream.runtime.epoch.records import FAILED, EpochRecord, RecordBook
from millstream.runtime.epoch.stored_tables import Tables
from millstream.runtime.epoch.timers import EpochClock, Timers
from millstream.runtime.epoch.watermarks import SourceStanding, moved, standings
from millstream.runtime.home_dir import files_named
from millstream.runtime.recovery import gap_recovery
from millstream.runtime.recovery.gap_recovery import StopNote
from millstream.runtime.recovery.reconcile import reconcile
from millstream.state.manifest import save_version
from millstream.state.version import Version
from millstream.store.port import EpochCommit, EpochRow, EpochStore

FIRST_ROWS = 1_000_000
"""The most that the first epoch after a start reads from a source: placement does not know the selectivity yet."""

HOLD_EVERY = 20
"""The number of epochs between two updates of the holds on topics, and the number of epochs that a flow may go back."""

Failpoint = Callable[[str], None]
"""Called with the name of each step of an epoch; a test may raise there to crash."""


@dataclass(frozen=True)
class EpochReport:
    """The report of a committed epoch."""

    number: int
    rows: int
    seconds: float
    changes: Mapping[str, int]
    late: int
    errors: int
    watermark: Micros
    now: Micros
    output: Any
    """The engine's output, for tests that expect changes."""
    loads: Mapping[str, OperatorLoad] = field(default_factory=dict)
    """view -> how evenly the rows of its operator were spread over shards, if it ran on the executors."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The seconds of each part of the epoch (see `part_times.py`)."""


class FlowLoop:
    """Runs the epochs of one flow. Not thread-safe: one thread calls `step`."""

    def __init__(
        self,
        engine: EnginePort,
        ports: Mapping[str, SourcePort],
        store: EpochStore,
        root: Path,
        clock: Clock,
        token: int,
        *,
        progress: Progress,
        tables: Tables,
        outbox: Outbox,
        taps: Sequence[TapPort] = (),
        failpoint: Failpoint = lambda _: None,
        check_owner: Callable[[], None] = lambda: None,
        pinned: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        self.engine, self.ports, self.store, self.clock = engine, ports, store, clock
        self.plan: Plan = engine.plan
        self.token = token
        self._home = root.parent.parent
        self.book = RecordBook(root / "epochs")
        self.outbox = outbox
        self.progress = progress
        self.number = 0
        self.now: Micros = BEGINNING
        """The processing time of the last epoch. It never goes back, whatever the system clock does."""
        self.version = Version()
        self.watermarks: dict[str, int] = {s.name: BEGINNING for s in self.plan.sources}
        self._tables = tables
        self._tables_seen: dict[str, int] = {}
        self._taps = taps
        self._past: deque[dict[str, dict[int, int]]] = deque(maxlen=HOLD_EVERY)
        self._fail = failpoint
        self._check_owner = check_owner
        """Called before an epoch writes anything; raises when this process no longer owns the home."""
        self._upkeep = Upkeep(engine.cache.storage, pinned=pinned)
        self._fresh = True
        self._hot: Mapping[str, Mapping[int, int]] = {}
        """The hot keys of joins, as the last epoch found them."""
        self._timers = Timers(self.plan, engine.cache)
        self._compactor = Compactor(engine.cache, self.plan.stateful, token, engine.merger)
        standing = reconcile(self.plan, store, self.book, engine.cache.storage, ports)
        if standing is not None:
            self.number, self.now, self.version = standing.number, standing.now, standing.version
            self.watermarks.update({n: w for n, w in standing.watermarks.items() if n in self.watermarks})
        self._upkeep.tidy(self.version)
        outbox.resume(progress.reach)
        outbox.deliver(self.number, progress.out)
        self._records = self.plan.guarantee != AT_MOST_ONCE
        self._stop_note = StopNote(root / "stopped.json")
        self._whole = True
        """Whether no epoch is half done."""
        if not self._records and self.number and not self._stop_note.was_clean(self.number):
            self._leave_gap()
        for name, port in ports.items():
            if port.describe().rests:
                progress.watermarks.rested(name, clock.now())

    # ------------------------------------------------------------ one epoch

    def step(self) -> EpochReport | None:
        """Run the next epoch; None when there is nothing to do."""
        self._check_owner()
        with files_named(self._home):
            return self._epoch(self._unfinished())

    def _epoch(self, record: EpochRecord | None) -> EpochReport | None:
        """Run one epoch, from the heads of the sources to its closed record. `record` is the open record of an epoch
        that was begun earlier.
        """
        times = PartTimes()
        if record is None:
            now = max(self.clock.now(), self.now)
            heads = self._heads(now)
            slices = self._slices(heads)
            clock = self._clock_of(now, slices)
            if all(s.empty for s in slices.values()) and not self._is_due(clock):
                return None
            record = self._record(slices, clock)
            times.end("slice")
            self._open(record)
            times.end("open")
        self._whole = False
        record = replace(record, plan=self.plan.id, token=self.token)
        output = self._run_engine(record)
        times.end_engine(output.seconds)
        outgoing = self._put_down(record, output)
        times.end("stage")
        progress = self._advanced(record, output, outgoing)
        self._commit(record, output, progress)
        times.end("commit")
        self._deliver(record, output)
        times.end("deliver")
        self._close_record(replace(record, seconds=times.seconds))
        self._become_present(record, output.version, progress)
        self._hot = output.hot
        times.end("tidy")
        return _report(record, output, times)

    def _unfinished(self) -> EpochRecord | None:
        """Return the open record of an unfinished epoch, restricted to the current sources of the flow."""
        record = self.book.read(self.number + 1) if self._records else None
        if record is None or set(record.slices) != set(self.ports):
            return None
        return self._reopened(record) if record.state == FAILED else record

    def _reopened(self, record: EpochRecord) -> EpochRecord:
        """Reopen an epoch whose work has failed, with the current stored tables: a row that was corrected must not fail
        permanently. Nothing of the epoch has left the engine, so it may see different rows.
        """
        reopened = replace(record, tables=self._newest_tables(self.plan.tables), state="open")
        self._open(reopened)
        return reopened

    def _heads(self, now: Micros) -> dict[str, Offsets]:
        for tap in self._taps:
            tap.check()
        return {name: port.head(now) for name, port in self.ports.items()}

    def _slices(self, heads: Mapping[str, Offsets]) -> dict[str, SourceSlice]:
        """Return the next slice of every source, up to its head and the maximum number of rows per epoch."""
        slices = {}
        for name, port in self.ports.items():
            most = self.plan.source(name).options.max_rows
            if self._fresh:
                most = min(most or FIRST_ROWS, FIRST_ROWS)
            slices[name] = port.admit(self.progress.offsets.get(name, {}), heads[name], most)
        return slices

    def _clock_of(self, now: Micros, slices: Mapping[str, SourceSlice]) -> EpochClock:
        """Return the clock of an epoch that reads these slices."""
        sources = self._standings(self.progress, slices)
        watermarks = self.progress.watermarks
        return EpochClock(now, watermarks.of(sources, now), watermarks.of_shares(sources, now, self.plan.fractions))

    def _record(self, slices: Mapping[str, SourceSlice], clock: EpochClock) -> EpochRecord:
        return EpochRecord(
            epoch=self.number + 1,
            plan=self.plan.id,
            token=self.token,
            slices=slices,
            now=clock.now,
            watermarks=clock.watermarks,
            before=dict(self.watermarks),
            tables=self._newest_tables(self.plan.tables),
            fractions=clock.fractions,
            since=self.now,
            hot=self._hot,
        )

    def _open(self, record: EpochRecord) -> None:
        self._fail("before open")
        if self._records:
            self.book.open(record)

    def _run_engine(self, record: EpochRecord) -> EpochOutput:
        with self._dropped_if_replay(record):
            epoch_input = replace(self.epoch_input(record), parts=self.outbox.parts_writers())
        self._fail("before work")
        try:
            with bounded(self.plan.flow, usual_limit(self._home)), self._dropped_if_replay(record):
                output: EpochOutput = self.engine.run(self.version, epoch_input)
        except Exception:
            if self._records and self.plan.watched and record.replay is None:
                self.book.open(replace(record, state=FAILED))
            raise
        self._tables_seen = {name: v for name, v in record.tables.items() if name in self.plan.watched}
        if record.replay is not None:
            with self._dropped_if_replay(record):
                output = late_replay.with_replayed(output, late_replay.view_of(self.plan, record.replay), self.store)
        return output

    @contextmanager
    def _dropped_if_replay(self, record: EpochRecord) -> Iterator[None]:
        """Drop the record of a replay that fails: it was requested once, and must not block the flow. None of its
        output has left the engine.
        """
        try:
            yield
        except Exception:
            if self._records and record.replay is not None:
                self.book.drop(record)
            raise

    def _put_down(self, record: EpochRecord, output: EpochOutput) -> list[str]:
        """Stage the changes for sinks, which the commit makes deliverable; returns their files."""
        self._fail("before sinks")
        self._check_owner()
        return self.outbox.before_commit(record.epoch, output.changes, record.digest, output.parts)

    def _commit(self, record: EpochRecord, output: EpochOutput, progress: Progress) -> None:
        row, output.version = self._row(record, output.version, progress)
        self._fail("before commit")
        self.store.commit(
            EpochCommit(
                flow=self.plan.flow,
                token=self.token,
                row=row,
                changes=self._for_store(output.stored),
                errors=output.errors,
                mended=output.mended,
                late=output.late,
                panes=output.panes,
                replayed=record.replay,
                watermark=_least(record),
                upsert=bool(progress.skipped),
            )
        )
        self._fail("after commit")

    def _row(self, record: EpochRecord, version: Version, progress: Progress) -> tuple[EpochRow, Version]:
        """Build the row of an epoch for the store, and write the manifests that it names."""
        storage = self.engine.cache.storage
        data, version = save_version(version, storage, f"{record.epoch:012d}-{self.token}")
        slices, clock = record.slices_json(), record.clock
        return EpochRow(record.epoch, record.plan, slices, clock, data, progress.to_json()), version

    def _for_store(self, stored: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return the changes of views; sinks have no table in the store."""
        return {v.name: stored[v.name] for v in self.plan.views if v.kept and v.name in stored}

    def _deliver(self, record: EpochRecord, output: EpochOutput) -> None:
        self.outbox.after_commit(record.epoch, output.changes, output.parts)

    def _close_record(self, record: EpochRecord) -> None:
        self._fail("before close")
        if self._records:
            self.book.close(record)
        self._fail("after close")

    def _become_present(self, record: EpochRecord, version: Version, progress: Progress) -> None:
        """Make a committed epoch the current one, and remove what no retained version needs any more."""
        before = self.version
        self._fresh, self._whole = False, True
        self.number, self.progress, self.watermarks = record.epoch, progress, dict(record.watermarks)
        self.now = record.now
        self.version = self._compactor.between(version, record.epoch, _least(record))
        self._hold(record)
        gone = self._upkeep.after(
            record.epoch, [before], self.version, committed=version, merging=self._compactor.merging
        )
        self.engine.cache.forget(gone)

    # ------------------------------------------------------------ input and progress

    def epoch_input(self, record: EpochRecord) -> EpochInput:
        """Build the engine's input for an epoch whose record is open."""
        self._tables.check(record.tables)
        return replace(
            input_of(record, self._tables),
            attempt=self.token,
            replay=self._replay(record),
            fractions=self._fractions(record),
            newest=self.progress.watermarks.newest_counted(self.plan),
        )

    def _fractions(self, record: EpochRecord) -> dict[str, dict[float, int]]:
        """Return the watermarks for the fractions that triggers wait for."""
        if not self.plan.fractions:
            return {}
        return {
            name: {f: record.fractions.get(name, {}).get(repr(f), mark) for f in self.plan.fractions}
            for name, mark in record.watermarks.items()
        }

    def _replay(self, record: EpochRecord) -> Replay | None:
        if record.replay is None:
            return None
        view = late_replay.view_of(self.plan, record.replay)
        history = late_replay.history(self.progress, view, self.ports)
        return Replay(record.replay, self.store.late_times(record.replay), history)

    def _advanced(self, record: EpochRecord, output: EpochOutput, outgoing: list[str]) -> Progress:
        """Return the progress after an epoch."""
        progress = self.progress.copy()
        for name, part in record.slices.items():
            progress.offsets.setdefault(name, {}).update(part.end)
        for name, tally in output.tallies.items():
            heard = moved(record.slices[name])
            progress.watermarks.seen(name, tally.newest, record.now, heard=heard, disorder=tally.disorder)
            count(progress.rows, name, tally.rows)
            count(progress.errors, name, tally.bad + tally.future)
        progress.watermarks.last.update(record.watermarks)
        progress.watermarks.shares = {s: dict(by) for s, by in record.fractions.items()}
        for view, applied in output.applied.items():
            count(progress.applied, view, applied)
        for view, filtered in output.filtered.items():
            count(progress.filtered, view, filtered)
        for view, table in output.late.items():
            count(progress.late, view, table.num_rows)
        for view, failed in output.failed.items():
            count(progress.errors, view, failed)
        progress.changed.update({view: record.epoch for view in output.changed})
        progress.reached = progress.watermarks.reach(self._standings(progress), record.now)
        progress.out, progress.reach = outgoing, self.outbox.reach()
        return progress

    def _standings(self, progress: Progress, slices: Mapping[str, SourceSlice] | None = None) -> list[SourceStanding]:
        return standings(self.plan.sources, self.ports, progress.offsets, slices or {})

    def _newest_tables(self, names: Container[str]) -> dict[str, int]:
        """Return the newest versions of some stored tables."""
        return {name: version for name, version in self._tables.newest().items() if name in names}

    def _is_due(self, clock: EpochClock) -> bool:
        """Whether an epoch without records is due: a followed stored table has changed, or time has passed."""
        if self.plan.watched and self._newest_tables(self.plan.watched) != self._tables_seen:
            return True
        return self._timers.is_due(self.number, self.version, EpochClock(self.now, self.watermarks), clock)

    def _hold(self, record: EpochRecord) -> None:
        """Periodically update the holds on topics: this flow may have to read again from a few epochs back."""
        self._past.append({n: dict(at) for n, at in self.progress.offsets.items()})
        if record.epoch % HOLD_EVERY == 0:
            for name, port in self.ports.items():
                port.hold(self._past[0][name])

    # ------------------------------------------------------------ other epochs, and the end

    def replay_late(self, view: str) -> tuple[int, EpochReport | None]:
        """Replay the late records of a view in a separate epoch; returns the number of distinct event times."""
        assert self.book.read(self.number + 1) is None, "an open epoch is finished first"
        planned = late_replay.view_of(self.plan, view)
        times = self.store.late_times(view)
        if not times:
            return 0, None
        late_replay.history(self.progress, planned, self.ports)  # refused before anything is written
        record = replace(self._still_record(late_replay.standing(self.progress, self.ports)), replay=view)
        self._open(record)
        return len(times), self._epoch(record)

    def _still_record(self, slices: Mapping[str, SourceSlice]) -> EpochRecord:
        """Return the record of an epoch that does not advance the watermarks."""
        shares = self.progress.watermarks.shares
        return self._record(slices, EpochClock(max(self.clock.now(), self.now), dict(self.watermarks), shares))

    def _leave_gap(self) -> None:
        """After a failure, resume with empty state at the newest records. The records in between are counted as
        skipped.
        """
        slices = gap_recovery.skipped(self.heads(), self.progress)
        record = replace(self._still_record(slices), tables={})
        progress = gap_recovery.after(self.progress, slices)
        self.store.commit(EpochCommit(self.plan.flow, self.token, self._row(record, Version(), progress)[0]))
        self.number, self.now, self.version, self.progress = record.epoch, record.now, Version(), progress
        self._upkeep.tidy(self.version)

    def heads(self) -> dict[str, Offsets]:
        """Return the current end of every source."""
        now = self.clock.now()
        return {name: port.head(now) for name, port in self.ports.items()}

    def reached(self, heads: Mapping[str, Offsets]) -> bool:
        """Whether all records up to these offsets have been processed."""
        at = self.progress.offsets
        return all(at.get(name, {}).get(p, 0) >= end for name, ends in heads.items() for p, end in ends.items())

    @property
    def finished(self) -> bool:
        """Whether every source is bounded and was read to its end, all windows have closed, and no row will still
        appear or expire by the clock.
        """
        if self.plan.watched:
            return False  # a stored table can change at any time
        if not all(p.finished(self.progress.offsets.get(n, {})) for n, p in self.ports.items()):
            return False
        now = self.clock.now()
        clock = EpochClock(now, self.progress.watermarks.of(self._standings(self.progress), now))
        return not self._is_due(clock) and not self._timers.holds_rows_for_later(self.version, now)

    def close(self) -> None:
        """Stop what runs alongside the epochs, and leave a note that the flow ended between two epochs."""
        self.abandon()
        if self._whole and not self._records:
            self._stop_note.write(self.number)

    def abandon(self) -> None:
        """Stop what runs alongside the epochs, as if the process had died."""
        parts: list[Closes] = [*self._taps, self._compactor, *self.ports.values(), self.outbox]
        for part in parts:
            closed(part)


def _least(record: EpochRecord) -> int:
    """The lowest watermark of an epoch."""
    return min(record.watermarks.values(), default=BEGINNING)


def _report(record: EpochRecord, output: EpochOutput, times: PartTimes) -> EpochReport:
    bad_rows = sum(t.num_rows for n, t in output.errors.items() if n not in output.failed)
    return EpochReport(
        number=record.epoch,
        rows=sum(t.rows for t in output.tallies.values()),
        seconds=times.total,
        changes=output.changed,
        late=sum(t.num_rows for t in output.late.values()),
        errors=bad_rows + sum(output.failed.values()),
        watermark=_least(record),
        now=record.now,
        output=output,
        loads=output.loads,
        parts=times.seconds,
    )
