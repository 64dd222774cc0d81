"""Stored tables for enrichment: every version is a file, so that an epoch that is run again sees the one it saw
before.

The store is the authority on the rows and on the number of the newest version. A new version is written under a hidden
name, committed to the store, and then given its name; `Tables.reconcile` finishes or forgets one that was cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from millstream import paths
from millstream.state.run import sync_directory, write_durably


class StoredTables(Protocol):
    """What tables ask of the store."""

    def put_table(self, name: str, data: pa.Table, version: int) -> None:
        """Replace the rows of a table, and say which version they are."""
        ...

    def table_versions(self) -> Mapping[str, int]:
        """The version of every stored table that has one, by its name."""
        ...

    def table_rows(self, name: str) -> pa.Table:
        """The rows of a stored table, as they were given."""
        ...


class Tables:
    """The stored tables of a home: ``tables/<name>/<version>.arrow``. Versions count from 1 and are never rewritten."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def newest(self) -> Mapping[str, int]:
        """The newest version of every table."""
        found = {}
        for folder in sorted(self._root.glob("*")):
            versions = [int(f.stem) for f in folder.glob("*.arrow") if f.stem.isdigit()]
            if versions:
                found[folder.name] = max(versions)
        return found

    def path(self, name: str, version: int) -> Path:
        """The file of one version of a table."""
        return self._folder(name) / f"{version:06d}.arrow"

    def drop(self, name: str) -> None:
        """Forget a table."""
        paths.delete_tree(self._folder(name), within=self._root)

    def put(self, name: str, data: pa.Table, commit: Callable[[int], None]) -> None:
        """Keep a new version; durable when this returns. `commit` puts it into the store; if that fails, nothing has
        changed.
        """
        version = self.newest().get(self._folder(name).name, 0) + 1
        path = self.path(name, version)
        waiting = path.with_name(f".{path.name}.new")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(waiting, _encoded(data))
        try:
            commit(version)
        except BaseException:
            paths.delete_file(waiting)
            if not any(path.parent.iterdir()):
                paths.delete_folder(path.parent)
            raise
        paths.rename(waiting, path)
        sync_directory(path.parent)

    def reconcile(self, store: StoredTables) -> None:
        """Make the files agree with the store, which says what was committed: a version whose file is missing is
        written again, and files of versions that were never committed go. Called when a home is opened.
        """
        known = {self._folder(n).name: (n, v) for n, v in store.table_versions().items()}
        newest = self.newest()
        for folder, (name, version) in known.items():
            if newest.get(folder, 0) < version:
                path = self.path(name, version)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_durably(path, _encoded(store.table_rows(name)))
        for waiting in self._root.glob("*/.*.arrow*"):
            paths.delete_file(waiting)
        for empty in [f for f in self._root.glob("*") if f.name not in known and f.is_dir() and not any(f.iterdir())]:
            paths.delete_folder(empty)

    def _folder(self, name: str) -> Path:
        """The folder of a table. Names are told apart without regard to case, as in the store."""
        folder = paths.table_folder(self._root, name)
        if folder.exists():
            return folder
        return next((f for f in self._root.glob("*") if f.name.lower() == name.lower()), folder)


def _encoded(data: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, data.schema) as writer:
        writer.write_table(data)
    return sink.getvalue()
