"""Files in a directory: written under a temporary name, renamed when complete, and memory-mapped where they are."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import methodcaller
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream import paths
from millstream.state.durable import WRITE, disk_full_named

_PARTS = methodcaller("rpartition", "/")


@dataclass(frozen=True)
class LocalStorage:
    """A directory. If it is `shared`, new directories and files have the permissions of the directory that they are
    in, so that its owner decides who else may read and write.
    """

    root: Path
    shared: bool = False

    @property
    def copies(self) -> bool:
        """Files are mapped where they are."""
        return False

    @property
    def copies_limit(self) -> int:
        """There are no copies."""
        return 0

    def place(self, name: str = "") -> str:
        """The path of a file."""
        return str(self.root / name)

    def create(self, name: str) -> LocalFile:
        """Begin a file under a temporary name in its directory."""
        path = self.root / name
        self._make(path.parent)
        return LocalFile(path, shared=self.shared)

    def put(self, name: str, data: Any) -> None:
        """Write a whole file."""
        file = self.create(name)
        try:
            file.write(data)
            file.finish()
        except BaseException:
            file.discard()
            raise

    def map(self, name: str) -> pa.Buffer:
        """Map a file into memory. Raises FileNotFoundError, or another OSError if it is not a readable file."""
        with pa.memory_map(str(self.root / name)) as file:
            return file.read_buffer()

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """The sizes of those files that exist."""
        found = {}
        for name in names:
            with suppress(FileNotFoundError):
                found[name] = (self.root / name).stat().st_size
        return found

    def names(self) -> set[str]:
        """The names of all files below the directory, hidden and unfinished ones too."""
        found: set[str] = set()
        for folder, folders, files in os.walk(self.root):
            prefix = "" if folder == str(self.root) else os.path.relpath(folder, self.root) + "/"
            found.update([prefix + name for name in files])
            found.update([prefix + name for name in folders if os.path.islink(os.path.join(folder, name))])
        return found

    def delete(self, names: Iterable[str]) -> None:
        """Delete files."""
        by_folder: dict[str, list[str]] = {}
        for folder, _, name in map(_PARTS, names):
            by_folder.setdefault(folder, []).append(name)
        for folder, named in by_folder.items():
            paths.delete_files(self.root / folder, named)

    def within(self, folder: str) -> LocalStorage:
        """The storage of a directory inside this one."""
        return replace(self, root=self.root / folder)

    def _make(self, folder: Path) -> None:
        if not self.shared:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            self._make(folder.parent)
            folder.mkdir(exist_ok=True)
            with suppress(PermissionError):  # another user has just created it
                folder.chmod(stat.S_IMODE(folder.parent.stat().st_mode))


class LocalFile:
    """A file in a directory that is being written."""

    def __init__(self, path: Path, *, shared: bool) -> None:
        self._path, self._temp = path, path.with_name(f".{path.name}.tmp")
        with disk_full_named(path):
            self._file = os.fdopen(paths.open_file(self._temp, WRITE, 0o666), "wb")
            if shared:
                os.fchmod(self._file.fileno(), stat.S_IMODE(path.parent.stat().st_mode) & 0o666)

    def write(self, data: Any) -> int:
        """Append bytes."""
        with disk_full_named(self._path):
            return self._file.write(data)

    def finish(self) -> None:
        """Flush to the disk itself, rename, and make the name durable."""
        with disk_full_named(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            paths.rename(self._temp, self._path)
            paths.sync_directory(self._path.parent)

    def discard(self) -> None:
        """Remove the temporary file."""
        with suppress(OSError):
            self._file.close()
        paths.delete_file(self._temp, missing_ok=True)
