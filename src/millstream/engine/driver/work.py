"""The driver's part of an epoch, without Spark: kernels over what was taken in, and what becomes of their outcome.

`engine/epoch.py` brings the rows; tests bring them in other ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow as pa

from millstream.clock import BEGINNING
from millstream.connect.port import SourceSlice
from millstream.engine.driver import fixpoint
from millstream.engine.driver.evaluate import Failed, evaluated
from millstream.engine.driver.lookup_calls import forget, recorder
from millstream.engine.driver.row_errors import Errors, errors_of, policy, reached
from millstream.engine.driver.update_pairs import paired
from millstream.errors import Unsupported
from millstream.kernels.aggregates.combine import over_nothing
from millstream.kernels.hashing import xxhash64
from millstream.kernels.intake import Intake, Role, Tally, gather
from millstream.kernels.outcome import Dropped, Outcome, StageClock, net
from millstream.kernels.python.lookup import Ask
from millstream.kernels.python.process import Processed
from millstream.kernels.stage import (
    advance,
    advance_chained,
    lacks_its_row,
    records_step,
    records_unique,
    states,
    unique,
)
from millstream.kernels.windows.late_replay import check, recomputed, windows_of
from millstream.model.reserved import OP
from millstream.plan.operators.process import Asking
from millstream.plan.stages import (
    Aggregation,
    Append,
    Chained,
    Column,
    Constant,
    Op,
    Plan,
    Project,
    Scan,
    Side,
    Stage,
    Stored,
    Take,
    Test,
    ViewStage,
)
from millstream.state.run import Run, write_run
from millstream.state.shard import RunCache, StateReader
from millstream.state.version import Version

PLACE = ("$part", "$pos")
KEPT = 5
"""For how many epochs the answers of functions are kept: as long as versions of the state."""


@dataclass(frozen=True)
class EpochInput:
    """Everything an epoch depends on besides the plan and the state: fixed and written down before any work."""

    number: int
    slices: Mapping[str, SourceSlice]
    now: int
    watermarks: Mapping[str, int]
    before: Mapping[str, int]
    """The watermarks of the epoch before."""
    tables: Mapping[str, Path] = field(default_factory=dict)
    attempt: int = 0
    replay: Replay | None = None
    since: int = BEGINNING
    """The processing time of the epoch before."""
    fractions: Mapping[str, Mapping[float, int]] = field(default_factory=dict)
    """source -> fraction of its records -> the watermark for it, for the fractions that triggers ask for."""
    newest: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """source -> partition -> newest event time before this epoch, for sources whose disorder is to be counted."""
    without: Mapping[str, Sequence[tuple[int, int, str]]] = field(default_factory=dict)
    """source -> poison records, which are set apart as errors: partition, position and reason."""
    only: Mapping[str, Sequence[tuple[int, int, int]]] | None = None
    """source -> the only records to take: partition, first and last position. For the search for poison records."""


@dataclass(frozen=True)
class Replay:
    """Late records to be taken into their view: their times, and the slices that hold all records there ever were."""

    view: str
    times: Sequence[int]
    history: Mapping[str, SourceSlice]


@dataclass
class EpochOutput:
    """What an epoch gave, to be committed as a whole."""

    version: Version
    changes: dict[str, pa.Table] = field(default_factory=dict)
    """view -> all changes, in order."""
    stored: dict[str, pa.Table] = field(default_factory=dict)
    """view -> what the changes come to, at most one per row of the view."""
    panes: dict[str, pa.Table] = field(default_factory=dict)
    errors: dict[str, pa.Table] = field(default_factory=dict)
    mended: dict[str, pa.Table] = field(default_factory=dict)
    """view -> errors of earlier epochs that are none any more."""
    late: dict[str, pa.Table] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    """view -> rows that an expression or user code failed on, without those whose error is over."""
    replayed: pa.Table | None = None
    """The rows that a view is to show of the windows that late records were replayed into."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    filtered: dict[str, int] = field(default_factory=dict)
    """view -> good rows that its condition left out."""
    placements: dict[int, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Work:
    """What an epoch has gathered so far, by the number of the view in the plan."""

    def __init__(self, plan: Plan, cache: RunCache, version: Version, given: EpochInput) -> None:
        self.plan, self.cache, self.version, self.given = plan, cache, version, given
        self.out = EpochOutput(version)
        self.frames: dict[int, list[pl.DataFrame]] = {}
        self.changes: dict[int, list[pl.DataFrame]] = {}
        self.panes: dict[int, list[pl.DataFrame]] = {}
        self.dropped: dict[int, list[Dropped]] = {}
        self.spread: dict[int, list[Run]] = {}
        """The stages that the executors have finished, and the runs they wrote."""
        self.late: list[tuple[Scan, Role]] = []
        self.handed: dict[str, pl.DataFrame] = {}
        """By view: the changes of its stage, where others are chained to it."""
        self.errors = Errors()
        self._inputs = plan.inputs
        self._behind = [plan.behind[v.name] for v in plan.views]
        self.clocks = {
            i: replace(
                StageClock.of(v.stage, given.before, given.watermarks, given.now, given.fractions, given.since),
                epoch=given.number,
            )
            for i, v in enumerate(plan.views)
        }

    def computed(self, ops: Sequence[Op], changes: pa.Table, *, quiet: bool = False) -> pa.Table:
        """What ops make of changes, in the order they come. Raises a MillstreamError; `quiet` keeps no report of it."""
        raise NotImplementedError

    def post(self, view: ViewStage, changes: pa.Table) -> pa.Table:
        """The changes of a view from those of its stage."""
        if view.post is None:
            return changes
        return paired(view, self._evaluated(view.name, _origin(view), [view.post], changes))

    def _evaluated(self, view: str, step: str, ops: Sequence[Op], changes: pa.Table) -> pa.Table:
        """What ops make of changes on their way to a view. Rows that they fail on are treated as its policy says; when
        such a row goes, its error goes too.
        """
        done = evaluated(self.computed, partial(self.computed, quiet=True), ops, changes, policy(self.plan, view))
        for failed in done.failed:
            comes = changes[OP][failed.at].as_py() in ("+I", "+U")
            self._set_aside(view, step, failed, 1 if comes else -1)
        return done.rows

    def _set_aside(self, view: str, step: str, failed: Failed, times: int) -> None:
        for name in reached(self.plan, view):
            self.errors.add(name, step, failed.row, times, failed.reason)

    def _tell_errors(self) -> None:
        """Add the rows that expressions failed on to what the epoch gives."""
        for name in self.errors.views:
            new, over = self.errors.of(name, self.given.number, self.given.now)
            self.out.failed[name] = self.out.failed.get(name, 0) + new.num_rows - sum(over["times"].to_pylist())
            if new.num_rows:
                before = self.out.errors.get(name)
                self.out.errors[name] = new if before is None else pa.concat_tables([before, new])
            if over.num_rows:
                self.out.mended[name] = over

    def roles(self, scan: Scan) -> list[Role]:
        """The stages that a scan feeds."""
        return [
            Role(i, view.stage, feed, _taken_from(view.stage, self.clocks[i]))
            for i, view in enumerate(self.plan.views)
            if not isinstance(view.stage, Chained)
            for feed in view.stage.feeds
            if feed.scan == scan.id
        ]

    def replayed(self, replay: Replay, read: Callable[[Scan, list[Role], int, int], Intake]) -> None:
        """Compute the windows of late records anew; `read` takes in the rows of a scan's history between two times."""
        i, view = next((i, v) for i, v in enumerate(self.plan.views) if v.name == replay.view)
        stage = check(view.stage, view.name)
        windows = windows_of(stage, replay.times)
        frames: list[pl.DataFrame] = []
        for feed in stage.feeds:
            scan = next(s for s in self.plan.scans if s.id == feed.scan)
            intake = read(scan, [Role(i, stage, feed, BEGINNING)], int(windows["$s"].min()), int(windows["$e"].max()))  # type: ignore[arg-type]
            frames += intake.frames.get(i, [])
        rows = recomputed(stage, gather(stage, frames), windows)
        if rows is not None:
            given = rows.to_arrow()
            shown = given if view.post is None else paired(view, self.computed([view.post], given))
            self.out.replayed = shown

    def taken(self, scan: Scan, intake: Intake) -> None:
        """Add what was taken in of a scan."""
        if not scan.ops:
            self.out.tallies[scan.source] = intake.tally
        for view, frames in intake.frames.items():
            self.frames.setdefault(view, []).extend(frames)
        for counts, into in ((intake.applied, self.out.applied), (intake.filtered, self.out.filtered)):
            for view, count in counts.items():
                for name in self._behind[view]:
                    into[name] = into.get(name, 0) + count
        self.late += [(scan, r) for r in self.roles(scan) if intake.late.get(r.view)]

    def forget(self, scan: Scan) -> None:
        """Forget what was taken in of a scan, to read it again."""
        for role in self.roles(scan):
            for given in (self.changes, self.panes, self.dropped, self.spread):
                given.pop(role.view, None)  # type: ignore[attr-defined]

    def apart(self, sources: list[str]) -> list[tuple[Scan, Role, list[Dropped]]]:
        """The scans of these sources that hold rows which a stage did not take."""
        late = {(role.view, scan.id) for scan, role in self.late}
        return [
            (scan, role, self.dropped.get(role.view, []))
            for name in sources
            for scan in self.plan.scans_of(name)
            for role in self.roles(scan)
            if self.dropped.get(role.view) or (role.view, scan.id) in late
        ]

    def set_apart(self, role: Role, rows: pa.Table) -> None:
        """Add rows that a stage did not take to what came late for the views behind it."""
        for name in self._behind[role.view]:
            before = self.out.late.get(name)
            self.out.late[name] = rows if before is None else pa.concat_tables([before, rows])

    def kernels(self) -> None:
        """Merge what was taken in, in the driver, for every stage that the executors did not finish; then the views.
        Chained stages come behind their input, always in the driver.
        """
        for i, view in enumerate(self.plan.views):
            if isinstance(view.stage, Chained):
                self._chained(i, view, view.stage)
            elif isinstance(view.stage, Aggregation):
                self._aggregation(i, view.stage)
                if self.dropped.get(i):
                    for name in self._behind[i]:
                        self.out.applied[name] -= sum(d.rows for d in self.dropped[i])
                changed = self.changes.get(i, [])
                if changed:
                    self._given(view, pl.concat(changed, how="vertical_relaxed"))
                if self.panes.get(i):
                    self.out.panes[view.name] = self._panes(pl.concat(self.panes[i], how="vertical_relaxed"))
            elif view.stage.ordered:
                self._ordered(i, view)
            elif self.frames.get(i):
                rows = pl.concat(self.frames[i], how="vertical_relaxed")
                self._rows(view, rows.sort(*PLACE, maintain_order=True) if view.stage.by_place else rows)
        self._tell_errors()

    def _given(self, view: ViewStage, changes: pl.DataFrame) -> None:
        """The changes of a stage go to its view, and to the stages that are chained to it."""
        if view.name in self._inputs:
            self.handed[view.name] = changes
        if not view.inner:
            self._changed(view, changes.to_arrow())

    def _rows(self, view: ViewStage, rows: pl.DataFrame) -> None:
        """Rows that are only ever added."""
        table = _appended(view, rows)
        if view.inner:
            self.handed[view.name] = polars(table)
        else:
            self.out.changes[view.name] = self.out.stored[view.name] = table

    def _chained(self, i: int, view: ViewStage, stage: Chained) -> None:
        """A stage over the changes that other stages gave in this epoch."""
        clock = self.clocks[i]
        if stage.ttl is not None:
            times = [t for s in stage.sources if s in self.out.tallies for t in self.out.tallies[s].newest.values()]
            clock = replace(clock, newest=max(times, default=clock.newest))
        came = [self._came(view, side) for side in stage.sides]
        if isinstance(stage.what, Stored):
            came = [self._table(stage, stage.what)]
        if came[0] is None and lacks_its_row(stage, self.version):
            came = [pl.DataFrame()]
        held = [StateReader(self.cache, self.version.of(step), columns) for step, columns in states(stage)]
        asks = self._asks(stage, stage.what) if isinstance(stage.what, Asking) else None
        outcome = advance_chained(stage, came, held, clock, partial(self._holds, view), asks, fixpoint.repeat)
        name = f"{self.given.number:012d}-{self.given.attempt}"
        runs = write_outcome(self.cache.root, stage, outcome, name)
        for step, _ in states(stage):
            self._add(step, [r for r in runs if r.step == step], clock.watermark)
        if isinstance(stage.what, Stored) and not isinstance(stage.what, Constant):
            files = tuple(r.file for r in self.out.version.of(stage.step))
            self.cache.notes[stage.step] = (str(self.given.tables[stage.what.table]), files)
        if isinstance(outcome, Processed):
            self._failed(view, outcome)
        if outcome.changes is not None:
            self._given(view, outcome.changes)

    def _asks(self, stage: Chained, what: Asking) -> Ask:
        """What asks the outside; answers are written down beside the state."""
        folder, epoch = self.cache.root.parent / "answers", self.given.number
        forget(folder, stage.step, epoch - KEPT)
        return recorder(stage, what, folder, epoch)

    def _failed(self, view: ViewStage, outcome: Processed) -> None:
        """Set apart, or only count, the rows that user code failed on."""
        failed = len(outcome.failures) + outcome.skipped
        for name in reached(self.plan, view.name) if failed else ():
            self.out.failed[name] = self.out.failed.get(name, 0) + failed
            if outcome.failures:
                rows = errors_of(outcome, self.given.number, self.given.now)
                before = self.out.errors.get(name)
                self.out.errors[name] = rows if before is None else pa.concat_tables([before, rows])

    def _table(self, stage: Chained, what: Stored) -> pl.DataFrame | None:
        """All rows of a stored table, if it may have changed since the state was written."""
        if isinstance(what, Constant):
            there = pl.DataFrame({OP: ["+I"], **{n: [True] for n in what.schema.names}})
            return None if self.version.rows(stage.step) else there
        path = self.given.tables[what.table]
        seen = (str(path), tuple(r.file for r in self.version.of(stage.step)))
        if self.cache.notes.get(stage.step) == seen:
            return None
        with pa.memory_map(str(path)) as file:
            rows = pa.ipc.open_file(file).read_all()
        missing = [n for n in what.schema.names if n not in rows.column_names]
        if missing:
            raise Unsupported(
                f"the table `{what.table}` has no column `{missing[0]}`",
                detail="it has: " + ", ".join(rows.column_names),
            )
        typed = rows.select(what.schema.names).cast(what.schema.to_arrow())
        return polars(typed).select(pl.lit("+I").alias(OP), *what.schema.names)

    def _came(self, view: ViewStage, side: Side) -> pl.DataFrame | None:
        """What came to one side of a chained stage."""
        found = []
        for take in side.takes:
            given = self.handed.get(take.view)
            if given is not None and take.ops:
                given = self._taken_of(view, take, given)
            if given is not None and len(given):
                found.append(given)
        if len(found) < 2:
            return found[0] if found else None
        return pl.concat([f.select(OP, *side.columns) for f in found], how="vertical_relaxed")

    def _taken_of(self, view: ViewStage, take: Take, changes: pl.DataFrame) -> pl.DataFrame:
        only = take.ops[0] if len(take.ops) == 1 else None
        names = only.renames if isinstance(only, Project) else None
        if names is None:
            return polars(self._evaluated(view.name, _origin(self.plan.view(take.view)), take.ops, changes.to_arrow()))
        return changes.select(OP, *(pl.col(given).alias(name) for name, given in names.items()))

    def _holds(self, view: ViewStage, test: Test, pairs: pl.DataFrame) -> pl.Series:
        """For which pairs a condition holds; not for those that it fails on."""
        given = pairs.with_columns(pl.lit("+I").alias(OP)).select(OP, *test.columns).with_row_index("$pair")
        only = Project(test.sql, (Column("$pair", "`$pair`"),))
        rows = given.cast({"$pair": pl.Int64}).to_arrow()
        how = policy(self.plan, view.name)
        done = evaluated(self.computed, partial(self.computed, quiet=True), [only], rows, how)
        for failed in done.failed:
            self._set_aside(view.name, "join", failed, int(pairs["$more"][failed.at]))
        kept = done.rows
        return given["$pair"].is_in(polars(kept)["$pair"].cast(pl.UInt32).implode())

    def _ordered(self, i: int, view: ViewStage) -> None:
        """Rows that wait until they can go on in the order of event time."""
        stage, clock = view.stage, self.clocks[i]
        assert isinstance(stage, Append)
        frames = self.frames.get(i)
        state = StateReader(self.cache, self.version.of(stage.step), unique(stage))
        came = pl.concat(frames, how="vertical_relaxed") if frames else None
        outcome = advance(stage, came, state, clock)
        if outcome.changes is not None:
            self._rows(view, outcome.changes)
        name = f"{self.given.number:012d}-{self.given.attempt}"
        self._add(stage.step, write_outcome(self.cache.root, stage, outcome, name), clock.watermark)

    def _changed(self, view: ViewStage, table: pa.Table) -> None:
        final = self.post(view, table)
        if not final.num_rows:
            return
        self.out.changes[view.name] = self.out.stored[view.name] = final
        if isinstance(view.stage, Aggregation) and not (view.stage.by_slices and view.stage.windowing.answers_once):
            self.out.stored[view.name] = net(polars(final), view.identity or ()).to_arrow()

    def _panes(self, rows: pl.DataFrame) -> pa.Table:
        return rows.with_columns(pl.lit(self.given.number).cast(pl.Int64).alias("epoch")).to_arrow()

    def _aggregation(self, i: int, stage: Aggregation) -> None:
        clock, step = self.clocks[i], stage.step
        runs = self.out.version.of(step)
        begins = lacks_its_row(stage, self.version)
        if i in self.spread and (self.spread[i] or not begins):
            added = self.spread[i]
        else:
            state = StateReader(self.cache, runs, unique(stage))
            kept = records_state(self.cache, stage, self.version)
            partials = gather(stage, self.frames.get(i, []))
            if begins and (partials is None or not len(partials)):
                partials = over_nothing(stage, [self.total_hash(stage, n) for n in stage.totals] or (0,))
            outcome = advance(stage, partials, state, clock, kept)
            if outcome.changes is not None:
                self.changes.setdefault(i, []).append(outcome.changes)
            if outcome.panes is not None:
                self.panes.setdefault(i, []).append(outcome.panes)
            self.dropped[i] = list(outcome.dropped)
            name = f"{self.given.number:012d}-{self.given.attempt}"
            added = write_outcome(self.cache.root, stage, outcome, name)
        self._add(step, [r for r in added if r.step == step], clock.watermark)
        records = records_step(stage)
        if records is not None:
            self._add(records, [r for r in added if r.step == records], clock.watermark)

    def total_hash(self, stage: Aggregation, number: int) -> int:
        """The hash of the keys of a grouping set without keys, as Spark computes it for the rows that come later."""
        return xxhash64(number)

    def _add(self, step: str, runs: list[Run], watermark: int) -> None:
        for run in runs:
            self.cache.trust(run)
        self.out.version = self.out.version.advance(step, runs, watermark)


def records_state(
    cache: RunCache, stage: Aggregation, version: Version, hashes: tuple[int, int] | None = None
) -> StateReader | None:
    """The rows that a stage keeps one by one, if it does."""
    step = records_step(stage)
    return None if step is None else StateReader(cache, version.of(step), records_unique(stage), hashes)


def write_outcome(root: Path, stage: Stage, outcome: Outcome, name: str) -> list[Run]:
    """Write what a stage has to keep as runs of this name."""
    written = []
    if outcome.rows is not None:
        written.append(write_run(root, f"{stage.step}/{name}.arrow", outcome.rows, outcome.expiry))
    records = records_step(stage)
    if outcome.records is not None and records is not None:
        never = outcome.records["$x"].to_numpy()
        written.append(write_run(root, f"{records}/{name}.arrow", outcome.records, never))
    return written


def _origin(view: ViewStage) -> str:
    """Where the rows of a view's stage are from, for people: a stored table, or a step of a view."""
    stage = view.stage
    return stage.what.table if isinstance(stage, Chained) and isinstance(stage.what, Stored) else view.name


def polars(table: pa.Table) -> pl.DataFrame:
    """An Arrow table as a frame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _taken_from(stage: Stage, clock: StageClock) -> int:
    """The time from which rows are not late for a stage that takes them from a scan."""
    return clock.watermark - (stage.lateness or 0) if isinstance(stage, Append) else clock.watermark


def _appended(view: ViewStage, rows: pl.DataFrame) -> pa.Table:
    hidden = [pl.col("$ts").cast(pl.Datetime("us", "UTC"))] if "$ts" in view.hidden else []
    return rows.select(pl.lit("+I").alias(OP), *view.columns, *hidden).to_arrow()
