"""Changes to the file of a store that no process has open: what a restore or a repair does to a copy of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa

from millstream.errors import HomeDamaged
from millstream.model.types.duckdb_values import arrow_table
from millstream.store.names import quoted
from millstream.store.open import failed, opened


def generations(path: Path) -> dict[str, int] | None:
    """The generation of every flow and sink in a store, including dropped ones; None when it cannot be read."""
    try:
        with opened(path, read_only=True, temp=None) as connection:
            flows = connection.execute("SELECT flow FROM millstream.flows").fetchall()
            try:
                by_flow = dict(connection.execute("SELECT flow, generation FROM millstream.generations").fetchall())
            except duckdb.CatalogException:  # written before there were any
                by_flow = {}
            return {**dict.fromkeys((flow for (flow,) in flows), 0), **by_flow}
    except (duckdb.Error, HomeDamaged):
        return None


_KEYED = ("millstream.flows", "millstream.generations", "millstream.failures")


def read_all(path: Path) -> None:
    """Read every table of a store, so that each block is compared with its checksum."""
    try:
        with opened(path, read_only=True, temp=None) as connection:
            rows = connection.execute(
                "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
            ).fetchall()
            for schema, name in rows:
                connection.execute(f"SELECT count(*) FROM {quoted(schema)}.{quoted(name)} AS r WHERE hash(r) = 0")
            for table in _KEYED:  # a scan does not read the index of a key
                for (flow,) in [("",), *connection.execute(f"SELECT flow FROM {table}").fetchall()]:
                    connection.execute(f"SELECT flow FROM {table} WHERE flow = ?", [flow])
    except duckdb.CatalogException:  # written before there were such tables
        return
    except duckdb.Error as error:
        raise HomeDamaged(
            f"the store {path} cannot be read",
            detail=str(error).splitlines()[0],
            hint="`millstream repair` says what can be done",
        ) from None


def stored_table(path: Path, name: str) -> pa.Table | None:
    """The rows of a stored table, as they were written; None when the store has no such table."""
    try:
        return _stored_table(path, name)
    except duckdb.Error as error:
        raise failed(error) from None


def _stored_table(path: Path, name: str) -> pa.Table | None:
    with opened(path, read_only=True, temp=None) as connection:
        try:
            rows = arrow_table(connection.sql(f"SELECT * FROM {quoted(name)}"))
        except duckdb.CatalogException:
            return None
        known = "SELECT arrow FROM millstream.tables WHERE lower(name) = lower(?)"
        try:
            schemas = connection.execute(known, [name]).fetchall()
        except duckdb.CatalogException:  # written before there were any
            schemas = []
        return rows.cast(pa.ipc.read_schema(pa.py_buffer(schemas[0][0]))) if schemas else rows


def kept_catalog(path: Path) -> bytes | None:
    """The catalog of SQL in a store; None when there is none, or it cannot be read."""
    try:
        with opened(path, read_only=True, temp=None) as connection:
            rows = connection.execute("SELECT content FROM millstream.catalog").fetchall()
    except (duckdb.Error, HomeDamaged):
        return None
    return bytes(rows[0][0]) if rows else None


def table_versions(path: Path) -> tuple[dict[str, int], list[str]]:
    """The version of every stored table that has one, and the names of all tables and views."""
    with opened(path, read_only=True, temp=None) as connection:
        tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'"
        names = [n for (n,) in connection.execute(tables).fetchall()]
        try:
            rows = connection.execute("SELECT name, version FROM millstream.tables").fetchall()
        except duckdb.CatalogException:  # written before there were any
            rows = []
        return {n: int(v) for n, v in rows}, names


def put_table(path: Path, name: str, rows: pa.Table, version: int) -> None:
    """Write a version of a stored table to a store, replacing an older one."""
    from millstream.store.duckdb import DuckStore

    store = DuckStore(path)
    try:
        store.put_table(name, rows, version)
    finally:
        store.close()


def following(*known: Mapping[str, int] | None) -> dict[str, int]:
    """Return an unused generation for every flow: the next one, or, where the used ones are unknown, the number of
    seconds since 1970.
    """
    least = int(time.time()) if None in known else 0
    numbers = [k for k in known if k is not None]
    return {f: max(least, 1 + max(k.get(f, 0) for k in numbers)) for f in {f for k in numbers for f in k}}


def set_generations(path: Path, numbers: Mapping[str, int]) -> None:
    """Write the generations of flows into a store."""
    with _open(path) as connection:
        for flow, number in numbers.items():
            connection.execute("INSERT OR REPLACE INTO millstream.generations VALUES (?, ?)", [flow, number])


def drop_flow(path: Path, flow: str, sources: Iterable[str]) -> None:
    """Remove all output of a flow from a store, in one transaction: views, late and wrong records, panes, epochs. Its
    lease stays, and so do the wrong records of a source that another flow reads under the same name.
    """
    with _open(path) as connection:
        connection.execute("BEGIN")
        others = connection.execute("SELECT progress FROM millstream.epochs WHERE flow <> ?", [flow]).fetchall()
        shared = {source for (progress,) in others for source in orjson.loads(progress)["offsets"]}
        views = connection.execute("SELECT name FROM millstream.views WHERE flow = ?", [flow]).fetchall()
        kinds = dict(
            connection.execute(
                "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'main'"
            ).fetchall()
        )
        names = [n + suffix for (n,) in views for suffix in ("", "$rows", "$late", "$panes", "$errors")]
        for name in [*names, *(s + "$errors" for s in sources if s not in shared)]:
            if name in kinds:
                connection.execute(f"DROP {'VIEW' if kinds[name] == 'VIEW' else 'TABLE'} {quoted(name)}")
        for table in ("views", "epochs"):
            connection.execute(f"DELETE FROM millstream.{table} WHERE flow = ?", [flow])
        connection.execute("COMMIT")


def folded(path: Path) -> None:
    """Merge the WAL of a copied store into its file."""
    with _open(path) as connection:
        connection.execute("CHECKPOINT")


class _open:
    """Connect to a store until the end of the block; DuckDB's errors become Millstream errors."""

    def __init__(self, path: Path) -> None:
        self._connection = opened(path, read_only=False, temp=None)

    def __enter__(self) -> duckdb.DuckDBPyConnection:
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._connection.close()
        if isinstance(error, duckdb.Error):
            raise failed(error) from error
