"""An engine for tests without Spark: scans are computed by DuckDB, everything behind them is the product's own.

Kernels, state, store, records and recovery are the real ones; only the native prelude is replaced, for memory sources
and topics, and plain expressions. Epochs take some milliseconds, so that thousands of them fit into a test run. With
`shards` the kernels run once per shard of the keys, as the executors would run them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
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
from millstream.engine.driver.driver import EpochDriver, states_of, write_outcome
from millstream.engine.driver.epoch_io import EpochInput, EpochOutput, polars
from millstream.engine.input.readers.columns import DELETES
from millstream.engine.input.rejects import apart
from millstream.home import Home
from millstream.kernels.intake import Intake, gather, take_in
from millstream.kernels.kernel import advance
from millstream.kernels.scan_input import Role
from millstream.model.types.duckdb_values import arrow_table
from millstream.model.types.values import python_rows
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.parts import Op
from millstream.plan.rules.guards import guarded
from millstream.plan.stages import Plan, Scan, SourceStage
from millstream.state.shard import RunCache, shard_of, shard_range
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

    def __init__(self, plan: Plan, ports: Mapping[str, SourcePort], root: Path, *, shards: int = 1) -> None:
        self.ports, self.shards = ports, shards
        self.cache = RunCache(root)
        self.duck = _expressions().cursor()
        self.duck.execute("SET TimeZone = 'UTC'")
        plan = guarded(plan)
        types = {s.id: self._types(plan.source(s.source), s) for s in plan.scans}
        self.plan = bind_views(None, plan, types, retract=True)  # type: ignore[arg-type]

    def run(self, version: Version, given: EpochInput) -> EpochOutput:
        """Perform one epoch."""
        return _LocalWork(self, version, given).run()

    def rows(self, source: SourceStage, part: SourceSlice) -> pa.Table:
        """The rows of a slice."""
        return slice_rows(self.ports[source.name].slice(part), source.schema)

    def columns(self, source: SourceStage, scan: Scan, table: pa.Table, now: int = 0) -> pl.DataFrame:
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

    def with_time(self, source: SourceStage, table: pa.Table, now: int) -> pa.Table:
        """Rows with the time of processing, and with their event time where it is computed."""
        if source.options.processing_time is not None:
            seen = pa.repeat(pa.scalar(now, pa.timestamp("us", "UTC")), table.num_rows)
            table = table.append_column(source.options.processing_time, seen)
        if source.options.computed_time is None:
            return table
        said = f"try({_duck(source.options.computed_time)}) AS {quoted(str(source.options.event_time))}"
        self.duck.register("untimed", table)
        return self.duck.sql(f"SELECT *, {said} FROM untimed").to_arrow_table()

    def _types(self, source: SourceStage, scan: Scan) -> dict[str, pa.DataType]:
        times = source.options.processing_time, source.options.computed_time
        what = f"{type(self)} {source.schema!r} {source.options!r} {times} {scan.ops} {scan.columns}"
        if what not in _known_types:  # flows are resumed, and many differ in little
            empty = slice_rows([], source.schema)
            kinds = _plain(self.columns(source, scan, empty).to_arrow().schema)
            _known_types[what] = {f.name: f.type for f in kinds}
        return dict(_known_types[what])


class _LocalWork:
    """One epoch, and the expressions for its driver."""

    def __init__(self, engine: LocalEngine, version: Version, given: EpochInput) -> None:
        self.plan, self.given, self.engine = engine.plan, given, engine
        self.driver = EpochDriver(engine.plan, engine.cache, version, given, self)

    def run(self) -> EpochOutput:
        rows: dict[str, pa.Table] = {}
        for source in self.plan.sources:
            part = self.given.slices[source.name]
            if part.empty:
                continue
            rows[source.name] = self.engine.rows(source, part)
            for scan in self.plan.scans_of(source.name):
                frame = self.engine.columns(source, scan, rows[source.name], self.given.now)
                future = self.given.now + source.options.future_bound.micros
                known = self.given.newest.get(source.name)
                self.driver.taken(scan, take_in(frame, self.driver.roles(scan), future, known))
        if self.engine.shards > 1:
            self._by_shard()
        self.driver.operators()
        for scan, role, dropped in self.driver.apart(list(rows)):
            source = self.plan.source(scan.source)
            frame = self.engine.columns(source, scan, rows[scan.source], self.given.now)
            records = [_record(r) for r in python_rows(rows[scan.source].select(source.schema.names))]
            frame = frame.with_columns(pl.Series("record", records, dtype=pl.String))
            future = self.given.now + source.options.future_bound.micros
            frame = frame.filter((pl.col("$bad") == 0) & (pl.col("$ts") <= future))
            if role.feed.keep is not None and role.operator.filters_scan:
                frame = frame.filter(pl.col(role.feed.keep))
            found = apart(role, frame, dropped, self.given.number, self.given.now)
            self.driver.set_apart(role, found)
        if self.given.replay is not None:
            self.driver.replayed(self.given.replay, self._history)
        return self.driver.out

    def _history(self, scan: Scan, roles: list[Role], first: int, last: int) -> Intake:
        assert self.given.replay is not None
        source = self.plan.source(scan.source)
        frame = self.engine.columns(source, scan, self.engine.rows(source, self.given.replay.history[scan.source]))
        inside = frame.filter((pl.col("$ts") >= first) & (pl.col("$ts") < last))
        return take_in(inside, roles, self.given.now + source.options.future_bound.micros)

    def computed(self, ops: Sequence[Op], changes: pa.Table, *, quiet: bool = False) -> pa.Table:
        raise NotImplementedError("expressions after operators need the query engine")

    def key_hash(self, operator: Any, grouping_set: int) -> int:
        kinds = dict(zip(operator.keys, operator.key_types, strict=True))
        row = {k: pa.array([grouping_set if k == operator.keys[-1] else None], t) for k, t in kinds.items()}
        self.engine.duck.register("total", pa.table(row))
        found = self.engine.duck.execute(f"SELECT xxhash64({', '.join(map(quoted, row))}) FROM total").fetchall()
        return int(found[0][0])

    def _by_shard(self) -> None:
        """Run the kernels shard by shard, as tasks would."""
        driver, cache, shards = self.driver, self.engine.cache, self.engine.shards
        for i, view in enumerate(self.plan.views):
            operator = view.operator
            if not isinstance(operator, Aggregation) or operator.corrected:
                continue
            partials = gather(operator, driver.frames.get(i, []))
            driver.spread[i] = []
            for shard in range(shards):
                mine = None
                if partials is not None:
                    mine = partials.filter(pl.Series(shard_of(partials["$h"].to_numpy(), shards) == shard))
                states = states_of(cache, operator, driver.version, shard_range(shard, shards))
                outcome = advance(operator, {"rows": mine}, states, driver.clocks[i])
                name = f"{self.given.number:012d}-{self.given.attempt}-{shard}"
                driver.spread[i] += write_outcome(cache.root, operator, outcome, name)
                for into, what in ((driver.changes, outcome.changes), (driver.panes, outcome.panes)):
                    if what is not None:
                        into.setdefault(i, []).append(what)
                driver.dropped.setdefault(i, []).extend(outcome.dropped)


class LocalScript(Script):
    """A script on the local engine."""

    def _loop_of(self, home: Home) -> Any:
        return home.loop(
            self._plan,
            failpoint=self._failpoint,
            engine=lambda plan, ports, root: LocalEngine(plan, ports, root, shards=self.shards),
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
