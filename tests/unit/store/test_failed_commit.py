"""A commit that DuckDB reports as failed, as on a full disk, may be in the file: the store reads it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millstream.errors import DiskFull, HomeDamaged
from millstream.store.duckdb import DuckStore


class Full:
    """A cursor whose commit fails, and is undone in memory."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def execute(self, sql: str, *given: Any) -> Any:
        if sql == "COMMIT":
            self._cursor.execute("ROLLBACK")
            raise duckdb.TransactionException("Failed to commit: Could not write file: No space left on device")
        return self._cursor.execute(sql, *given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def test_the_file_is_opened_anew_after_a_commit_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DuckStore(tmp_path / "store.duckdb")
    store.put_table("t", pa.table({"i": [1]}), 1)
    before, real = store._connection, store._cursor
    with monkeypatch.context() as patch:
        patch.setattr(store, "_cursor", lambda: Full(real()))
        with pytest.raises(DiskFull):
            store.put_table("t", pa.table({"i": [2]}), 2)
    assert store.table_versions() == {"t": 1}
    assert store._connection is not before, "what is in memory may not be what is in the file"
    store.put_table("t", pa.table({"i": [3]}), 2)
    assert store.query("SELECT i FROM t").to_pylist() == [{"i": 3}]
    store.close()


def test_questions_are_answered_on_a_disk_that_became_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DuckStore(tmp_path / "store.duckdb")
    store.put_table("t", pa.table({"i": [1]}), 1)
    connect, real = duckdb.connect, store._cursor

    def refused(path: str, read_only: bool = False, **more: Any) -> duckdb.DuckDBPyConnection:
        if not read_only:
            raise duckdb.IOException(f'Cannot open file "{path}": Read-only file system')
        return connect(path, read_only=read_only, **more)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_cursor", lambda: Full(real()))
        with pytest.raises(DiskFull):
            store.put_table("t", pa.table({"i": [2]}), 2)
    monkeypatch.setattr(duckdb, "connect", refused)
    assert store.query("SELECT i FROM t").to_pylist() == [{"i": 1}]
    with pytest.raises(HomeDamaged, match="the disk of the store is mounted read-only") as raised:
        store.put_table("t", pa.table({"i": [3]}), 2)
    assert "repair" not in (raised.value.hint or "")
    store.close()
