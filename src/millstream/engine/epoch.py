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

from millstream.connect.port import SourcePort
from millstream.engine import exchange
from millstream.engine.binding.bind import bind
from millstream.engine.driver.driver import EpochDriver
from millstream.engine.driver.epoch_io import EpochInput, EpochOutput, polars
from millstream.engine.driver.projection import computed
from millstream.engine.input import combine, poison_rows, prelude, rejects
from millstream.engine.input.readers.slices import SliceRead, read
from millstream.engine.placement import COMBINED, GATHERED, INLINE, SPREAD, Placement
from millstream.engine.spark import python_functions
from millstream.engine.spark.errors import translated
from millstream.engine.spark.frames import frame_of
from millstream.errors import SourceUnreadable
from millstream.kernels.hashing import xxhash64
from millstream.kernels.intake import Intake, Tally, take_in
from millstream.kernels.scan_input import Role
from millstream.plan.operators.operator import Operator
from millstream.plan.parts import Op
from millstream.plan.plan import Plan, Scan
from millstream.state.shard import RunCache
from millstream.state.version import Version


def _only_hands_on(roles: list[Role]) -> bool:
    """Whether all rows go to the driver unchanged in any case."""
    return not any(r.operator.keyed_scan for r in roles)


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
        self.strict: set[str] = set()
        """Sources that are read strictly. A source of files becomes strict when one of its rows has a NULL (see
        `engine/input/readers/slices.py`).
        """
        self.placement = placement or Placement()
        python_functions.register(spark, plan.functions)
        self.plan = bind(spark, plan, self._stored(tables or {}), retract=retract)

    def run(self, version: Version, given: EpochInput) -> EpochOutput:
        """Perform one epoch."""
        try:
            return self._run(version, given)
        except SourceUnreadable:
            if not self._examined(given):
                raise
        return self._run(version, given)

    def _run(self, version: Version, given: EpochInput) -> EpochOutput:
        with translated(self._log):
            return _Epoch(self, version, given).run()

    def _examined(self, given: EpochInput) -> bool:
        """Whether files of the epoch turned out to be damaged. From then on they are errors of their source."""
        ports = [(self._ports[name], part) for name, part in given.slices.items()]
        return any([port.examine(part) for port, part in ports])  # a list, so that every port is examined

    def places(self, given: EpochInput) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """By source, partitions and positions of the good rows of its slice, in order. Used to search for poison
        records.
        """
        with translated(self._log):
            return {
                name: poison_rows.places(self.steady, self.plan.source(name), self._ports[name], part, given)
                for name, part in given.slices.items()
                if not part.empty
            }

    @cached_property
    def steady(self) -> SparkSession:
        """The session for reads by position (see `engine/input/poison_rows.py`)."""
        return poison_rows.steady(self._spark)

    def _stored(self, tables: Mapping[str, Path]) -> dict[str, DataFrame]:
        frames = {}
        for name, path in tables.items():
            if path not in self._tables:
                with pa.memory_map(str(path)) as file:
                    self._tables[path] = frame_of(self._spark, pa.ipc.open_file(file).read_all())
            frames[name] = self._tables[path]
        return frames


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

    def __init__(self, engine: Engine, version: Version, given: EpochInput) -> None:
        self.given, self.plan = given, engine.plan
        self.engine = engine
        self.spark: Any = engine._spark
        self.tables = engine._stored(given.tables)
        self.reads: dict[str, SliceRead] = {}
        self.driver = EpochDriver(engine.plan, engine.cache, version, given, _Expressions(self.spark, engine._log))
        self.out = self.driver.out

    def run(self) -> EpochOutput:
        started = time.perf_counter()
        whole = [s for s in self.plan.sources if not self.given.slices[s.name].empty]
        try:
            for source in whole:
                self._source(source.name)
            scanned = time.perf_counter()
            self.driver.operators()
            self._set_apart()
            if self.given.replay is not None:
                self.driver.replayed(self.given.replay, self._history)
        finally:
            for reading in self.reads.values():
                if reading.frame.is_cached:
                    reading.frame.unpersist()
        self.out.seconds = {"scan": scanned - started, "kernels": time.perf_counter() - scanned}
        return self.out

    def _source(self, name: str) -> None:
        source, part = self.plan.source(name), self.given.slices[name]
        port = self.engine._ports[name]
        if poison_rows.concerns(self.given, name):
            reading = poison_rows.reading(self.engine.steady, source, port, part, self.given)
        else:
            reading = read(self.spark, source, port, part, self.given.now, strict=name in self.engine.strict)
        scans = self.plan.scans_of(name)
        if reading.scanned and len(scans) > 1:
            reading = replace(reading, frame=reading.frame.persist())
        self.reads[name] = reading
        future = self.given.now + source.options.future_bound.micros
        for scan in scans:
            rows = port.rows(part)
            frame = prelude.columns(prelude.through(reading.frame, scan, source, self.tables, self.given.now), scan)
            intake = self._scan(scan, frame, rows, future)
            if not scan.ops and reading.lenient and intake.tally.bad:
                self._again(name, scan)
                return
            self.driver.taken(scan, intake)
        left_out = len(self.given.without.get(name, ()))
        self.out.tallies[name].add(Tally(left_out, left_out))

    def _again(self, name: str, root: Scan) -> None:
        """Discard the result of a first, quick read of a slice and read it strictly, in this and later epochs."""
        self.engine.strict.add(name)
        self.driver.forget(root)
        if self.reads[name].frame.is_cached:
            self.reads[name].frame.unpersist()
        self._source(name)

    def _scan(self, scan: Scan, frame: DataFrame, expected: int, future: int) -> Intake:
        roles = self.driver.roles(scan)
        placement = self.engine.placement
        known = None if scan.ops else self.given.newest.get(scan.source)
        where = placement.of(scan.id, expected, native=known is None and combine.fits(roles))
        if where == SPREAD and not self._may_spread(roles):
            where = GATHERED
        if where == GATHERED and self.engine.placement.choice == "auto" and _only_hands_on(roles):
            where = INLINE  # nothing shrinks on the executors
        self.out.placements[scan.id] = where
        if where == INLINE:
            return take_in(polars(frame.toArrow()), roles, future, known)
        if where == COMBINED:
            partitioned = set(self.given.slices[scan.source].ranges) != {0}
            rows = combine.combined(frame, roles[0], partitioned=partitioned).toArrow()
            intake = combine.taken_in(polars(rows), roles[0], future)
            if intake is not None:
                placement.learn(scan.id, intake.tally.rows, sum(len(f) for fs in intake.frames.values() for f in fs))
                return intake
        parcels = frame.mapInArrow(exchange.scan_task(roles, future, placement.shards, known), exchange.PARCEL)
        if where == SPREAD:
            task = self._kernel_task(roles)
            parcels = parcels.repartitionById(placement.shards, parcels["shard"]).mapInArrow(
                exchange.kernel_task(task), exchange.PARCEL
            )
        opened = exchange.opened(parcels.toArrow())
        intake, partials = opened.intake, sum(len(f) for fs in opened.intake.frames.values() for f in fs)
        if where == SPREAD:
            for view in task.operators:
                self.driver.spread[view] = opened.runs.get(view, [])
                self.driver.changes[view] = opened.changes.get(view, [])
                self.driver.panes[view] = opened.panes.get(view, [])
                self.driver.dropped[view] = opened.dropped.get(view, [])
            partials = sum(r.rows for runs in opened.runs.values() for r in runs)
        placement.learn(scan.id, intake.tally.rows, partials)
        return intake

    def _history(self, scan: Scan, roles: list[Role], first: int, last: int) -> Intake:
        """The rows of a scan over the whole history, between two times."""
        assert self.given.replay is not None
        source, part = self.plan.source(scan.source), self.given.replay.history[scan.source]
        reading = read(self.spark, source, self.engine._ports[scan.source], part, self.given.now, strict=True)
        frame = prelude.columns(prelude.through(reading.frame, scan, source, self.tables, self.given.now), scan)
        inside = frame.where(f"`$ts` >= {first}L AND `$ts` < {last}L")
        future = self.given.now + source.options.future_bound.micros
        task = exchange.scan_task(roles, future, self.engine.placement.shards)
        return exchange.opened(inside.mapInArrow(task, exchange.PARCEL).toArrow()).intake

    def _may_spread(self, roles: list[Role]) -> bool:
        """Kernels run on the executors only for operators that no other scan feeds in this epoch. Corrections stay in
        the driver: a record and the one it revises may belong to different keys.
        """
        keyed = [r.operator for r in roles if r.operator.keyed_scan]
        return all(len(o.feeds) == 1 and not o.corrected for o in keyed)

    def _kernel_task(self, roles: list[Role]) -> exchange.KernelTask:
        clocks = self.driver.clocks
        operators = {r.view: (r.operator, clocks[r.view]) for r in roles if r.operator.keyed_scan}
        steps = {o.state_step(s) for o, _ in operators.values() for s in o.states}
        runs = self.driver.version.runs
        version = Version({s: found for s, found in runs.items() if s in steps})
        root, shards = str(self.engine.cache.root), self.engine.placement.shards
        return exchange.KernelTask(root, self.given.number, self.given.attempt, shards, version, operators)

    def _set_apart(self) -> None:
        given = self.given
        for name, tally in self.out.tallies.items():
            if tally.bad or tally.future:
                source, part = self.plan.source(name), given.slices[name]
                port = self.engine._ports[name]
                found = rejects.errors(self.spark, source, port, part, given.number, given.now)
                if given.without.get(name):
                    found = poison_rows.errors(self.engine.steady, source, port, part, given, found)
                    self._of_views(name, found.slice(found.num_rows - len(given.without[name])))
                self.out.errors[name] = found
        for scan, role, dropped in self.driver.apart(list(self.reads)):
            frame = self.reads[scan.source].frame
            table = rejects.late(frame, self.plan, scan, role, dropped, self.tables, given.number, given.now)
            self.driver.set_apart(role, table)

    def _of_views(self, source: str, records: pa.Table) -> None:
        """Report poison records of a source as errors of all views that lack them. They are counted for the source
        only.
        """
        for view in self.plan.views:
            if not view.inner and any(f.source == source for f in view.operator.feeds):
                before = self.out.errors.get(view.name)
                self.out.errors[view.name] = records if before is None else pa.concat_tables([before, records])
                self.out.failed.setdefault(view.name, 0)
