"""Stored tables for enrichment: every version is a file, so that an epoch that is rerun sees the same version.

The store is the authority on the rows and on the number of the newest version. A new version is written under a hidden
name, committed to the store, renamed, and then recorded with its checksum in ``versions.json`` next to it: ``{"table":
"items", "versions": {"000001.arrow": 2774893043}}`` (earlier versions wrote the checksums alone). A table that is
dropped gets a hidden name before the store forgets it. `Tables.reconcile` completes or discards interrupted changes. So
no crash leaves a version that the store does not know: if there is one, the store is older than the files.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson
import pyarrow as pa

from millstream import paths
from millstream.errors import DiskFull, HomeDamaged
from millstream.log.storage.files import encoded
from millstream.runtime.home_dir import HINT
from millstream.state.durable import write_durably
from millstream.state.ipc import ipc_bytes


class StoredTables(Protocol):
    """What stored tables require of the store."""

    def put_table(self, name: str, data: pa.Table, version: int) -> None:
        """Replace the rows of a table and record their version."""
        ...

    def tables(self) -> Mapping[str, Any]:
        """Everything that can be queried, by name."""
        ...

    def table_versions(self) -> Mapping[str, int]:
        """The version of every stored table that has one, by name."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...

    def table_rows(self, name: str) -> pa.Table:
        """The rows of a stored table, as they were written."""
        ...


Opened = TypeVar("Opened", bound=StoredTables)
SUMS = "versions.json"
GONE = ".gone"
"""The suffix of the hidden name of a table that is being dropped."""


def as_table(data: Any) -> pa.Table:
    """Convert rows to an Arrow table: an Arrow table, a polars or pandas frame, or a list of dicts."""
    if isinstance(data, pa.Table):
        return data
    if hasattr(data, "to_arrow"):
        return data.to_arrow()
    if isinstance(data, list):
        return pa.Table.from_pylist(data)
    return pa.Table.from_pandas(data, preserve_index=False)


class Tables:
    """The stored tables of a home: ``tables/<name>/<version>.arrow``. Versions count from 1 and are never rewritten."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._checked: set[tuple[str, int]] = set()

    def newest(self) -> Mapping[str, int]:
        """The newest version of every table."""
        newest = {}
        for folder in self.folders():
            versions = [int(f.stem) for f in folder.glob("*.arrow") if f.stem.isdigit()]
            if versions:
                newest[folder.name] = max(versions)
        return newest

    def folders(self) -> list[Path]:
        """The directories of tables, without those that are being dropped."""
        return sorted(f for f in self._root.glob("*") if not f.name.startswith("."))

    def path(self, name: str, version: int) -> Path:
        """The file of one version of a table."""
        return self._folder(name) / f"{version:06d}.arrow"

    def drop(self, name: str, commit: Callable[[], None]) -> None:
        """Drop a table. `commit` removes it from the store; if that fails, nothing has changed."""
        self._checked = {(n, v) for n, v in self._checked if n.lower() != name.lower()}
        folder = self._folder(name)
        gone = self._root / f".{folder.name}{GONE}"
        if self._root.exists():
            paths.delete_tree(gone, within=self._root)
        if os.path.lexists(folder):
            paths.rename(folder, gone)
            paths.sync_directory(self._root)
        try:
            commit()
        except BaseException:
            if os.path.lexists(gone):
                paths.rename(gone, folder)
            raise
        if os.path.lexists(gone):
            paths.delete_tree(gone, within=self._root)

    def put(self, name: str, data: pa.Table, commit: Callable[[int], None]) -> None:
        """Write a new version; durable when this returns. `commit` puts it into the store; if that fails, nothing has
        changed.
        """
        self.known(name)  # raises if the checksums are damaged, before anything changes
        version = self.newest().get(self._folder(name).name, 0) + 1
        path, content = self.path(name, version), self.encoded(data)
        waiting = path.with_name(f".{path.name}.new")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(waiting, content)
        try:
            commit(version)
        except BaseException:
            paths.delete_file(waiting)
            if not any(path.parent.iterdir()):
                paths.delete_folder(path.parent)
            raise
        paths.rename(waiting, path)
        paths.sync_directory(path.parent)
        with suppress(OSError, DiskFull):  # the rows are stored; the next start records the checksum
            self._note(name, path, content)

    def reconciled(self, store: Opened) -> Opened:
        """Return a store that was just opened, once the files agree with it; close it if they cannot."""
        try:
            self.reconcile(store)
        except BaseException:
            store.close()
            raise
        return store

    def reconcile(self, store: StoredTables) -> None:
        """Make the files agree with the store, which is the authority on what was committed: a version whose file or
        checksum is missing is rewritten, and files of uncommitted versions are removed. Called when a home is opened.
        Refuses a store that is older than the files.
        """
        for gone in self._root.glob(f".*{GONE}"):
            paths.delete_tree(gone, within=self._root)
        known = {self._folder(n).name: (n, v) for n, v in store.table_versions().items()}
        for name in known:
            self.known(name)
        ahead = self.ahead(store.table_versions(), ())
        if ahead:  # only then: in a store that was just opened, the first list of all tables takes long
            ahead = self.ahead(store.table_versions(), store.tables())
        for name, version in ahead.items():
            raise HomeDamaged(
                f"the store does not have version {version} of the table `{name}`",
                detail=f"it is in {self.path(name, version)}; the store is older, or was recreated",
                hint=HINT,
            )
        for name, version in known.values():
            path = self.path(name, version)
            if not os.path.lexists(path):
                content = self.encoded(store.table_rows(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                self._note(name, path, content)  # first: a file never exists next to the checksum of other content
                write_durably(path, content)
            elif path.name not in self.known(name):
                content = self.encoded(store.table_rows(name))
                write_durably(path, content)
                self._note(name, path, content)
        for unfinished in self._root.glob("*/.*"):
            paths.delete_file(unfinished)
        for empty in [f for f in self.folders() if f.name not in known and f.is_dir() and not any(f.iterdir())]:
            paths.delete_folder(empty)

    def ahead(self, versions: Mapping[str, int], tables: Iterable[str]) -> dict[str, int]:
        """Return the newest version of every table that the store lacks or has only in an older version. `tables` are
        all tables in the store: those written by an earlier version of Millstream have no version there.
        """
        known = {n.lower(): v for n, v in versions.items()}
        unnumbered = {n.lower() for n in tables} - set(known)
        return {
            name: version
            for name, version in self.newest().items()
            if name.lower() not in unnumbered and version > known.get(name.lower(), 0)
        }

    def _note(self, name: str, path: Path, content: bytes) -> None:
        """Record the checksum of a version."""
        write_durably(path.with_name(SUMS), noted(path.parent, {**self.known(name), path.name: zlib.crc32(content)}))

    def _folder(self, name: str) -> Path:
        """The directory of a table. Names are case-insensitive, as in the store."""
        folder = paths.table_folder(self._root, name)
        if folder.exists():
            return folder
        return next((f for f in self.folders() if f.name.lower() == name.lower()), folder)

    @staticmethod
    def encoded(data: pa.Table) -> bytes:
        """Encode a table as its file contains it."""
        content: bytes = ipc_bytes(data).to_pybytes()
        return content

    def rows(self, name: str, version: int) -> pa.Table:
        """Read the rows of one version of a table."""
        with pa.ipc.open_file(self.path(name, version).read_bytes()) as file:
            return file.read_all()

    def known(self, name: str) -> dict[str, int]:
        """The checksums of a table's versions, by file; empty if an older version of Millstream wrote them."""
        folder = self._folder(name)
        table, versions = _note_in(folder)
        if table.lower() != folder.name.lower():
            raise HomeDamaged(
                f"the folder {folder} holds the table `{table}`",
                detail="the folders of stored tables were renamed or swapped",
                hint=HINT,
            )
        return versions

    def misplaced(self) -> dict[str, str]:
        """The directories that hold the files of another table, and which table."""
        folders = {}
        for folder in self.folders():
            with suppress(HomeDamaged):  # reported elsewhere
                folders[folder.name] = _note_in(folder)[0]
        return {place: table for place, table in folders.items() if place.lower() != table.lower()}

    def check(self, versions: Mapping[str, int]) -> None:
        """Refuse versions of tables that do not match their checksums; each is checked once."""
        for name, version in versions.items():
            if (name, version) not in self._checked:
                known, path = self.known(name), self.path(name, version)
                for file in (path, *(path.with_name(n) for n in known if n > path.name)):
                    if not file.is_file():
                        raise HomeDamaged(f"the version {file} of the table `{name}` is missing", hint=HINT)
                if path.name in known and zlib.crc32(path.read_bytes()) != known[path.name]:
                    raise HomeDamaged(f"the version {path} of the table `{name}` is damaged", hint=HINT)
                self._checked.add((name, version))


def noted(folder: Path, versions: Mapping[str, int]) -> bytes:
    """Encode the note of a table's directory: the name of the table and the checksums of its files."""
    return encoded({"table": folder.name, "versions": dict(versions)})


def _note_in(folder: Path) -> tuple[str, dict[str, int]]:
    """Read the table that a directory belongs to, and the checksums of its files, from its note."""
    path = folder / SUMS
    if not os.path.lexists(path):
        return folder.name, {}
    try:
        data = path.read_bytes()
        value = orjson.loads(data)["value"]
        if encoded(value) != data:
            raise ValueError("its checksum does not match")
        return (str(value["table"]), dict(value["versions"])) if "versions" in value else (folder.name, dict(value))
    except (OSError, ValueError, KeyError, TypeError) as error:
        detail = error.strerror if isinstance(error, OSError) else "it is not what was written"
        raise HomeDamaged(f"the file {path} cannot be read", detail=detail, hint=HINT) from None
