"""The loop of epochs: fix a slice, write it down, perform it, commit it, close it. One thread per flow.

The order of writes for an epoch n (see DESIGN, commit):
  1 ``epochs/n.json`` is opened with slice, clock, plan and token; fsynced
  2 the engine performs the epoch; runs are written and fsynced
  3 the store commits views, errors, late rows and the epoch's row in one transaction
  4 ``epochs/n.json`` is closed
What goes to sinks is put down before 3 and delivered after it (`outbox.py`). A flow that may lose records
(``at_most_once``) writes no epoch records: after a failure it goes on without what it had (`gap.py`).

A crash between any two leaves the store as the authority: `recovery.reconcile` goes on from there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.clock import BEGINNING, END_OF_TIME, Clock
from millstream.connect.log import LogSource
from millstream.connect.port import SourcePort, SourceSlice
from millstream.kernels.outcome import StageClock
from millstream.kernels.stage import is_due, lacks_its_row, states
from millstream.model.connectors import Generator
from millstream.plan.operators.temporal_filter import Present
from millstream.plan.stages import Chained, Plan
from millstream.runtime.engine_port import EnginePort, TapPort
from millstream.runtime.epoch import late_replay
from millstream.runtime.epoch.compaction import Compactor
from millstream.runtime.epoch.kept_versions import Upkeep
from millstream.runtime.epoch.memory_limit import bounded, usual_limit
from millstream.runtime.epoch.outbox import AT_MOST, Outbox
from millstream.runtime.epoch.progress import Progress, count
from millstream.runtime.epoch.records import FAILED, EpochRecord, RecordBook
from millstream.runtime.epoch.stored_tables import Tables
from millstream.runtime.epoch.watermarks import Look, look_at, moved
from millstream.runtime.home_dir import files_named
from millstream.runtime.recovery import gap_recovery
from millstream.runtime.recovery.gap_recovery import Gap
from millstream.runtime.recovery.reconcile import reconcile
from millstream.state.shard import StateReader
from millstream.state.version import Version
from millstream.store.port import EpochCommit, EpochRow, Store

FIRST_ROWS = 1_000_000
"""What the first epoch after a start takes at most of a source: placement does not know yet how far rows shrink."""

HOLD_EVERY = 20
"""Epochs between two times that topics are told what this flow may still need; and how many it may go back."""

Failpoint = Callable[[str], None]
"""Called with the name of each step of an epoch; a test may raise there to crash."""


@dataclass(frozen=True)
class EpochReport:
    """What a person may want to know of an epoch that was committed."""

    number: int
    rows: int
    seconds: float
    changes: Mapping[str, int]
    late: int
    errors: int
    watermark: int
    now: int
    output: Any
    """The engine's output, for tests that expect changes."""


class FlowLoop:
    """Performs the epochs of one flow. Not thread safe: one thread calls `step`."""

    def __init__(
        self,
        engine: EnginePort,
        ports: Mapping[str, SourcePort],
        store: Store,
        root: Path,
        clock: Clock,
        token: int,
        *,
        progress: Progress,
        tables: Tables,
        outbox: Outbox,
        taps: Sequence[TapPort] = (),
        make_input: Callable[..., Any],
        make_replay: Callable[..., Any],
        failpoint: Failpoint = lambda _: None,
        check_owner: Callable[[], None] = lambda: None,
    ) -> None:
        self.engine, self.ports, self.store, self.clock = engine, ports, store, clock
        self.plan: Plan = engine.plan
        self.token = token
        self._home = root.parent.parent
        self.book = RecordBook(root / "epochs")
        self.outbox = outbox
        self.progress = progress
        self.number = 0
        self.now: int = BEGINNING
        """The processing time of the last epoch; it never goes back, whatever the machine's clock does."""
        self.version = Version()
        self.watermarks: dict[str, int] = {s.name: BEGINNING for s in self.plan.sources}
        self._tables = tables
        self._tables_seen: dict[str, int] = {}
        self._taps = taps
        self._past: deque[dict[str, dict[int, int]]] = deque(maxlen=HOLD_EVERY)
        self._make_input, self._make_replay = make_input, make_replay
        self._fail = failpoint
        self._check_owner = check_owner
        """Called before an epoch writes anything: refuses when the home is no longer this process's."""
        self._upkeep = Upkeep(root / "state")
        self._fresh = True
        self._quiet: tuple[Any, int] | None = None
        """With which clock nothing was due, and until which processing time that holds."""
        self._compactor = Compactor(engine.cache, self.plan.stateful)
        standing = reconcile(self.plan, store, self.book, root / "state", ports)
        if standing is not None:
            self.number, self.now, self.version = standing.number, standing.now, standing.version
            self.watermarks.update({n: w for n, w in standing.watermarks.items() if n in self.watermarks})
        self._upkeep.tidy(self.version)
        outbox.resume(progress.reach)
        outbox.deliver(self.number, progress.out)
        self._records = self.plan.guarantee != AT_MOST
        self._gap = Gap(root / "stopped.json")
        self._whole = True
        """Whether no epoch is half done."""
        if not self._records and self.number and not self._gap.was_clean(self.number):
            self._leave_gap()
        for source in self.plan.sources:
            if isinstance(source.connector, Generator):
                progress.watermarks.rested(source.name, clock.now())

    @property
    def finished(self) -> bool:
        """Whether every source is bounded and was read to its end, all windows have closed, and no row is still to come
        or go by the clock.
        """
        read = all(p.finished(self.progress.offsets.get(n, {})) for n, p in self.ports.items())
        done = read and not self.plan.watched  # a stored table may always change
        now, looks = self.clock.now(), self._looks(self.progress)
        return done and not self._due(self.progress.watermarks.of(looks, now), now, {}) and not self._awaits(now)

    def step(self) -> EpochReport | None:
        """Perform the next epoch; None when there is nothing to do."""
        self._check_owner()
        with files_named(self._home):
            record = self.book.read(self.number + 1) if self._records else None
            if record is None or set(record.slices) != set(self.ports):
                record = self._next()
                if record is None:
                    return None
                self._open(record)
            elif record.state == FAILED:
                record = self._renewed(record)
            return self._perform(record)

    def replay_late(self, view: str) -> tuple[int, EpochReport | None]:
        """Take the late records of a view into it, in an epoch of its own; says how many event times there were."""
        assert self.book.read(self.number + 1) is None, "an epoch that was begun is finished first"
        late_replay.view_of(self.plan, view)
        times = self.store.late_times(view)
        if not times:
            return 0, None
        slices = late_replay.standing(self.progress, self.ports)
        now, at = max(self.clock.now(), self.now), dict(self.watermarks)
        record = EpochRecord(
            self.number + 1, self.plan.id, self.token, slices, now, at, at, {}, since=self.now, replay=view
        )
        self._open(record)
        return len(times), self._perform(record)

    def heads(self) -> dict[str, Mapping[int, int]]:
        """How far every source has come by now."""
        now = self.clock.now()
        return {name: port.head(now) for name, port in self.ports.items()}

    def reached(self, heads: Mapping[str, Mapping[int, int]]) -> bool:
        """Whether all records up to these offsets have been taken in."""
        at = self.progress.offsets
        return all(at.get(name, {}).get(p, 0) >= end for name, ends in heads.items() for p, end in ends.items())

    def close(self) -> None:
        """Stop what runs beside the epochs, and leave a note that the flow ended between two of them."""
        self.abandon()
        if self._whole and not self._records:
            self._gap.stopped(self.number)

    def abandon(self) -> None:
        """Stop what runs beside the epochs, as if the process had died."""
        for tap in self._taps:
            tap.close()
        self._compactor.close()

    def _open(self, record: EpochRecord) -> None:
        self._fail("before open")
        if self._records:
            self.book.open(record)

    def _renewed(self, record: EpochRecord) -> EpochRecord:
        """An epoch whose work has failed, with the stored tables as they are now: a row that was corrected must not
        fail for good. Nothing of the epoch has left the engine, so that it may see other rows than it did.
        """
        tables = {name: version for name, version in self._tables.newest().items() if name in self.plan.tables}
        renewed = replace(record, tables=tables, state="open")
        self._open(renewed)
        return renewed

    def _leave_gap(self) -> None:
        """After a failure, go on with empty state at the newest records; what lies between is counted as skipped."""
        heads = self.heads()
        slices = gap_recovery.skipped(heads, self.progress)
        now = max(self.clock.now(), self.now)
        at = dict(self.watermarks)
        record = EpochRecord(self.number + 1, self.plan.id, self.token, slices, now, at, at, {}, since=self.now)
        progress = gap_recovery.after(self.progress, slices)
        row = EpochRow(
            record.epoch, record.plan, record.slices_json(), record.clock, Version().to_json(), progress.to_json()
        )
        self.store.commit(EpochCommit(self.plan.flow, self.token, row))
        self.number, self.now, self.version, self.progress = record.epoch, now, Version(), progress
        self._upkeep.tidy(self.version)

    def _next(self) -> EpochRecord | None:
        now = max(self.clock.now(), self.now)
        for tap in self._taps:
            tap.check()
        slices = {}
        for name, port in self.ports.items():
            start = self.progress.offsets.get(name, {})
            most = self.plan.source(name).options.max_rows
            if self._fresh:
                most = min(most or FIRST_ROWS, FIRST_ROWS)
            slices[name] = port.admit(start, port.head(now), most)
        looks = self._looks(self.progress, slices)
        watermarks = self.progress.watermarks.of(looks, now)
        shares = self.progress.watermarks.of_shares(looks, now, self.plan.fractions)
        if all(s.empty for s in slices.values()) and not self._due(watermarks, now, shares):
            return None
        tables = {name: version for name, version in self._tables.newest().items() if name in self.plan.tables}
        before = dict(self.watermarks)
        return EpochRecord(
            *(self.number + 1, self.plan.id, self.token, slices, now, watermarks, before, tables),
            fractions=shares,
            since=self.now,
        )

    def _watched(self) -> dict[str, int]:
        """The newest versions of the stored tables whose changes are followed."""
        return {name: version for name, version in self._tables.newest().items() if name in self.plan.watched}

    def _looks(self, progress: Progress, slices: Mapping[str, SourceSlice] | None = None) -> list[Look]:
        return look_at(self.plan.sources, self.ports, progress.offsets, slices or {})

    def _due(self, watermarks: Mapping[str, int], now: int, shares: Mapping[str, Mapping[str, int]]) -> bool:
        """Whether the clock alone is a reason for an epoch: a window with something in it closes or fires."""
        if self.plan.watched and self._watched() != self._tables_seen:
            return True
        if any(lacks_its_row(stage, self.version) for stage in self.plan.stateful):
            return True
        if any(not self.version.rows(step) for step in self.plan.constants):
            return True
        seen = (self.number, dict(watermarks), dict(shares))
        if self._quiet is not None and self._quiet[0] == seen and now < self._quiet[1]:
            return False
        fractions = {s: {float(f): w for f, w in by.items()} for s, by in shares.items()}
        following: int = END_OF_TIME
        for stage in self.plan.stateful:
            clock = StageClock.of(stage, self.watermarks, watermarks, now, fractions, self.now)
            for step, columns in states(stage)[: None if isinstance(stage, Chained) else 1]:
                if self.version.rows(step):
                    state = StateReader(self.engine.cache, self.version.of(step), columns)
                    if is_due(stage, state, clock):
                        return True
                    following = min(following, state.next("$pd", now))
        self._quiet = (seen, following)
        return False

    def _awaits(self, now: int) -> bool:
        """Whether a temporal filter holds rows that come or go later."""
        steps = [s.step for s in self.plan.stateful if isinstance(s, Chained) and isinstance(s.what, Present)]
        return any(
            StateReader(self.engine.cache, self.version.of(step), ()).next("$pd", now) < END_OF_TIME for step in steps
        )

    def _perform(self, record: EpochRecord) -> EpochReport:
        started = time.perf_counter()
        self._whole = False
        record = replace(record, plan=self.plan.id, token=self.token)
        given = self.given(record)
        self._fail("before work")
        try:
            with bounded(self.plan.flow, usual_limit(self._home)):
                output = self.engine.run(self.version, given)
        except Exception:
            if self._records and self.plan.watched:
                self.book.open(replace(record, state=FAILED))
            raise
        self._tables_seen = {name: v for name, v in record.tables.items() if name in self.plan.watched}
        if record.replay is not None:
            output = late_replay.with_replayed(output, late_replay.view_of(self.plan, record.replay), self.store)
        self._fail("before sinks")
        self._check_owner()
        out = self.outbox.before_commit(record.epoch, output.changes, record.digest)
        self._fail("before commit")
        progress = self._advanced(record, output)
        progress.out, progress.reach = out, self.outbox.reach()
        row = EpochRow(
            record.epoch,
            record.plan,
            record.slices_json(),
            record.clock,
            output.version.to_json(),
            progress.to_json(),
        )
        watermark = min(record.watermarks.values(), default=BEGINNING)
        self.store.commit(
            EpochCommit(
                *(self.plan.flow, self.token, row, self._kept(output.stored), output.errors, output.mended),
                *(output.late, output.panes, record.replay),
                watermark,
                upsert=bool(progress.skipped),
            )
        )
        self._fail("after commit")
        self.outbox.after_commit(record.epoch, output.changes)
        self._fail("before close")
        if self._records:
            self.book.close(record)
        self._fail("after close")
        self._take(record, output.version, progress)
        return EpochReport(
            record.epoch,
            sum(t.rows for t in output.tallies.values()),
            time.perf_counter() - started,
            {name: table.num_rows for name, table in output.changes.items()},
            sum(t.num_rows for t in output.late.values()),
            sum(t.num_rows for n, t in output.errors.items() if n not in output.failed) + sum(output.failed.values()),
            watermark,
            record.now,
            output,
        )

    def _kept(self, stored: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """What the store takes: not the changes of a sink."""
        return {v.name: stored[v.name] for v in self.plan.views if v.kept and v.name in stored}

    def given(self, record: EpochRecord) -> Any:
        """What the engine is given for an epoch that was written down."""
        self._tables.check(record.tables)
        paths = {name: self._tables.path(name, version) for name, version in record.tables.items()}
        return self._make_input(
            record.epoch,
            record.slices,
            record.now,
            record.watermarks,
            record.before,
            paths,
            attempt=self.token,
            replay=self._replay(record),
            since=record.since,
            **({"without": record.poison} if record.poison else {}),
            **self.progress.watermarks.told(self.plan, record.watermarks, record.fractions),
        )

    def _replay(self, record: EpochRecord) -> Any:
        if record.replay is None:
            return None
        view = late_replay.view_of(self.plan, record.replay)
        history = late_replay.history(self.progress, view, self.ports)
        return self._make_replay(record.replay, self.store.late_times(record.replay), history)

    def _advanced(self, record: EpochRecord, output: Any) -> Progress:
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
        progress.changed.update({view: record.epoch for view in output.changes})
        progress.reached = progress.watermarks.reach(self._looks(progress), record.now)
        return progress

    def _take(self, record: EpochRecord, version: Version, progress: Progress) -> None:
        """Make a committed epoch the present, and tidy up behind it."""
        before = self.version.files
        self._fresh, self._whole = False, True
        self.number, self.progress, self.watermarks = record.epoch, progress, dict(record.watermarks)
        self.now = record.now
        self.version = self._compactor.between(
            version, record.epoch, min(record.watermarks.values(), default=BEGINNING)
        )
        self._hold(record)
        self.engine.cache.forget(self._upkeep.after(record.epoch, before | version.files, self.version))

    def _hold(self, record: EpochRecord) -> None:
        """Now and then tell topics how far back this flow may still have to read: not less than some epochs."""
        self._past.append({n: dict(at) for n, at in self.progress.offsets.items()})
        if record.epoch % HOLD_EVERY == 0:
            for name, port in self.ports.items():
                if isinstance(port, LogSource):
                    port.hold(self._past[0][name])
