"""The engine: performs one epoch of a plan, (plan, state, slices, clock) -> (state, changes).

The same input gives the same output, whatever the placement. The engine writes runs to disk and returns the changes and
a version that names the runs. The runs count only once `runtime/` has committed that version.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.connect.forms import Form
from millstream.connect.port import SourcePort
from millstream.engine.binding.bind import bind
from millstream.engine.driver.driver import EpochDriver
from millstream.engine.driver.epoch_io import EpochInput, EpochOutput, polars
from millstream.engine.driver.evaluate import is_of_rows
from millstream.engine.driver.projection import computed
from millstream.engine.exchange import job
from millstream.engine.exchange.graph_builder import graph_of
from millstream.engine.exchange.results import forget_changes, opened
from millstream.engine.exchange.routes import Routes
from millstream.engine.input import combine, poison_rows, prelude, rejects
from millstream.engine.input.home_files import read_by_driver
from millstream.engine.input.native_prelude import NativeScan, native_scan
from millstream.engine.input.native_slices import native_slice
from millstream.engine.input.readers.columns import Wanted
from millstream.engine.input.readers.slices import SliceRead, read
from millstream.engine.merger import SparkMerger
from millstream.engine.native_source import NativeSource
from millstream.engine.placement import COMBINED, GATHERED, INLINE, SPREAD, Placement
from millstream.engine.spark import python_functions
from millstream.engine.spark.cluster import is_local, parallelism
from millstream.engine.spark.errors import translated
from millstream.engine.spark.frames import collected, frame_of
from millstream.engine.tasks.level_task import LevelTask
from millstream.engine.tasks.scan_task import ScanTask
from millstream.errors import MillstreamError, SourceUnreadable
from millstream.kernels.intake import Intake, Tally, take_in
from millstream.kernels.kernel import needs_first_row
from millstream.kernels.scan_input import Role
from millstream.kernels.spark_hash import xxhash64
from millstream.plan.operators.operator import Operator
from millstream.plan.parts import Op
from millstream.plan.plan import Plan, Scan
from millstream.state.flow_state import FlowState
from millstream.state.shard import RunCache
from millstream.state.storage import Storage
from millstream.state.version import Version

SWEEP_EVERY = 20
"""The number of epochs between two searches for files of changes that no driver has taken."""


class Engine:
    """Performs epochs of one plan. Used by one thread at a time."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        ports: Mapping[str, SourcePort],
        state: FlowState,
        *,
        tables: Mapping[str, Path] | None = None,
        placement: Placement | None = None,
        retract: bool = False,
        log: Path | None = None,
    ) -> None:
        self._spark = spark
        hidden = None if is_local(str(spark.sparkContext.master)) else state.private
        self._ports = ports if hidden is None else read_by_driver(plan, ports, hidden)
        self._log = log
        self._tables: dict[Path, DataFrame] = {}
        self.cache = RunCache(state.runs)
        self.merger = SparkMerger(spark, state.runs, log)
        self.state = state
        self._swept: int | None = None
        """The epoch before which files of changes were last searched for."""
        self.strict: set[str] = set()
        """Sources that Spark reads, strictly: those whose text Spark parses, from their first NULL on (see
        `engine/input/readers/slices.py`), and those with doubtful lines that the driver cannot add afterwards.
        """
        self.placement = placement or Placement()
        python_functions.register(spark, plan.functions)
        self.plan = bind(spark, plan, self._stored(tables or {}), retract=retract)
        self.graph = graph_of(self.plan)
        self.native = {source.name: _native_scans(self.plan, source.name) for source in self.plan.sources}
        """By source: all of its scans without Spark; None if one of them needs Spark."""

    def run(self, version: Version, epoch_input: EpochInput) -> EpochOutput:
        """Perform one epoch."""
        try:
            return self._run(version, epoch_input)
        except SourceUnreadable:
            if not self._examined(epoch_input):
                raise
        return self._run(version, epoch_input)

    def _run(self, version: Version, epoch_input: EpochInput) -> EpochOutput:
        epoch = _Epoch(self, version, epoch_input)
        try:
            with translated(self._log):
                return epoch.run()
        except MillstreamError as error:
            if not epoch.is_spread or not self.graph.uses_spark or not is_of_rows(error):
                raise
        with translated(self._log):  # a row failed: only the driver can tell which, and set it apart
            return _Epoch(self, version, epoch_input, may_spread=False).run()

    def _examined(self, epoch_input: EpochInput) -> bool:
        """Whether files of the epoch turned out to be damaged. From then on they are errors of their source."""
        ports = [(self._ports[name], part) for name, part in epoch_input.slices.items()]
        return any([port.examine(part) for port, part in ports])  # a list, so that every port is examined

    def places(self, epoch_input: EpochInput) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """By source, partitions and positions of the good rows of its slice, in order. Used to search for poison
        records.
        """
        with translated(self._log):
            return {
                name: poison_rows.places(self.steady, self.plan.source(name), self._ports[name], part, epoch_input)
                for name, part in epoch_input.slices.items()
                if not part.empty
            }

    @cached_property
    def steady(self) -> SparkSession:
        """The session for reads by position (see `engine/input/poison_rows.py`)."""
        return poison_rows.steady(self._spark)

    def changes_for(self, epoch: int) -> Storage:
        """The storage for files of changes, without those that tasks whose results were lost have left."""
        if self._swept is None or epoch >= self._swept + SWEEP_EVERY:
            forget_changes(self.state.changes, epoch)
            self._swept = epoch
        return self.state.changes

    def _stored(self, tables: Mapping[str, Path]) -> dict[str, DataFrame]:
        frames = {}
        for name, path in tables.items():
            if path not in self._tables:
                with pa.memory_map(str(path)) as file:
                    self._tables[path] = frame_of(self._spark, pa.ipc.open_file(file).read_all())
            frames[name] = self._tables[path]
        return frames


def _native_scans(plan: Plan, source: str) -> list[NativeScan] | None:
    found = [native_scan(plan.source(source), scan) for scan in plan.scans_of(source)]
    return [scan for scan in found if scan is not None] if found and all(found) else None


class _Expressions:
    """Evaluates expressions with Spark."""

    def __init__(self, spark: SparkSession, log: Path | None) -> None:
        self._spark, self._log = spark, log

    def computed(self, ops: Sequence[Op], changes: pa.Table, *, quiet: bool = False) -> pa.Table:
        """Apply ops to changes, preserving their order."""
        with translated(None if quiet else self._log):
            return computed(self._spark, ops, changes)

    def key_hash(self, operator: Operator, grouping_set: int) -> int:
        """The hash that Spark computes for later rows: the other keys are NULL and do not change the hash."""
        del operator
        return xxhash64(grouping_set)


class _Epoch:
    """One epoch: read and scan the sources, run the operators, quarantine rows."""

    def __init__(self, engine: Engine, version: Version, epoch_input: EpochInput, *, may_spread: bool = True) -> None:
        self.input, self.plan = epoch_input, engine.plan
        self.may_spread, self.is_spread = may_spread, False
        self.engine = engine
        self.spark: Any = engine._spark
        self.tables = engine._stored(epoch_input.tables)
        self.reads: dict[str, SliceRead] = {}
        """The slices that Spark has read."""
        self.native: dict[str, NativeSource] = {}
        """The slices that were read without Spark's readers."""
        self.forms: dict[str, Sequence[Form]] = {}
        expressions = _Expressions(self.spark, engine._log)
        self.driver = EpochDriver(engine.plan, engine.cache, version, epoch_input, expressions, engine.state.answers)
        self.out = self.driver.out

    def run(self) -> EpochOutput:
        started = time.perf_counter()
        sources = [s.name for s in self.plan.sources if not self.input.slices[s.name].empty]
        try:
            self.is_spread = self._spreads(sources)
            if self.is_spread:
                self._spread(sources)
            else:
                for name in sources:
                    self._source(name)
            scanned = time.perf_counter()
            self.driver.operators()
            self._set_apart()
            if self.input.replay is not None:
                self.driver.replayed(self.input.replay, self._history)
        finally:
            for name in self.reads:
                self._release(name)
        self.out.seconds = {"scan": scanned - started, "operators": time.perf_counter() - scanned}
        return self.out

    # ---- rows of sources

    def _read(self, name: str) -> SliceRead:
        """The slice of a source as a DataFrame. It is kept if several scans read it."""
        source, part = self.plan.source(name), self.input.slices[name]
        port = self.engine._ports[name]
        if poison_rows.concerns(self.input, name):
            reading = poison_rows.reading(self.engine.steady, source, port, part, self.input)
        else:
            reading = self._read_columns(name, self.plan.columns_read(name))
        if reading.scanned and len(self.plan.scans_of(name)) > 1:
            reading = replace(reading, frame=reading.frame.persist())
        self.reads[name] = reading
        return reading

    def _read_columns(self, name: str, only: frozenset[str] | None = None) -> SliceRead:
        source, part, strict = self.plan.source(name), self.input.slices[name], name in self.engine.strict
        port, forms = self.engine._ports[name], self._forms(name)
        return read(self.spark, source, port, part, self.input.now, strict=strict, only=only, forms=forms)

    def _forms(self, name: str) -> Sequence[Form]:
        if name not in self.forms:
            self.forms[name] = self.engine._ports[name].slice(self.input.slices[name])
        return self.forms[name]

    def _native(self, name: str) -> NativeSource | None:
        """A source that needs no reader of Spark in this epoch."""
        scans = self.engine.native[name]
        if scans is None or name in self.engine.strict or not self.engine.placement.reads_natively():
            return None
        if poison_rows.concerns(self.input, name):
            return None
        wanted = Wanted(self.plan.source(name), self.input.now, only=self.plan.columns_read(name))
        found = native_slice(self.spark, wanted, self._forms(name))
        return None if found is None else NativeSource(self.spark, wanted, found, scans)

    def _release(self, name: str) -> None:
        if self.reads[name].frame.is_cached:
            self.reads[name].frame.unpersist()

    def _rows(self, scan: Scan, frame: DataFrame | None = None) -> DataFrame:
        """The columns of a scan over the slice of its source, or over some of its rows."""
        source = self.plan.source(scan.source)
        frame = self.reads[scan.source].frame if frame is None else frame
        return prelude.columns(prelude.through(frame, scan, source, self.tables, self.input.now), scan)

    def _future(self, scan: Scan) -> int:
        """The latest plausible event time."""
        return self.input.now + self.plan.source(scan.source).options.future_bound.micros

    def _known(self, scan: Scan) -> Mapping[int, int] | None:
        """The newest event time of each partition before this epoch, if disorder is measured."""
        return None if scan.ops else self.input.newest.get(scan.source)

    def _must_be_strict(self, scan: Scan, intake: Intake) -> bool:
        """Whether a first, quick read of a slice met a row that must be read strictly, in this and later epochs."""
        if scan.ops or scan.source in self.native or not self.reads[scan.source].lenient or not intake.tally.bad:
            return False
        self.engine.strict.add(scan.source)
        return True

    # ---- on the executors

    def _spreads(self, sources: Sequence[str]) -> bool:
        """Whether the operators run on the executors."""
        scans = [s for name in sources for s in self.plan.scans_of(name)]
        sizes = [self.engine._ports[s.source].rows(self.input.slices[s.source]) for s in scans]
        combine_only = all(r.operator.keyed_scan for s in scans for r in self.driver.roles(s))
        known = [(s.id, size, combine_only) for s, size in zip(scans, sizes, strict=True)]
        return self.may_spread and bool(scans) and self.engine.graph.pays and self.engine.placement.spreads(known)

    def _spread(self, sources: Sequence[str]) -> None:
        """Run the operators on the executors, in one job."""
        graph, placement = self.engine.graph, self.engine.placement
        routes = self._routes()
        name = f"{self.input.number:012d}-{self.input.attempt}"
        with_ttl = any(n.operator.ttl is not None for n in graph.nodes.values())
        while True:
            frames: list[DataFrame] = []
            scans: list[Scan] = []
            for source in sources:
                mine = self.plan.scans_of(source)
                tasks = [self._task(s, routes, source if with_ttl and not s.ops else None, name) for s in mine]
                native = self._native(source)
                if native is not None:
                    self.native[source] = native
                    frames.append(job.read(self.spark, native.task(tasks)))
                else:
                    self._read(source)
                    frames += [job.scanned(self._rows(s), t) for s, t in zip(mine, tasks, strict=True)]
                scans += mine
            self.driver.operators(graph.first)
            sent = routes.sent(self.driver, self.plan)
            found = job.run(self.spark, frames, sent, self._levels(routes), routes, name)
            results = opened(found, routes.files)
            strict = {s.source for s in scans if self._must_be_strict(s, results.intakes.get(s.id, Intake()))}
            strict |= {n for n in self.native if not self._takes_doubtful(n, results.intakes)}
            if not strict:
                break
            for source in strict:
                self.engine.strict.add(source)
                if self.native.pop(source, None) is None:
                    self._release(source)
        for scan in scans:
            intake = results.intakes.get(scan.id, Intake())
            self.out.placements[scan.id] = SPREAD
            placement.learn(scan.id, intake.tally.rows, results.partials.get(scan.id, 0))
            self.driver.add_intake(scan, intake)
        for source in sources:
            self._count_poison(source)
        self.driver.received(graph, results, routes.shards)

    def _takes_doubtful(self, name: str, intakes: dict[int, Intake]) -> bool:
        """Add what Spark finds in the doubtful lines that tasks have left. False if one of them is a good row that has
        to go through the operators: then Spark parses this source from now on.
        """
        native = self.native[name]
        lines = native.lines
        if not lines:
            return lines is not None
        found = {}
        for scan in self.plan.scans_of(name):
            intake = found[scan.id] = self._of_doubtful(native, scan, self._task(scan))
            if not scan.ops and intake.tally.rows > intake.tally.bad + intake.tally.future:
                return False
        for number, intake in found.items():
            intakes.setdefault(number, Intake()).add(intake)
        return True

    def _of_doubtful(self, native: NativeSource, scan: Scan, task: ScanTask) -> Intake:
        """The rows of a scan that Spark finds in the doubtful lines of a slice."""
        rows = polars(collected(self._rows(scan, native.doubtful())))
        return take_in(rows, task.roles, task.future, task.known)

    def _task(self, scan: Scan, routes: Routes | None = None, newest: str | None = None, name: str = "") -> ScanTask:
        roles, future, known = self.driver.roles(scan), self._future(scan), self._known(scan)
        return ScanTask(scan.id, roles, future, known, routes, newest, name)

    def _routes(self) -> Routes:
        graph = self.engine.graph
        whole = frozenset(i for i, n in graph.nodes.items() if needs_first_row(n.operator, self.driver.version))
        files = self.engine.changes_for(self.input.number)
        shards = self.engine.placement.shards or parallelism(self.spark)
        return Routes(graph, shards, whole, files, graph.writing(self.input.parts), self.input.hot)

    def _levels(self, routes: Routes) -> list[LevelTask]:
        version, clocks, state = self.driver.version, self.driver.clocks, self.engine.cache.storage
        number, attempt = self.input.number, self.input.attempt
        lookups = self.driver.services.lookups(routes.graph, attempt, routes.shards)
        found = []
        for level in range(1, routes.graph.levels + 1):
            mine = version.only(routes.graph.steps(level))
            found.append(LevelTask(level, routes, state, number, attempt, mine, clocks, lookups))
        return found

    # ---- in the driver, or combined on the executors

    def _source(self, name: str) -> None:
        if self._take_natively(name):
            return
        self._read(name)
        for scan in self.plan.scans_of(name):
            intake = self._scan(scan, self._rows(scan), self.engine._ports[name].rows(self.input.slices[name]))
            if self._must_be_strict(scan, intake):
                self.driver.forget(scan)
                self._release(name)
                self._source(name)
                return
            self.driver.add_intake(scan, intake)
        self._count_poison(name)

    def _take_natively(self, name: str) -> bool:
        """Take in a slice without Spark's readers, if that is possible."""
        native = self._native(name)
        if native is None:
            return False
        placement, scans = self.engine.placement, self.plan.scans_of(name)
        tasks = [self._task(scan) for scan in scans]
        where = placement.of_native(self.engine._ports[name].rows(self.input.slices[name]), small=native.small)
        intakes = (
            native.taken_in(tasks) if where == INLINE else self._gathered(job.read(self.spark, native.task(tasks)))
        )
        lines = native.lines
        if lines is None:  # too many for the driver: Spark parses this source from now on
            self.engine.strict.add(name)
            return False
        self.native[name] = native
        for scan, task in zip(scans, tasks, strict=True):
            intake = intakes.get(scan.id, Intake())
            if lines:
                intake.add(self._of_doubtful(native, scan, task))
            self.out.placements[scan.id] = where
            self.driver.add_intake(scan, intake)
        self._count_poison(name)
        return True

    def _count_poison(self, name: str) -> None:
        left_out = len(self.input.without.get(name, ()))
        self.out.tallies[name].add(Tally(left_out, left_out))

    def _scan(self, scan: Scan, frame: DataFrame, expected: int) -> Intake:
        roles, future, known = self.driver.roles(scan), self._future(scan), self._known(scan)
        placement = self.engine.placement
        where = placement.of(scan.id, expected, native=known is None and combine.fits(roles))
        if where == SPREAD:
            where = GATHERED  # the executors have nothing to do but to combine
        if where == GATHERED and placement.choice == "auto" and not any(r.operator.keyed_scan for r in roles):
            where = INLINE  # nothing shrinks on the executors
        self.out.placements[scan.id] = where
        if where == INLINE:
            return take_in(polars(collected(frame)), roles, future, known)
        if where == COMBINED:
            parallelism(self.spark)
            partitioned = set(self.input.slices[scan.source].ranges) != {0}
            rows = collected(combine.combined(frame, roles[0], partitioned=partitioned))
            intake = combine.taken_in(polars(rows), roles[0], future)
            if intake is not None:
                placement.learn(scan.id, intake.tally.rows, sum(len(f) for fs in intake.frames.values() for f in fs))
                return intake
        task = ScanTask(scan.id, roles, future, known)
        return self._gathered(job.scanned(frame, task)).get(scan.id, Intake())

    def _gathered(self, parcels: DataFrame) -> dict[int, Intake]:
        """Combine rows on the executors; the driver merges them. Returns the intake of each scan."""
        results = opened(parcels.toArrow().to_batches())
        for scan, intake in results.intakes.items():
            mine = {role.view for role in self.driver.roles(self.plan.scan(scan))}
            intake.frames.update({view: results.rows.pop(view) for view in mine & results.rows.keys()})
            self.engine.placement.learn(scan, intake.tally.rows, results.partials.get(scan, 0))
        return results.intakes

    def _history(self, scan: Scan, roles: list[Role], first: int, last: int) -> Intake:
        """The rows of a scan over the whole history, between two times."""
        assert self.input.replay is not None
        source, part = self.plan.source(scan.source), self.input.replay.history[scan.source]
        reading = read(self.spark, source, self.engine._ports[scan.source], part, self.input.now, strict=True)
        frame = prelude.columns(prelude.through(reading.frame, scan, source, self.tables, self.input.now), scan)
        inside = frame.where(f"`$ts` >= {first}L AND `$ts` < {last}L")
        future = self.input.now + source.options.future_bound.micros
        results = opened(job.scanned(inside, ScanTask(scan.id, roles, future)).toArrow().to_batches())
        intake = results.intakes.get(scan.id, Intake())
        intake.frames.update(results.rows)
        return intake

    def _set_apart(self) -> None:
        epoch_input = self.input
        for name, tally in self.out.tallies.items():
            if tally.bad or tally.future:
                source, part = self.plan.source(name), epoch_input.slices[name]
                port = self.engine._ports[name]
                count = tally.bad + tally.future
                doubtful = (self.native[name].errors if name in self.native else self.reads[name].doubtful)()
                found = rejects.errors(
                    self.spark, source, port, part, epoch_input.number, epoch_input.now, count, doubtful
                )
                if epoch_input.without.get(name):
                    found = poison_rows.errors(self.engine.steady, source, port, part, epoch_input, found)
                    self._of_views(name, found.slice(found.num_rows - len(epoch_input.without[name])))
                self.out.errors[name] = found
        for scan, role, dropped in self.driver.apart([*self.reads, *self.native]):
            frame = self._read_whole(scan.source)
            table = rejects.late(
                frame, self.plan, scan, role, dropped, self.tables, epoch_input.number, epoch_input.now
            )
            self.driver.set_apart(role, table)

    def _read_whole(self, name: str) -> DataFrame:
        """The slice of a source with all of its columns."""
        whole = self.plan.columns_read(name) == frozenset(self.plan.source(name).schema.names)
        if whole and name in self.reads:
            return self.reads[name].frame
        return self._read_columns(name).frame

    def _of_views(self, source: str, records: pa.Table) -> None:
        """Report poison records of a source as errors of all views that lack them. They are counted for the source
        only.
        """
        for view in self.plan.views:
            if not view.inner and any(f.source == source for f in view.operator.feeds):
                before = self.out.errors.get(view.name)
                self.out.errors[view.name] = records if before is None else pa.concat_tables([before, records])
                self.out.failed.setdefault(view.name, 0)
