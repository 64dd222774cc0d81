"""The driver's part of an epoch, without Spark: kernels over what was taken in, and what becomes of their outcome.

`engine/epoch.py` brings the rows; tests bring them in other ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa

from millstream.clock import BEGINNING
from millstream.connect.port import SourceSlice
from millstream.kernels.intake import Intake, Role, Tally, gather
from millstream.kernels.outcome import Dropped, Outcome, StageClock, net
from millstream.kernels.replay import check, recomputed, windows_of
from millstream.kernels.stage import advance, records_step, records_unique, unique
from millstream.plan.stages import Aggregation, Chained, Plan, Project, Scan, Stage, ViewStage
from millstream.state.run import Run, write_run
from millstream.state.shard import RunCache, StateReader
from millstream.state.version import Version


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
    late: dict[str, pa.Table] = field(default_factory=dict)
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
        self._inputs = plan.inputs
        self._behind = [plan.behind[v.name] for v in plan.views]
        self.clocks = {
            i: StageClock.of(v.stage, given.before, given.watermarks, given.now, given.fractions, given.since)
            for i, v in enumerate(plan.views)
        }

    def post(self, view: ViewStage, changes: pa.Table) -> pa.Table:
        """The changes of a view from those of its stage."""
        raise NotImplementedError

    def computed(self, project: Project, changes: pa.Table) -> pa.Table:
        """What a projection makes of changes, in the order they come."""
        raise NotImplementedError

    def roles(self, scan: Scan) -> list[Role]:
        """The stages that a scan feeds."""
        return [
            Role(i, view.stage, feed, self.clocks[i].watermark)
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
            self.out.replayed = self.post(view, rows.to_arrow())

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
                self._rows(view, pl.concat(self.frames[i], how="vertical_relaxed"))

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
        """A stage over the changes that another stage gave in this epoch."""
        came, clock = self.handed.get(stage.input), self.clocks[i]
        if came is not None and stage.take is not None:
            came = self._taken_of(stage.take, came)
        state = StateReader(self.cache, self.version.of(stage.step), unique(stage))
        outcome = advance(stage, came, state, clock)
        name = f"{self.given.number:012d}-{self.given.attempt}"
        self._add(stage.step, write_outcome(self.cache.root, stage, outcome, name), clock.watermark)
        if outcome.changes is not None:
            self._given(view, outcome.changes)

    def _taken_of(self, project: Project, changes: pl.DataFrame) -> pl.DataFrame:
        names = project.renames
        if names is None:
            return polars(self.computed(project, changes.to_arrow()))
        return changes.select("op", *(pl.col(given).alias(name) for name, given in names.items()))

    def _ordered(self, i: int, view: ViewStage) -> None:
        """Rows that wait until they can go on in the order of event time."""
        stage, clock = view.stage, self.clocks[i]
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
        if i in self.spread:
            added = self.spread[i]
        else:
            state = StateReader(self.cache, runs, unique(stage))
            kept = records_state(self.cache, stage, self.version)
            outcome = advance(stage, gather(stage, self.frames.get(i, [])), state, clock, kept)
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


def polars(table: pa.Table) -> pl.DataFrame:
    """An Arrow table as a frame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _appended(view: ViewStage, rows: pl.DataFrame) -> pa.Table:
    hidden = [pl.col("$ts").cast(pl.Datetime("us", "UTC"))] if "$ts" in view.hidden else []
    return rows.select(pl.lit("+I").alias("op"), *view.columns, *hidden).to_arrow()
