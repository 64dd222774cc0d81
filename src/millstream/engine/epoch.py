"""The engine: performs one epoch of a plan, (plan, state, slices, clock) -> (state, changes), and nothing else.

The same input gives the same output, whatever the placement. What it leaves on disk (runs) counts only once the
version it returns is committed by `runtime/`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.connect.port import SourcePort, SourceSlice
from millstream.engine import exchange, native, prelude, rejects
from millstream.engine.bind import bind
from millstream.engine.errors import translated
from millstream.engine.placement import COMBINED, GATHERED, INLINE, SPREAD, Placement
from millstream.engine.post import after
from millstream.engine.readers import SliceRead, read
from millstream.kernels.aggregate import StageClock, advance
from millstream.kernels.combine import group_columns
from millstream.kernels.intake import Intake, Role, Tally, gather, take_in
from millstream.model.connector import Files, Memory
from millstream.plan.stages import Aggregation, Plan, Scan, ViewStage
from millstream.state.run import write_run
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


@dataclass
class EpochOutput:
    """What an epoch gave, to be committed as a whole."""

    version: Version
    changes: dict[str, pa.Table] = field(default_factory=dict)
    errors: dict[str, pa.Table] = field(default_factory=dict)
    late: dict[str, pa.Table] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    placements: dict[int, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Engine:
    """Performs epochs of one plan. Used by one thread at a time."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        ports: Mapping[str, SourcePort],
        root: Path,
        *,
        tables: Mapping[str, Path] | None = None,
        placement: Placement | None = None,
        retract: bool = False,
        log: Path | None = None,
    ) -> None:
        self._spark = spark
        self._ports = ports
        self._log = log
        self._tables: dict[Path, DataFrame] = {}
        self.cache = RunCache(root)
        self.strict = {s.name for s in plan.sources if not isinstance(s.connector, Files)}
        """Sources that are read strictly; a file source becomes one when a row of it has a NULL (see `read`)."""
        self.placement = placement or Placement()
        self.plan = bind(spark, plan, self._stored(tables or {}), retract=retract)

    def run(self, version: Version, given: EpochInput) -> EpochOutput:
        """Perform one epoch."""
        with translated(self._log):
            return _Epoch(self, version, given).run()

    def _stored(self, tables: Mapping[str, Path]) -> dict[str, DataFrame]:
        frames = {}
        for name, path in tables.items():
            if path not in self._tables:
                with pa.memory_map(str(path)) as file:
                    self._tables[path] = self._spark.createDataFrame(pa.ipc.open_file(file).read_all())
            frames[name] = self._tables[path]
        return frames


class _Epoch:
    def __init__(self, engine: Engine, version: Version, given: EpochInput) -> None:
        self.engine = engine
        self.spark: Any = engine._spark
        self.plan = engine.plan
        self.given = given
        self.version = version
        self.tables = engine._stored(given.tables)
        self.out = EpochOutput(version)
        self.frames: dict[int, list[pl.DataFrame]] = {}
        self.changes: dict[int, list[pl.DataFrame]] = {}
        self.spread: dict[int, list[Any]] = {}
        self.late: list[tuple[Scan, Role]] = []
        self.reads: dict[str, SliceRead] = {}
        self.clocks = {i: self._clock(v) for i, v in enumerate(self.plan.views)}

    def run(self) -> EpochOutput:
        started = time.perf_counter()
        whole = [s for s in self.plan.sources if not self.given.slices[s.name].empty]
        try:
            for source in whole:
                self._source(source.name)
            scanned = time.perf_counter()
            self._kernels()
            self._set_apart()
        finally:
            for reading in self.reads.values():
                if reading.frame.is_cached:
                    reading.frame.unpersist()
        self.out.seconds = {"scan": scanned - started, "kernels": time.perf_counter() - scanned}
        return self.out

    def _source(self, name: str) -> None:
        source, part = self.plan.source(name), self.given.slices[name]
        port = self.engine._ports[name]
        strict = name in self.engine.strict
        reading = read(self.spark, source, port, part, self.given.now, strict=strict)
        scans = self.plan.scans_of(name)
        if reading.scanned and len(scans) > 1:
            reading = SliceRead(reading.frame.persist(), scanned=True)
        self.reads[name] = reading
        future = self.given.now + source.options.future_bound.micros
        for scan in scans:
            rows = port.rows(part)
            frame = prelude.columns(prelude.through(reading.frame, scan, source, self.tables, self.given.now), scan)
            intake = self._scan(scan, frame, rows, future)
            if not scan.ops:
                if not strict and intake.tally.bad:
                    self._again(name, scan)
                    return
                self.out.tallies[name] = intake.tally
            for view, frames in intake.frames.items():
                self.frames.setdefault(view, []).extend(frames)
            for view, count in intake.applied.items():
                applied = self.out.applied
                applied[self.plan.views[view].name] = applied.get(self.plan.views[view].name, 0) + count
            self.late += [(scan, r) for r in self._roles(scan) if intake.late.get(r.view)]

    def _again(self, name: str, root: Scan) -> None:
        """Forget what a first, quick look at a slice gave, and read it strictly; and so in later epochs."""
        self.engine.strict.add(name)
        for role in self._roles(root):
            self.changes.pop(role.view, None)
            self.spread.pop(role.view, None)
        if self.reads[name].frame.is_cached:
            self.reads[name].frame.unpersist()
        self._source(name)

    def _scan(self, scan: Scan, frame: DataFrame, expected: int, future: int) -> Intake:
        roles = self._roles(scan)
        placement = self.engine.placement
        where = placement.of(scan.id, expected, native=native.fits(roles))
        if where == SPREAD and not self._may_spread(roles):
            where = GATHERED
        self.out.placements[scan.id] = where
        if where == INLINE:
            return take_in(_polars(frame.toArrow()), roles, future)
        if where == COMBINED:
            partitioned = isinstance(self.plan.source(scan.source).connector, Memory)
            rows = native.combined(frame, roles[0], partitioned=partitioned).toArrow()
            intake = native.taken_in(_polars(rows), roles[0], future)
            if intake is not None:
                placement.learn(scan.id, intake.tally.rows, sum(len(f) for fs in intake.frames.values() for f in fs))
                return intake
        parcels = frame.mapInArrow(exchange.scan_task(roles, future, placement.shards), exchange.PARCEL)
        if where == SPREAD:
            task = self._kernel_task(roles)
            parcels = parcels.repartitionById(placement.shards, parcels["shard"]).mapInArrow(
                exchange.kernel_task(task), exchange.PARCEL
            )
        intake, changes, runs = exchange.opened(parcels.toArrow())
        for view, frames in changes.items():
            self.changes.setdefault(view, []).extend(frames)
        if where == SPREAD:
            for view in task.stages:
                self.spread[view] = runs.get(view, [])
            written = sum(r.rows for rs in runs.values() for r in rs)
            placement.learn(scan.id, intake.tally.rows, written)
        else:
            placement.learn(scan.id, intake.tally.rows, sum(len(f) for fs in intake.frames.values() for f in fs))
        return intake

    def _roles(self, scan: Scan) -> list[Role]:
        return [
            Role(i, view.stage, feed, self.clocks[i].watermark)
            for i, view in enumerate(self.plan.views)
            for feed in view.stage.feeds
            if feed.scan == scan.id
        ]

    def _may_spread(self, roles: list[Role]) -> bool:
        """Kernels run on the executors only for stages that no other scan feeds in this epoch."""
        return all(len(r.stage.feeds) == 1 for r in roles if isinstance(r.stage, Aggregation))

    def _kernel_task(self, roles: list[Role]) -> exchange.KernelTask:
        stages = {
            r.view: (r.stage, self.clocks[r.view], self.version.of(r.stage.step))
            for r in roles
            if isinstance(r.stage, Aggregation)
        }
        root, number = str(self.engine.cache.root), self.given.number
        return exchange.KernelTask(root, number, self.given.attempt, self.engine.placement.shards, stages)

    def _kernels(self) -> None:
        """Merge what was taken in, in the driver, for every stage that the executors did not finish; then the views."""
        for i, view in enumerate(self.plan.views):
            if isinstance(view.stage, Aggregation):
                self._aggregation(i, view.stage)
                changed = self.changes.get(i, [])
                if changed:
                    table = pl.concat(changed, how="vertical_relaxed").to_arrow()
                    final = after(self.spark, view, table)
                    if final.num_rows:
                        self.out.changes[view.name] = final
            elif self.frames.get(i):
                self.out.changes[view.name] = _appended(view, pl.concat(self.frames[i], how="vertical_relaxed"))

    def _aggregation(self, i: int, stage: Aggregation) -> None:
        clock, step = self.clocks[i], stage.step
        runs = self.out.version.of(step)
        if i in self.spread:
            added = self.spread[i]
        else:
            state = StateReader(self.engine.cache, runs, group_columns(stage))
            outcome = advance(stage, gather(stage, self.frames.get(i, [])), state, clock)
            added = []
            if outcome.changes is not None:
                self.changes.setdefault(i, []).append(outcome.changes)
            if outcome.rows is not None:
                name = f"{step}/{self.given.number:012d}-{self.given.attempt}.arrow"
                added.append(write_run(self.engine.cache.root, name, outcome.rows, outcome.expiry))
        for run in added:
            self.engine.cache.trust(run)
        self.out.version = self.out.version.advance(step, added, clock.watermark)

    def _set_apart(self) -> None:
        given = self.given
        for name, tally in self.out.tallies.items():
            if tally.bad or tally.future:
                source, part = self.plan.source(name), given.slices[name]
                found = rejects.errors(self.spark, source, self.engine._ports[name], part, given.number, given.now)
                self.out.errors[name] = found
        for scan, role in self.late:
            frame = self.reads[scan.source].frame
            table = rejects.late(frame, self.plan, scan, role, self.tables, given.number, given.now)
            view = self.plan.views[role.view].name
            before = self.out.late.get(view)
            self.out.late[view] = table if before is None else pa.concat_tables([before, table])

    def _clock(self, view: ViewStage) -> StageClock:
        sources = view.stage.sources
        return StageClock(min(self.given.before[s] for s in sources), min(self.given.watermarks[s] for s in sources))


def _polars(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _appended(view: ViewStage, rows: pl.DataFrame) -> pa.Table:
    hidden = [pl.col("$ts").cast(pl.Datetime("us", "UTC"))] if "$ts" in view.hidden else []
    return rows.select(pl.lit("+I").alias("op"), *view.columns, *hidden).to_arrow()
