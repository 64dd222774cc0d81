"""The files of a home's store: their names, and how they are opened. Only checkpoints and repairs copy and replace
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from millstream.limits import Limits

if TYPE_CHECKING:
    from millstream.store.port import Store

STORE_FILE = "store.duckdb"
WAL_FILE = "store.duckdb.wal"
"""The WAL: what is committed but not in the file yet."""
STORE_FILES = (STORE_FILE, WAL_FILE)


def store_file(home: Path) -> Path:
    """The file of the store of a home."""
    return home / STORE_FILE


def has_store(home: Path) -> bool:
    """Whether a home has a store."""
    return store_file(home).exists()


def open_store(home: Path, *, read_only: bool = False, temp: Path | None = None, limits: Limits | None = None) -> Store:
    """Open the store of a home for writing, creating it if it does not exist."""
    from millstream.store.duckdb import DuckStore

    return DuckStore(store_file(home), read_only=read_only, temp=temp, limits=limits)
