"""An engine for tests without Spark: scans are computed by DuckDB, everything behind them is the product's own.

Kernels, state, store, records and recovery are the real ones; only the native prelude is replaced, for memory sources
and topics, and plain expressions. Epochs take some milliseconds, so that thousands of them fit into a test run. With
`shards` the tasks of the executors run in this process, one after the other; with one shard, if placement is "spread".
"""

from __future__ import annotations

import functools
import itertools
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import orjson
import polars as pl
import pyarrow as pa
import sqlglot
from sqlglot import exp

from millstream.clock import EARLIEST, LATEST
from millstream.connect.port import NO_TIME, OUT_OF_RANGE, SourcePort, SourceSlice
from millstream.engine.binding.bind import bind_views
from millstream.engine.driver.driver import EpochDriver
from millstream.engine.driver.epoch_io import EpochInput, EpochOutput, polars
from millstream.engine.driver.evaluate import is_of_rows
from millstream.engine.exchange.graph import Graph
from millstream.engine.exchange.graph_builder import graph_of
from millstream.engine.exchange.parcels import SCHEMA, parcels_of
from millstream.engine.exchange.results import opened
from millstream.engine.exchange.routes import Routes
from millstream.engine.input.readers.columns import DELETES
from millstream.engine.input.rejects import apart
from millstream.engine.tasks.level_task import LevelTask
from millstream.engine.tasks.merge_task import MergeTask, merged_runs
from millstream.engine.tasks.route_task import KEEP, RouteTask
from millstream.engine.tasks.scan_task import ScanTask
from millstream.errors import MillstreamError
from millstream.home import Home
from millstream.kernels.intake import Intake, take_in
from millstream.kernels.kernel import needs_first_row
from millstream.kernels.scan_input import Role
from millstream.model.types.duckdb_values import arrow_table
from millstream.model.types.values import python_rows
from millstream.plan.parts import Op
from millstream.plan.plan import Plan, PlannedSource, Scan
from millstream.plan.rules.guards import guarded
from millstream.state.compaction import RunMerge
from millstream.state.flow_state import FlowState
from millstream.state.run import StateRun
from millstream.state.shard import RunCache
from millstream.state.storage import Storage
from millstream.state.version import Version
from millstream.store.names import quoted
from millstream.testing.script import Script
from millstream.testing.slice_rows import slice_rows

_MACROS = """
CREATE MACRO unix_micros(t) AS epoch_us(t);
CREATE MACRO timestamp_micros(u) AS make_timestamptz(u);
CREATE MACRO timestamp_millis(u) AS make_timestamptz(1000 * u);
CREATE MACRO from_utc(t, z) AS timezone('UTC', timezone(z, CAST(t AS TIMESTAMPTZ)));
CREATE MACRO to_utc(t, z) AS timezone(z, timezone('UTC', CAST(t AS TIMESTAMPTZ)));
CREATE MACRO pmod(a, b) AS ((a % b) + b) % b;
CREATE MACRO signed(u) AS (CAST(u // 2 AS BIGINT) - 4611686018427387904) * 2;
CREATE MACRO xxhash64(a) AS signed(hash(a)), (a, b) AS signed(hash((a, b)));
"""


_known_types: dict[str, dict[str, pa.DataType]] = {}
"""The types of the columns of scans, by what determines them."""


class LocalEngine:
    """Performs epochs of a plan in this process."""

    def __init__(
        self, plan: Plan, ports: Mapping[str, SourcePort], state: FlowState, *, shards: int = 1, placement: str = ""
    ) -> None:
        self.place(ports, state, shards, placement)
        self.duck = _expressions().cursor()
        self.duck.execute("SET TimeZone = 'UTC'")
        plan = guarded(plan)
        types = {s.id: self._types(plan.source(s.source), s) for s in plan.scans}
        self.plan = bind_views(None, plan, types, retract=True)  # type: ignore[arg-type]

    def place(self, ports: Mapping[str, SourcePort], state: FlowState, shards: int, placement: str = "") -> None:
        """Set where rows come from, where state is, and where operators run."""
        self.ports, self.shards, self.state = ports, shards, state
        self.spreads = shards > 1 or placement == "spread"
        self.cache = RunCache(state.runs)
        self.merger: LocalMerger | None = None

    @functools.cached_property
    def graph(self) -> Graph:
        return graph_of(self.plan)

    def run(self, version: Version, epoch_input: EpochInput) -> EpochOutput:
        """Perform one epoch."""
        return self.perform(_LocalWork, version, epoch_input)

    def perform(self, work: type[_LocalWork], version: Version, epoch_input: EpochInput) -> EpochOutput:
        """Perform one epoch with tasks; in the driver, if a row fails in an expression between them."""
        try:
            return work(self, version, epoch_input).run()
        except MillstreamError as error:
            if not self.spreads or not self.graph.uses_spark or not is_of_rows(error):
                raise
            return work(self, version, epoch_input, may_spread=False).run()

    def rows(self, source: PlannedSource, part: SourceSlice) -> pa.Table:
        """The rows of a slice."""
        return slice_rows(self.ports[source.name].slice(part), source.schema)

    def columns(self, source: PlannedSource, scan: Scan, table: pa.Table, now: int = 0) -> pl.DataFrame:
        """The system columns and the scan's own."""
        assert not scan.ops, "the local engine has expressions only"
        self.duck.register("rows", self.with_time(source, table, now))
        system = ["$ts", "$part", "$pos", "$bad"]
        shown = [quoted(c) for c in system] + [f"{_duck(c.sql)} AS {quoted(c.name)}" for c in scan.columns]
        how = source.options.corrections
        if how is not None:
            text = " || '|' || ".join(f"CAST({quoted(n)} AS VARCHAR)" for n in how.key)
            deletes = "false" if how.op is None else f"coalesce(upper({quoted(how.op)}) IN {DELETES}, false)"
            version = "NULL" if how.version is None else quoted(how.version)
            extra = [f'xxhash64({text}) AS "$kh"', f'{text} AS "$key"', f'{deletes} AS "$del"']
            shown += [*extra, f'CAST({version} AS BIGINT) AS "$ver"']
        time = source.options.event_time
        timed = f'SELECT *, {now if time is None else f"epoch_us({quoted(time)})"} AS "$ts" FROM rows'
        if time is not None:  # as `engine/input/readers/columns.py` marks them
            inside = f'"$ts" BETWEEN {EARLIEST} AND {LATEST}'
            lost = f'WHEN "$ts" IS NULL THEN {NO_TIME} WHEN NOT ({inside}) THEN {OUT_OF_RANGE}'
            bad = f'CASE WHEN "$bad" <> 0 THEN "$bad" {lost} ELSE 0 END AS "$bad"'
            kept = ", ".join(f"CASE WHEN {inside} THEN {c} END AS {c}" for c in (quoted(time), '"$ts"'))
            timed = f"SELECT * REPLACE ({bad}, {kept}) FROM ({timed})"
        found = arrow_table(self.duck.sql(f"SELECT {', '.join(shown)} FROM ({timed})"))
        return polars(found)

    def with_time(self, source: PlannedSource, table: pa.Table, now: int) -> pa.Table:
        """Rows with the time of processing, and with their event time where it is computed."""
        if source.options.processing_time is not None:
            seen = pa.repeat(pa.scalar(now, pa.timestamp("us", "UTC")), table.num_rows)
            table = table.append_column(source.options.processing_time, seen)
        if source.options.computed_time is None:
            return table
        said = f"try({_duck(source.options.computed_time)}) AS {quoted(str(source.options.event_time))}"
        self.duck.register("untimed", table)
        return self.duck.sql(f"SELECT *, {said} FROM untimed").to_arrow_table()

    def _types(self, source: PlannedSource, scan: Scan) -> dict[str, pa.DataType]:
        times = source.options.processing_time, source.options.computed_time
        what = f"{type(self)} {source.schema!r} {source.options!r} {times} {scan.ops} {scan.columns}"
        if what not in _known_types:  # flows are resumed, and many differ in little
            empty = slice_rows([], source.schema)
            kinds = _plain(self.columns(source, scan, empty).to_arrow().schema)
            _known_types[what] = {f.name: f.type for f in kinds}
        return dict(_known_types[what])


class LocalMerger:
    """Merges runs by the tasks of the executors, which run in this process. Of every task an attempt is lost: it has
    written its file, and the driver never learns of it.
    """

    def __init__(self, state: Storage, parts: int = 3) -> None:
        self.state, self.parts = state, parts
        self.cancelled = False
        self.done: list[RunMerge] = []

    def takes(self, merge: RunMerge) -> bool:
        return True

    def merged(self, merge: RunMerge) -> list[StateRun]:
        from pyspark import cloudpickle  # as Spark sends tasks

        task: MergeTask = pickle.loads(cloudpickle.dumps(MergeTask(merge, self.parts, self.state)))
        attempts = itertools.count()
        found: list[pa.RecordBatch] = []
        for part in reversed(range(self.parts)):  # tasks end in any order
            list(task.run(iter(()), part, next(attempts)))
            found += task.run(iter(()), part, next(attempts))
        self.done.append(merge)
        return merged_runs(found)

    def cancel(self) -> None:
        self.cancelled = True


class _LocalWork:
    """One epoch, and the expressions for its driver."""

    def __init__(
        self, engine: LocalEngine, version: Version, epoch_input: EpochInput, *, may_spread: bool = True
    ) -> None:
        self.shards, self.spreads = engine.shards, engine.spreads and may_spread
        self.plan, self.input, self.engine = engine.plan, epoch_input, engine
        self.driver = EpochDriver(engine.plan, engine.cache, version, epoch_input, self, engine.state.answers)

    def run(self) -> EpochOutput:
        rows: dict[str, pa.Table] = {}
        frames: list[tuple[Scan, pl.DataFrame]] = []
        for source in self.plan.sources:
            part = self.input.slices[source.name]
            if part.empty:
                continue
            rows[source.name] = self.engine.rows(source, part)
            for scan in self.plan.scans_of(source.name):
                frame = self.engine.columns(source, scan, rows[source.name], self.input.now)
                if self.spreads:
                    frames.append((scan, frame))
                    continue
                future = self.input.now + source.options.future_bound.micros
                known = self.input.newest.get(source.name)
                self.driver.add_intake(scan, take_in(frame, self.driver.roles(scan), future, known))
        if self.spreads:
            self._spread(frames)
        self.driver.operators()
        for scan, role, dropped in self.driver.apart(list(rows)):
            source = self.plan.source(scan.source)
            frame = self.engine.columns(source, scan, rows[scan.source], self.input.now)
            records = [_record(r) for r in python_rows(rows[scan.source].select(source.schema.names))]
            frame = frame.with_columns(pl.Series("record", records, dtype=pl.String))
            future = self.input.now + source.options.future_bound.micros
            frame = frame.filter((pl.col("$bad") == 0) & (pl.col("$ts") <= future))
            if role.feed.keep is not None and role.operator.filters_scan:
                frame = frame.filter(pl.col(role.feed.keep))
            found = apart(role, frame, dropped, self.input.number, self.input.now)
            self.driver.set_apart(role, found)
        if self.input.replay is not None:
            self.driver.replayed(self.input.replay, self._history)
        return self.driver.out

    def _history(self, scan: Scan, roles: list[Role], first: int, last: int) -> Intake:
        assert self.input.replay is not None
        source = self.plan.source(scan.source)
        frame = self.engine.columns(source, scan, self.engine.rows(source, self.input.replay.history[scan.source]))
        inside = frame.filter((pl.col("$ts") >= first) & (pl.col("$ts") < last))
        return take_in(inside, roles, self.input.now + source.options.future_bound.micros)

    def computed(self, ops: Sequence[Op], changes: pa.Table, *, quiet: bool = False) -> pa.Table:
        raise NotImplementedError("expressions after operators need the query engine")

    def key_hash(self, operator: Any, grouping_set: int) -> int:
        kinds = dict(zip(operator.keys, operator.key_types, strict=True))
        row = {k: pa.array([grouping_set if k == operator.keys[-1] else None], t) for k, t in kinds.items()}
        self.engine.duck.register("total", pa.table(row))
        found = self.engine.duck.execute(f"SELECT xxhash64({', '.join(map(quoted, row))}) FROM total").fetchall()
        return int(found[0][0])

    @property
    def _name(self) -> str:
        """The beginning of the names of files."""
        return f"{self.input.number:012d}-{self.input.attempt}"

    def _spread(self, frames: list[tuple[Scan, pl.DataFrame]]) -> None:
        """Run the tasks of the executors in this process: every scan in two partitions, and a shuffle per level."""
        driver, engine, graph = self.driver, self.engine, self.engine.graph
        whole = frozenset(i for i, n in graph.nodes.items() if needs_first_row(n.operator, driver.version))
        files = engine.state.changes
        routes = Routes(graph, self.shards, whole, files, graph.writing(self.input.parts), self.input.hot)
        driver.operators(graph.first)
        parcels = routes.sent(driver, self.plan)
        partition, attempts = 0, itertools.count()  # Spark numbers the attempts at all tasks
        for scan, frame in frames:
            newest = None if scan.ops else scan.source
            roles, known = driver.roles(scan), self.input.newest.get(scan.source)
            future = self.input.now + self.plan.source(scan.source).options.future_bound.micros
            task = ScanTask(scan.id, roles, future, known, routes, newest, self._name)
            middle = len(frame) // 2
            for part in (frame.slice(0, middle), frame.slice(middle)):
                sent = task.run(iter(part.to_arrow().to_batches()), partition, next(attempts))
                parcels += self._evaluated(sent, 0, routes, partition)
                partition += 1
        lookups = driver.services.lookups(graph, self.input.attempt, self.shards)
        for level in range(1, graph.levels + 1):
            args = (engine.cache.storage, self.input.number, self.input.attempt, driver.version, driver.clocks)
            task_of_level = LevelTask(level, routes, *args, lookups, driver.services)
            by_shard: dict[int, list[pa.RecordBatch]] = {s: [] for s in range(self.shards)}
            for parcel in reversed(list(parcels_of(parcels))):  # a shuffle delivers in any order
                by_shard[parcel.shard].append(parcel.batch)
            parcels = []
            for s, mine in by_shard.items():
                parcels += self._evaluated(task_of_level.run(iter(mine), s, next(attempts)), level, routes, s)
        results = opened(parcels, files)
        for scan, _ in frames:
            driver.add_intake(scan, results.intakes.get(scan.id, Intake()))
        driver.received(graph, results, self.shards)

    def _evaluated(
        self, batches: Iterable[pa.RecordBatch], level: int, routes: Routes, partition: int
    ) -> list[pa.RecordBatch]:
        """Parcels after the expressions that Spark evaluates between two levels."""
        edges = self.engine.graph.computed(level)
        if not edges:
            return list(batches)
        found = []
        for batch in batches:
            if batch.num_columns > len(SCHEMA):
                edge = next(e for e in edges if e.column == batch.schema.names[-1])
                rows = pa.Table.from_arrays(batch.columns[-1].flatten(), schema=edge.schema)
                done = self.computed(edge.ops, rows).combine_chunks()
                done = done.append_column(KEEP, pa.array([True] * done.num_rows))
                record = done.to_struct_array()
                record = record.combine_chunks() if isinstance(record, pa.ChunkedArray) else record
                head = batch.slice(0, 1).take(pa.array([0] * done.num_rows, pa.int64()))
                columns = [*head.columns[: len(SCHEMA)], record]
                batch = pa.RecordBatch.from_arrays(columns, names=[*SCHEMA.names, edge.column])
            found.append(batch)
        return list(RouteTask(level, routes, edges, self._name).run(iter(found), partition, 1000 + level))


class LocalScript(Script):
    """A script on the local engine."""

    def _loop_of(self, home: Home) -> Any:
        return home.loop(
            self._plan,
            failpoint=self._failpoint,
            engine=lambda plan, ports, root: LocalEngine(
                plan, ports, root, shards=self.shards, placement=self.placement
            ),
        )


@functools.cache
def _expressions() -> duckdb.DuckDBPyConnection:
    """Where all engines of a process compute: to open it takes longer than an epoch, and it keeps macros only."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute(_MACROS)
    return connection


@functools.cache
def _duck(sql: str) -> str:
    (parsed,) = sqlglot.parse(sql, read="spark")
    assert parsed is not None
    return _in_order(parsed.transform(_strict).transform(_zones)).sql(dialect="duckdb", identify=True)


def _in_order(tree: exp.Expr) -> exp.Expr:
    """The second part of an AND is not computed where the first is false, as in Spark; DuckDB takes any order."""
    root = exp.Paren(this=tree)
    for node in reversed(list(root.find_all(exp.And))):
        if node.expression.find(exp.Div) is not None:
            fails = exp.Is(this=exp.paren(node.this.copy()), expression=exp.false())
            node.replace(exp.Case(ifs=[exp.If(this=fails, true=exp.false())], default=node.copy()))
    inner: exp.Expr = root.this
    return inner


def _strict(node: exp.Expression) -> exp.Expression:
    """A division by zero fails, as in Spark, unless it is NULL that is divided; DuckDB gives NULL."""
    if isinstance(node, exp.Div) and not isinstance(node.expression, exp.Case | exp.Literal):
        by, divided = node.expression, exp.Not(this=exp.Is(this=exp.paren(node.this.copy()), expression=exp.null()))
        failed = exp.func("error", exp.Literal.string("Division by zero."))
        node.set("expression", exp.Case(ifs=[exp.If(this=exp.and_(by.eq(0), divided), true=failed)], default=by.copy()))
    return node


def _zones(node: exp.Expression) -> exp.Expression:
    """Spark moves a time to a zone and back by shifting it; DuckDB has two types for that."""
    if isinstance(node, exp.AtTimeZone | exp.FromTimeZone):
        name = "from_utc" if isinstance(node, exp.AtTimeZone) else "to_utc"
        return exp.func(name, node.this, node.args["zone"])
    return node


def _plain(schema: pa.Schema) -> pa.Schema:
    """Types as Spark would name them."""
    plain = {pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.large_binary(): pa.binary()}
    return pa.schema([pa.field(f.name, plain.get(f.type, f.type)) for f in schema])


def _record(row: dict[str, Any]) -> str:
    return orjson.dumps(row, default=str).decode()
