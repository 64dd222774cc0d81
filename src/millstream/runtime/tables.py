"""Stored tables for enrichment: every version is a file, so that an epoch that is run again sees the one it saw
before.

The store is the authority on the rows and on the number of the newest version. A new version is written under a hidden
name, committed to the store, given its name, and then noted with its checksum in ``versions.json`` beside it;
`Tables.reconcile` finishes or forgets one that was cut off.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import orjson
import pyarrow as pa

from millstream import paths
from millstream.errors import HomeDamaged
from millstream.log.files import encoded
from millstream.runtime.place import HINT
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


SUMS = "versions.json"


def as_table(data: Any) -> pa.Table:
    """Rows as an Arrow table: one already, a frame of polars or pandas, or a list of dicts."""
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
        self._checked = {(n, v) for n, v in self._checked if n.lower() != name.lower()}
        paths.delete_tree(self._folder(name), within=self._root)

    def put(self, name: str, data: pa.Table, commit: Callable[[int], None]) -> None:
        """Keep a new version; durable when this returns. `commit` puts it into the store; if that fails, nothing has
        changed.
        """
        self.known(name)  # says so if the checksums are damaged, before anything changes
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
        sync_directory(path.parent)
        self._note(name, path, content)

    def reconcile(self, store: StoredTables) -> None:
        """Make the files agree with the store, which says what was committed: a version whose file or checksum is
        missing is written again, and files of versions that were never committed go. Called when a home is opened.
        """
        known = {self._folder(n).name: (n, v) for n, v in store.table_versions().items()}
        for name, version in known.values():
            path = self.path(name, version)
            if not os.path.lexists(path):
                content = self.encoded(store.table_rows(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                self._note(name, path, content)  # first: a file is never beside the checksum of another content
                write_durably(path, content)
            elif path.name not in self.known(name):
                content = self.encoded(store.table_rows(name))
                write_durably(path, content)
                self._note(name, path, content)
        for unfinished in self._root.glob("*/.*"):
            paths.delete_file(unfinished)
        for empty in [f for f in self._root.glob("*") if f.name not in known and f.is_dir() and not any(f.iterdir())]:
            paths.delete_folder(empty)

    def _note(self, name: str, path: Path, content: bytes) -> None:
        """Keep the checksum of a version."""
        write_durably(path.with_name(SUMS), encoded({**self.known(name), path.name: zlib.crc32(content)}))

    def _folder(self, name: str) -> Path:
        """The folder of a table. Names are told apart without regard to case, as in the store."""
        folder = paths.table_folder(self._root, name)
        if folder.exists():
            return folder
        return next((f for f in self._root.glob("*") if f.name.lower() == name.lower()), folder)

    @staticmethod
    def encoded(data: pa.Table) -> bytes:
        """A table as its file has it."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, data.schema) as writer:
            writer.write_table(data)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def known(self, name: str) -> dict[str, int]:
        """The checksums of a table's versions, by file; none if an older version of Millstream wrote them."""
        path = self._folder(name) / SUMS
        if not os.path.lexists(path):
            return {}
        try:
            data = path.read_bytes()
            found: dict[str, int] = orjson.loads(data)["value"]
            if encoded(found) != data:
                raise ValueError("its checksum does not match")
        except (OSError, ValueError, KeyError, TypeError) as error:
            detail = error.strerror if isinstance(error, OSError) else "it is not what was written"
            raise HomeDamaged(f"the file {path} cannot be read", detail=detail, hint=HINT) from None
        return found

    def check(self, versions: Mapping[str, int]) -> None:
        """Refuse versions of tables that are not what was written; each is looked at once."""
        for name, version in versions.items():
            if (name, version) not in self._checked:
                known, path = self.known(name), self.path(name, version)
                for file in (path, *(path.with_name(n) for n in known if n > path.name)):
                    if not file.is_file():
                        raise HomeDamaged(f"the version {file} of the table `{name}` is missing", hint=HINT)
                if path.name in known and zlib.crc32(path.read_bytes()) != known[path.name]:
                    raise HomeDamaged(f"the version {path} of the table `{name}` is damaged", hint=HINT)
                self._checked.add((name, version))
