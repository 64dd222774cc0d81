"""The local engine of tests/local.py with all that queries need: explode, and steps behind an aggregate, by DuckDB."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from millstream.clock import EARLIEST, LATEST
from millstream.connect.port import SourcePort
from millstream.engine.binding import bind
from millstream.engine.driver.epoch_io import EpochInput, EpochOutput, polars
from millstream.engine.input.python_batches import called_on_changes
from millstream.errors import EngineFailed
from millstream.home import Home
from millstream.model.flow import Flow
from millstream.model.reserved import OP, PLACE
from millstream.model.types.duckdb_values import arrow_table
from millstream.model.types.schema import Schema
from millstream.plan.parts import Batches, Explode, Op, Project
from millstream.plan.plan import Plan, PlannedSource, Scan
from millstream.state.flow_state import FlowState
from millstream.state.version import Version
from millstream.store.names import quoted
from tests.local import LocalEngine, LocalScript, _duck, _expressions, _LocalWork, _plain

_NAMES = "abcdef"
_HASH = "CREATE OR REPLACE MACRO xxhash64" + ", ".join(
    f"({', '.join(_NAMES[:n])}) AS signed(hash(({', '.join(_NAMES[:n])})))" for n in range(1, 7)
)

_DEFINING = threading.Lock()


def _define_hashes() -> None:
    with _DEFINING:  # engines are cursors of one connection, and flows start in threads of their own
        _defined()


@functools.cache
def _defined() -> None:
    _expressions().cursor().execute(_HASH)


_known_kinds: dict[str, pa.Schema] = {}
"""The types of what ops give, by the types of what they are given."""


class QueryEngine(LocalEngine):
    """Performs epochs of the plans that SQL makes."""

    def __init__(self, plan: Plan, ports: Mapping[str, SourcePort], state: FlowState, **options: Any) -> None:
        _define_hashes()
        self._projected = bind._projected
        bind._projected = lambda _, schema, ops: self._kinds_of(schema, ops)
        try:
            super().__init__(plan, ports, state, **options)
        finally:
            bind._projected = self._projected

    def run(self, version: Version, epoch_input: EpochInput) -> EpochOutput:
        return self.perform(_QueryWork, version, epoch_input)

    def _kinds_of(self, schema: pa.Schema, ops: Sequence[Op]) -> pa.Schema:
        what = f"{schema.to_string(truncate_metadata=False)} {ops}"
        if what not in _known_kinds:
            _known_kinds[what] = _kinds(self.projected(ops, schema.empty_table()).schema)
        return _known_kinds[what]

    def _types(self, source: PlannedSource, scan: Scan) -> dict[str, pa.DataType]:
        return {n: _small(t) for n, t in super()._types(source, scan).items()}

    def projected(self, ops: Sequence[Op], table: pa.Table) -> pa.Table:
        """What ops make of rows; their kind of change and their order stay if they are there."""
        for op in ops:
            if isinstance(op, Batches):
                named = OP in table.column_names  # if not, only the types are asked for
                done = called_on_changes(op, table if named else table.append_column(OP, pa.nulls(0, pa.string())))
                table = done if named else done.drop_columns(OP)
                continue
            self.duck.register("changed", table)
            shown = [quoted(c) for c in table.column_names if c == OP or c.startswith(PLACE)]
            if isinstance(op, Explode):
                array = _duck(op.array)
                array = f"CASE WHEN len({array}) > 0 THEN {array} ELSE [NULL] END" if op.keep_empty else array
                shown = [quoted(c) for c in table.column_names if c != op.name]
                shown.append(f"unnest({array}) AS {quoted(op.name)}")
                table = arrow_table(self.duck.sql(f"SELECT {', '.join(shown)} FROM changed"))
                continue
            assert isinstance(op, Project), "stored tables and Python are for Spark"
            shown += [f"{_duck(c.sql)} AS {quoted(c.name)}" for c in op.columns]
            if not shown:  # only the types of no columns are asked for
                return pa.table({})
            kept = "" if op.keep is None else f" WHERE {_duck(op.keep)}"
            table = arrow_table(self.duck.sql(f"SELECT {', '.join(shown)} FROM changed{kept}"))
        return table

    def columns(self, source: PlannedSource, scan: Scan, table: pa.Table, now: int = 0) -> pl.DataFrame:
        if not scan.ops:
            return super().columns(source, scan, table, now)
        time = source.options.event_time
        table = self.with_time(source, table, now)
        rows = table.append_column("$ts", table[time].cast(pa.int64())) if time and table.num_rows else None
        if rows is None:
            rows = table.append_column("$ts", pa.array([now] * table.num_rows, pa.int64()))
        inside = pc.and_(pc.greater_equal(rows["$ts"], EARLIEST), pc.less_equal(rows["$ts"], LATEST))
        rows = rows.filter(pc.and_(pc.equal(rows["$bad"], 0), inside))
        for op in scan.ops:
            rows = self._op(op, rows)
        system = ["$ts", "$part", "$pos", "$bad"]
        shown = [quoted(c) for c in system] + [f"{_duck(c.sql)} AS {quoted(c.name)}" for c in scan.columns]
        self.duck.register("opened", rows)
        return polars(arrow_table(self.duck.sql(f"SELECT {', '.join(shown)} FROM opened")))

    def _op(self, op: Any, rows: pa.Table) -> pa.Table:
        self.duck.register("opened", rows)
        others = ", ".join(quoted(c) for c in rows.column_names if c.startswith("$") or isinstance(op, Explode))
        if isinstance(op, Explode):
            array = _duck(op.array)
            array = f"CASE WHEN len({array}) > 0 THEN {array} ELSE [NULL] END" if op.keep_empty else array
            return arrow_table(self.duck.sql(f"SELECT {others}, unnest({array}) AS {quoted(op.name)} FROM opened"))
        assert isinstance(op, Project), "stored tables and Python are for Spark"
        shown = ", ".join(f"{_duck(c.sql)} AS {quoted(c.name)}" for c in op.columns)
        kept = "" if op.keep is None else f" WHERE {_duck(op.keep)}"
        return arrow_table(self.duck.sql(f"SELECT {others}, {shown} FROM opened{kept}"))


def _kinds(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, _small(f.type)) for f in schema])


def _small(kind: pa.DataType) -> pa.DataType:
    """A type as Spark would name it, and what is inside it too."""
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_small(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _small(f.type)) for f in kind])
    return _plain(pa.schema([pa.field("x", kind)])).field("x").type


class _QueryWork(_LocalWork):
    engine: QueryEngine

    def computed(self, ops: Sequence[Op], changes: pa.Table, *, quiet: bool = False) -> pa.Table:
        try:
            return self.engine.projected(ops, changes)
        except duckdb.Error as error:
            raise EngineFailed("DuckDB stopped", detail=str(error)) from error


class QueryScript(LocalScript):
    """A script over topics, on that engine. Tasks of executors run only where a test asks for several shards."""

    def __init__(self, flow: Flow, path: str | Path, *, shards: int = 1, **options: Any) -> None:
        super().__init__(flow, path, shards=shards, **options)

    def _loop_of(self, home: Home) -> Any:
        return home.loop(
            self._plan,
            failpoint=self._failpoint,
            engine=lambda plan, ports, root: QueryEngine(
                plan, ports, root, shards=self.shards, placement=self.placement
            ),
        )


def with_topics(path: Path, schemas: Mapping[str, Schema]) -> Path:
    """A home with these topics."""
    home = Home(path)
    try:
        for name, schema in schemas.items():
            home.topic(name, schema=schema)
    finally:
        home.close()
    return path
