"""The embedded store: views are tables of one DuckDB file.

System tables are in the schema ``millstream``: ``flows`` (lease), ``epochs`` (the last ones of every flow), ``views``
(their descriptions), ``tables`` (the version of each stored table), ``catalog`` (a copy of catalog.json) and
``generations`` (of flows, and of sinks as ``flow/sink``; they outlive a flow). A view with hidden columns is stored as
``<name>$rows`` and exposed through an SQL view.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa

from millstream.budget import Budget, usual_total
from millstream.errors import DuplicateName, HomeDamaged, IncompatibleChange
from millstream.limits import Limits
from millstream.model.dead_letters import ERRORS, LATE, REPLAYED_IN
from millstream.store.epoch_commit import REPLAYABLE, commit_epoch
from millstream.store.names import Columns, declared, quoted, stored_name
from millstream.store.open import copy_files, failed, is_damage, opened, reopened
from millstream.store.port import AsOf, EpochCommit, EpochRow, ViewSpec, WriterState
from millstream.store.query import Used, begin
from millstream.store.query import answered as answered_here
from millstream.store.query_errors import explained
from millstream.store.statements import WRITER_STATE, forget_writer_states, note_writer_state
from millstream.store.statements import columns_of as _columns
from millstream.store.statements import count as _count
from millstream.store.statements import drop_view as _drop
from millstream.store.statements import raise_generation as _raise
from millstream.store.statements import value as _value
from millstream.store.subprocess_query import answered as answered_apart
from millstream.store.subprocess_query import discard_leftovers
from millstream.store.transaction import Transaction

_TAKEN = "SELECT 1 FROM duckdb_tables() WHERE schema_name = 'main' AND lower(table_name) = lower(?)"
_GENERATION = "SELECT max(generation) FROM millstream.generations WHERE flow IN (?, ?, '')"
_GONE = "left out"
"""The fingerprint of a view that its flow no longer has."""
_ERRORS, _LATE = declared(ERRORS), declared([*LATE, REPLAYED_IN])


class DuckStore:
    """A store in one file. Queries run on separate cursors and see whole epochs only."""

    dialect = "duckdb"

    def __init__(
        self, path: Path, *, read_only: bool = False, temp: Path | None = None, limits: Limits | None = None
    ) -> None:
        self.path, self._temp = path, temp
        self.limits = limits if limits is not None else Limits()
        """The default limits of a query."""
        self.budget = Budget(usual_total(path.parent))
        """The budget of all queries together."""
        self._connection = opened(path, read_only=read_only, temp=temp)
        if temp is not None:
            discard_leftovers(temp)
        self._invalid = False
        """Set after a fatal error, such as a full disk during a checkpoint: DuckDB then refuses all work."""
        self._writing, self._handing = threading.Lock(), threading.Lock()
        self._views: dict[str, dict[str, ViewSpec]] = {}
        self._known: dict[str, Columns] | None = None
        self._table_changes = 0
        self._failures: dict[str, str] | None = None
        self._used = Used(self._cursor)

    def prepare(self, flow: str, views: Sequence[ViewSpec], sources: Sequence[str]) -> None:
        """Create missing tables; refuse a view whose meaning has changed while its rows were kept."""
        with self._writing, self._transaction() as cursor:
            mine = "SELECT name, fingerprint FROM millstream.views WHERE flow = ?"
            known = dict(cursor.execute(mine, [flow]).fetchall())
            gone = {n for n, f in known.items() if f == _GONE}
            owners = dict(cursor.execute("SELECT name, flow FROM millstream.views WHERE flow <> ?", [flow]).fetchall())
            for view in views:
                if view.name in owners:
                    raise IncompatibleChange(
                        f"the view `{view.name}` belongs to the flow `{owners[view.name]}`",
                        hint="give one of the two views another name",
                    )
                if view.name not in gone and known.get(view.name, view.fingerprint) != view.fingerprint:
                    raise IncompatibleChange(
                        f"the view `{view.name}` was changed, and its state does not match the new definition",
                        hint="give the changed view a new name, or start with a new home",
                    )
                if view.name in gone:
                    raise IncompatibleChange(
                        f"the view `{view.name}` was left out of the flow for a while and has missed records since",
                        hint="give it a new name; the rows it had can still be queried under the old one",
                    )
                elif view.name in known and view.kept and _columns(cursor, stored_name(view)) != view.schema.names:
                    raise IncompatibleChange(
                        f"the stored rows of the view `{view.name}` have other columns than its definition",
                        hint="give the changed view a new name, or start with a new home",
                    )
                if view.name not in known:
                    if _value(cursor, _TAKEN, [view.name]):
                        raise IncompatibleChange(
                            f"the name `{view.name}` is taken by a stored table", hint="give the view another name"
                        )
                    self._create(cursor, flow, view)
                elif view.ordered:  # it had none while it was not known that its rows can be late
                    cursor.execute(f"CREATE TABLE IF NOT EXISTS {quoted(view.name + '$late')} ({_LATE})")
                self._views.setdefault(flow, {})[view.name] = view
            for name in known.keys() - {v.name for v in views}:
                cursor.execute("UPDATE millstream.views SET fingerprint = ? WHERE name = ?", [_GONE, name])
            for source in sources:
                cursor.execute(f"CREATE TABLE IF NOT EXISTS {quoted(source + '$errors')} ({_ERRORS})")
        self._altered()

    def _create(self, cursor: duckdb.DuckDBPyConnection, flow: str, view: ViewSpec) -> None:
        if view.kept:
            cursor.execute(f"CREATE TABLE {quoted(stored_name(view))} ({declared(view.schema)})")
        if view.kept and stored_name(view) != view.name:
            columns = ", ".join(quoted(c) for c in view.columns)
            cursor.execute(f"CREATE VIEW {quoted(view.name)} AS SELECT {columns} FROM {quoted(stored_name(view))}")
        if view.identity is not None or view.ordered:
            cursor.execute(f"CREATE TABLE {quoted(view.name + '$late')} ({_LATE})")
        if view.panes is not None:
            cursor.execute(f"CREATE TABLE {quoted(view.name + '$panes')} ({declared(view.panes)})")
        kind = "keyed" if view.identity is not None else "ordered" if view.ordered else "append"
        cursor.execute(
            "INSERT INTO millstream.views VALUES (?, ?, ?, ?, ?)",
            [view.name, flow, kind if view.kept else "sink", view.fingerprint, view.retention],
        )

    def take_lease(self, flow: str, owner: str) -> int:
        """Increment the flow's token."""
        with self._writing, self._transaction() as cursor:
            token = (_value(cursor, "SELECT token FROM millstream.flows WHERE flow = ?", [flow]) or 0) + 1
            cursor.execute("INSERT OR REPLACE INTO millstream.flows VALUES (?, ?, ?)", [flow, token, owner])
            return int(token)

    def commit(self, commit: EpochCommit) -> None:
        """Apply an epoch in one transaction."""
        with self._writing, self._transaction() as cursor:
            commit_epoch(cursor, commit, self._views.get(commit.flow, {}))

    def late_times(self, view: str) -> list[int]:
        """The event times of late records that were not replayed yet."""
        late = quoted(view + "$late")
        sql = f"SELECT DISTINCT epoch_us(event_time) FROM {late} WHERE {REPLAYABLE} ORDER BY 1"
        return [r[0] for r in self._rows(sql)]

    def all_rows(self, view: str) -> pa.Table:
        """All rows of a view, including its hidden columns."""
        spec = next(v for views in self._views.values() for v in views.values() if v.name == view)
        return self._whole(stored_name(spec))

    def last(self, flow: str) -> EpochRow | None:
        """The newest epoch of a flow."""
        rows = self.epochs(flow, 1)
        return rows[0] if rows else None

    def epochs(self, flow: str, most: int) -> list[EpochRow]:
        """The newest epochs of a flow, newest first."""
        sql = (
            "SELECT number, plan, slices, clock, version, progress FROM millstream.epochs WHERE flow = ? "
            "ORDER BY number DESC LIMIT ?"
        )
        try:
            rows = self._cursor().execute(sql, [flow, most]).fetchall()
            return [EpochRow(n, plan, *(orjson.loads(x) for x in rest)) for n, plan, *rest in rows]
        except duckdb.FatalException as error:
            self._noted(error)
            raise failed(error) from None
        except (duckdb.Error, ValueError, TypeError) as error:
            raise HomeDamaged(
                f"the epochs of `{flow}` in the store {self.path} cannot be read",
                detail=str(error).splitlines()[0],
                hint="`millstream repair` says what can be done",
            ) from None

    def generation(self, flow: str, sink: str = "") -> int:
        """How often a flow, or one of its sinks, was reset: restored to an earlier epoch, or dropped and recreated. The
        same epoch may have had different content before.
        """
        try:
            return self._one(_GENERATION, [flow, f"{flow}/{sink}"]) or 0
        except duckdb.CatalogException:  # read-only, and written before there were any
            return 0

    def raise_generation(self, flow: str, sink: str, least: int) -> None:
        """Raise the generation of a sink to at least this value."""
        with self._writing, self._transaction() as cursor:
            _raise(cursor, f"{flow}/{sink}", least)

    def copied(self, to: Path, meanwhile: Callable[[], None]) -> None:
        """Copy the store to a new file, as of one epoch of every flow; no epoch is committed until `meanwhile` returns.
        A subprocess copies: closing a file here would release DuckDB's lock on it.
        """
        with self._writing:
            try:
                self._cursor().execute("CHECKPOINT")
            except duckdb.Error as error:  # readers may be active; what is not in the file is in the WAL next to it
                self._noted(error)
            copy_files(self.path, to)
            meanwhile()

    def kept_catalog(self) -> bytes | None:
        """The last saved catalog of SQL; None when there is none."""
        content = self._one("SELECT content FROM millstream.catalog")
        return None if content is None else bytes(content)

    def keep_catalog(self, content: bytes) -> None:
        """Save the catalog of SQL, replacing the previous one."""
        with self._writing, self._transaction() as cursor:
            cursor.execute("DELETE FROM millstream.catalog")
            cursor.execute("INSERT INTO millstream.catalog VALUES (?)", [content])

    def flows(self) -> list[str]:
        """The flows that have run in this home."""
        return [r[0] for r in self._rows("SELECT flow FROM millstream.flows ORDER BY flow")]

    def fingerprints(self, flow: str) -> dict[str, str]:
        """The plan fingerprint that the rows of each view of a flow come from."""
        sql = "SELECT name, fingerprint FROM millstream.views WHERE flow = ?"
        return dict(self._rows(sql, [flow]))

    def note_failure(self, flow: str, status: str | None) -> None:
        """Record why a flow has stopped; None: it runs again."""
        if status is None and flow not in self.failures():
            return
        with self._writing, self._transaction() as cursor:
            cursor.execute("DELETE FROM millstream.failures WHERE flow = ?", [flow])
            if status is not None:
                cursor.execute("INSERT INTO millstream.failures VALUES (?, ?)", [flow, status])
        self._failures = None

    def failures(self) -> dict[str, str]:
        """The flows that have stopped because they failed, and why."""
        if self._failures is None:
            try:
                rows = self._rows("SELECT flow, said FROM millstream.failures")
            except duckdb.CatalogException:  # read-only, and written before there were any
                rows = []
            self._failures = {flow: status for flow, status in rows}
        return dict(self._failures)

    def flow_of_view(self, name: str) -> str | None:
        """The flow that a view belongs to; for ``v$late``, that of ``v``."""
        sql = "SELECT flow FROM millstream.views WHERE lower(name) = lower(?)"
        flow: str | None = self._one(sql, [name.partition("$")[0]])
        return flow

    def views(self) -> list[dict[str, Any]]:
        """The views with their numbers of rows and late rows."""
        listed = []
        with self._transaction() as cursor:  # a view that is dropped in the meantime is listed as it was
            entries = cursor.execute("SELECT name, flow, kind FROM millstream.views ORDER BY flow, name").fetchall()
            for name, flow, kind in entries:
                if kind != "sink":
                    rows = _count(cursor, name)
                    late = _count(cursor, name + "$late") if kind != "append" else 0
                    listed.append({"view": name, "flow": flow, "rows": rows, "late": late})
        return listed

    def members(self, flow: str) -> set[str]:
        """The names of the views and sinks that a flow has had."""
        sql = "SELECT name FROM millstream.views WHERE flow = ?"
        return {name for (name,) in self._rows(sql, [flow])}

    def tables(self) -> dict[str, Columns]:
        """Every table that may be read, with its columns. Cached, because every query needs them."""
        known, table_changes = self._known, self._table_changes
        if known is None:
            rows = self._rows(
                "SELECT table_name, list(column_name ORDER BY column_index), list(data_type ORDER BY column_index) "
                "FROM duckdb_columns() "
                "WHERE schema_name = 'main' AND NOT internal AND table_name NOT LIKE '%$rows' GROUP BY table_name"
            )
            known = {name: Columns.of(columns, types) for name, columns, types in rows}
            if table_changes == self._table_changes:  # no table was created or dropped in the meantime
                self._known = known
        return dict(known)

    def _altered(self) -> None:
        """Invalidate the cache after tables were created or dropped."""
        self._table_changes += 1
        self._known = None

    def put_table(self, name: str, data: pa.Table, version: int = 0, writer_state: WriterState | None = None) -> None:
        """Replace a stored table and record its version; `writer_state` names the sink and epoch of the rows."""
        with self._writing, self._transaction() as cursor:
            flow = _value(cursor, "SELECT flow FROM millstream.views WHERE lower(name) = lower(?)", [name])
            if flow is not None:
                raise DuplicateName(
                    f"`{name}` is a view of the flow `{flow}`", hint="give the stored table another name"
                )
            cursor.register("$given", data)
            cursor.execute(f'CREATE OR REPLACE TABLE {quoted(name)} AS SELECT * FROM "$given"')
            cursor.unregister("$given")
            cursor.execute("DELETE FROM millstream.tables WHERE lower(name) = lower(?)", [name])
            arrow = data.schema.serialize().to_pybytes()
            cursor.execute("INSERT INTO millstream.tables VALUES (?, ?, ?)", [name, version, arrow])
            if writer_state is not None:
                note_writer_state(cursor, name, writer_state)
        self._altered()

    def writer_state(self, name: str, writer: str) -> WriterState:
        """The last epoch of a sink that a stored table has (-1: none), and the keys that were recorded with it."""
        (row,) = self._rows(WRITER_STATE, [name, writer])
        return WriterState(writer, *row)

    def table_versions(self) -> dict[str, int]:
        """The version of every stored table, by its name."""
        rows = self._rows("SELECT name, version FROM millstream.tables ORDER BY name")
        return {name: int(version) for name, version in rows}

    def table_rows(self, name: str) -> pa.Table:
        """The rows of a stored table, as they were written."""
        schema = self._one("SELECT arrow FROM millstream.tables WHERE name = ?", [name])
        return self._whole(name).cast(pa.ipc.read_schema(pa.py_buffer(schema)))

    def forget_table(self, name: str) -> None:
        """Drop a stored table."""
        with self._writing, self._transaction() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
            cursor.execute("DELETE FROM millstream.tables WHERE lower(name) = lower(?)", [name])
            forget_writer_states(cursor, name)
        self._altered()

    def forget_view(self, name: str, flow: str) -> None:
        """Drop a view or sink of a flow (case-insensitive), with its rows, late records and panes. A later sink of the
        same name in this flow gets a new generation.
        """
        with self._writing, self._transaction() as cursor:
            known = cursor.execute(
                "SELECT name FROM millstream.views WHERE lower(name) = lower(?) AND flow = ?", [name, flow]
            ).fetchall()
            for (spelled,) in known:
                sink = f"{flow}/{spelled}"
                _raise(cursor, sink, (_value(cursor, _GENERATION, [flow, sink]) or 0) + 1)
                _drop(cursor, spelled)
        self._altered()
        for (spelled,) in known:
            self._views.get(flow, {}).pop(spelled, None)

    def forget_flow(self, flow: str) -> None:
        """Drop everything of a flow: its views, its epochs and its lease. Its generation remains and increases, so that
        what a new flow of this name writes to the same topics and directories is distinguished from what this one
        wrote.
        """
        with self._writing, self._transaction() as cursor:
            for (name,) in cursor.execute("SELECT name FROM millstream.views WHERE flow = ?", [flow]).fetchall():
                _drop(cursor, name)
            mine = "SELECT max(generation) FROM millstream.generations WHERE flow = ? OR starts_with(flow, ? || '/')"
            _raise(cursor, flow, (_value(cursor, mine, [flow, flow]) or 0) + 1)
            for table in ("flows", "epochs", "failures"):
                cursor.execute(f"DELETE FROM millstream.{table} WHERE flow = ?", [flow])
        self._altered()
        self._failures = None
        self._views.pop(flow, None)

    def query(
        self,
        sql: str,
        inputs: Mapping[str, pa.Table] | None = None,
        *,
        limits: Limits | None = None,
        apart: Sequence[str] | None = None,
        as_of: AsOf | None = None,
    ) -> pa.Table:
        """Answer a validated SELECT in the store's own dialect; `inputs` are tables for this query only.

        `apart` are the tables that it reads, if it may need much memory: then it runs in a subprocess. Raises
        LimitExceeded when it needs more time or memory than `limits` (by default those of the store) allow. The epochs
        that the result reflects are added to `as_of`.
        """
        return self._answered(sql, inputs or {}, limits or self.limits, apart, self.budget, as_of)

    def _whole(self, table: str) -> pa.Table:
        """All rows of a table, for internal work of the home: without limits, and outside the budget."""
        return self._answered(f"SELECT * FROM {quoted(table)}", {}, Limits(0, 0), None, Budget(0))

    def _answered(
        self,
        sql: str,
        inputs: Mapping[str, pa.Table],
        limits: Limits,
        apart: Sequence[str] | None,
        budget: Budget,
        as_of: AsOf | None = None,
    ) -> pa.Table:
        cursor = self._cursor()
        try:
            begin(cursor, as_of)
            if apart is not None:
                return answered_apart(cursor, sql, apart, inputs, limits, self._temp, budget)
            return answered_here(cursor, sql, inputs, limits, self._used, budget)
        except duckdb.Error as error:
            self._noted(error)
            raise (failed(error) if is_damage(error) else explained(str(error))) from None
        finally:
            cursor.close()

    def close(self) -> None:
        """Checkpoint and close."""
        with self._writing, self._handing:
            self._connection.close()

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """A separate connection for one piece of work; the parent connection serves one caller at a time."""
        with self._handing:
            if self._invalid:
                self._connection.close()
                self._connection = reopened(self.path, temp=self._temp)
                self._invalid = False
            return self._connection.cursor()

    def _rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of an internal query. Errors of the file become Millstream errors."""
        try:
            return self._cursor().execute(sql, parameters).fetchall()
        except duckdb.CatalogException:  # an older store, opened read-only, lacks a table
            raise
        except duckdb.Error as error:
            self._noted(error)
            raise failed(error) from None

    def _one(self, sql: str, parameters: Sequence[object] = ()) -> Any:
        """The first value of such a query; None when there is no row."""
        rows = self._rows(sql, parameters)
        return rows[0][0] if rows else None

    def _noted(self, error: duckdb.Error, *, committing: bool = False) -> None:
        """After a fatal error or a failed commit, let the next piece of work reopen the file: only the file shows what
        was committed. DuckDB may have written a transaction whose commit it reports as failed.
        """
        if committing or isinstance(error, duckdb.FatalException):
            with self._handing:
                self._invalid = True

    def _transaction(self) -> Transaction:
        return Transaction(self._cursor(), self._noted)
