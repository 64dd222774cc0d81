"""Parts of the store's transactions: each uses a cursor, inside a transaction that its caller has opened."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.reserved import OP
from millstream.store.names import quoted, stored_name
from millstream.store.port import ViewSpec, WriterState

WRITER_STATE = (
    "SELECT coalesce(max(t.epoch), -1), any_value(w.keys) FROM millstream.taken t "
    "LEFT JOIN millstream.written w ON lower(w.name) = lower(t.name) AND w.writer = t.writer "
    "WHERE lower(t.name) = lower(?) AND t.writer = ?"
)
"""What a stored table has of a sink."""


def as_json(value: Any) -> str:
    """Encode a value as the store keeps it."""
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


def drop_view(cursor: duckdb.DuckDBPyConnection, view: str) -> None:
    """Drop a view, with its rows, its late records and its panes."""
    for (kind,) in cursor.execute(
        "SELECT 'VIEW' FROM duckdb_views() WHERE schema_name = 'main' AND view_name = ? "
        "UNION ALL SELECT 'TABLE' FROM duckdb_tables() WHERE schema_name = 'main' AND table_name = ?",
        [view, view],
    ).fetchall():
        cursor.execute(f"DROP {kind} {quoted(view)}")
    for suffix in ("$rows", "$late", "$panes", "$errors"):
        cursor.execute(f"DROP TABLE IF EXISTS {quoted(view + suffix)}")
    cursor.execute("DELETE FROM millstream.views WHERE name = ?", [view])


def apply_changes(cursor: duckdb.DuckDBPyConnection, view: ViewSpec, changes: pa.Table, *, upsert: bool) -> None:
    """Apply changes to the rows of a view."""
    table = quoted(stored_name(view))
    columns = ", ".join(quoted(n) for n in view.schema.names)
    cursor.register("$changes", changes)
    try:
        if view.identity is not None:
            if upsert or pc.unique(changes[OP]).to_pylist() != ["+I"]:
                match = (
                    " AND ".join(f"t.{quoted(k)} IS NOT DISTINCT FROM c.{quoted(k)}" for k in view.identity) or "true"
                )
                which = match if upsert else f"c.{quoted(OP)} <> '+I' AND {match}"
                cursor.execute(f'DELETE FROM {table} t USING "$changes" c WHERE {which}')
        cursor.execute(
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM \"$changes\" WHERE {quoted(OP)} IN ('+I', '+U')"
        )
    finally:
        with suppress(duckdb.Error):  # the first error is the one to report
            cursor.unregister("$changes")


def note_writer_state(cursor: duckdb.DuckDBPyConnection, table: str, writer_state: WriterState) -> None:
    """Record the last epoch of a sink that a stored table has, and the keys that its query has rows for."""
    forget_writer_states(cursor, table, writer_state.writer)
    cursor.execute("INSERT INTO millstream.taken VALUES (?, ?, ?)", [table, writer_state.writer, writer_state.epoch])
    if writer_state.keys is not None:
        cursor.execute(
            "INSERT INTO millstream.written VALUES (?, ?, ?)", [table, writer_state.writer, writer_state.keys]
        )


def forget_writer_states(cursor: duckdb.DuckDBPyConnection, table: str, writer: str | None = None) -> None:
    """Remove what a stored table has of one sink, or of all."""
    for noted in ("taken", "written"):
        cursor.execute(
            f"DELETE FROM millstream.{noted} WHERE lower(name) = lower($1) AND coalesce(writer = $2, true)",
            [table, writer],
        )


def raise_generation(cursor: duckdb.DuckDBPyConnection, key: str, least: int) -> None:
    """Raise the generation of a flow, or of one sink, to at least this value."""
    cursor.execute(
        "INSERT INTO millstream.generations VALUES (?, ?) "
        "ON CONFLICT (flow) DO UPDATE SET generation = greatest(generation, excluded.generation)",
        [key, least],
    )


def insert(cursor: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Add rows to a table."""
    cursor.register("$given", table)
    columns = ", ".join(quoted(c) for c in table.column_names)
    cursor.execute(f'INSERT INTO {quoted(name)} ({columns}) SELECT {columns} FROM "$given"')
    cursor.unregister("$given")


def remove(cursor: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Remove errors from a table: `times` of each `partition` and `raw`, the oldest first."""
    cursor.register("$given", table)
    cursor.execute(
        f"DELETE FROM {quoted(name)} WHERE rowid IN (SELECT e.id FROM (SELECT rowid AS id, partition, raw, "
        f"row_number() OVER (PARTITION BY partition, raw ORDER BY epoch, rowid) AS nth FROM {quoted(name)}) e "
        'JOIN "$given" g ON g.partition = e.partition AND g.raw = e.raw WHERE e.nth <= g.times)'
    )
    cursor.unregister("$given")


def count(cursor: duckdb.DuckDBPyConnection, name: str) -> int:
    """The number of rows of a table."""
    return int(value(cursor, f"SELECT count(*) FROM {quoted(name)}"))


def value(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any] = ()) -> Any:
    """The single value of a query, or None when it has no row. (A result must be fetched to its end.)"""
    rows = cursor.execute(sql, list(parameters)).fetchall()
    return rows[0][0] if rows else None


def columns_of(cursor: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """The columns of a table, in order; none when it does not exist. (DuckDB's own list of columns is slower.)"""
    try:
        result = cursor.execute(f"SELECT * FROM main.{quoted(table)} LIMIT 0")
    except duckdb.CatalogException:
        return []
    names = [column[0] for column in result.description or ()]
    result.fetchall()
    return names
