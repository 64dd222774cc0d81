"""Paths inside a home: names as path components, and the functions that delete, rename and truncate files of a home.

A name becomes part of a path only in `part` and in the functions named after directories; it cannot escape its
directory. Files that are deleted or renamed are reached from the home one directory at a time, by descriptors and
without following symbolic links: a link inside a home is refused, and its target stays unchanged. The path of the home
itself may contain links. `tests/architecture/test_deletions.py` fails on a call that deletes or renames elsewhere.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from millstream.errors import DefinitionError, HomeDamaged

MARKER = "millstream.json"
"""The file that marks a directory as a home."""
LONGEST = 200
"""The longest name in a path, in bytes: a file name has at most 255, and some get a number, a checksum and a suffix."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


# ------------------------------------------------------------ names


def is_part(name: object) -> bool:
    """Whether a name can be used as one path component that stays in its directory."""
    return (
        isinstance(name, str)
        and name.isprintable()
        and not name.startswith(".")
        and name == name.strip()
        and "/" not in name
        and "\\" not in name
        and 0 < len(name.encode(errors="replace")) <= LONGEST
    )


def part(name: str, what: str) -> str:
    """Return a name as one path component; refuses a name that could lead elsewhere. `what` is the kind of object it
    names.
    """
    if not is_part(name):
        shown = repr(name) if len(name) <= 80 else f"{name[:60]!r}... ({len(name)} characters)"
        raise DefinitionError(
            f"{shown} cannot be the name of a {what}",
            detail="it becomes the name of a file or folder in the home",
            hint="use letters, digits and _, beginning with a letter, at most 63 characters",
        )
    return name


def flow_folder(home: Path, flow: str) -> Path:
    """The directory with the epochs, state, sources and outputs of a flow."""
    return home / "flows" / part(flow, "flow")


def table_folder(tables: Path, table: str) -> Path:
    """The directory with the versions of a stored table, below the directory of all tables."""
    return tables / part(table, "table")


def topic_folder(log: Path, topic: str) -> Path:
    """The directory of a topic, below the directory of the log."""
    return log / part(topic, "topic")


# ------------------------------------------------------------ deleting, renaming, truncating


def delete_file(path: Path, *, missing_ok: bool = False, link_ok: bool = False) -> None:
    """Delete a file. A symbolic link is refused, unless the link itself is to be deleted (`link_ok`)."""
    try:
        with _folder_of(path) as folder:
            _refuse_link(path, folder, link_ok=link_ok)
            os.unlink(path.name, dir_fd=folder)
    except FileNotFoundError:
        if not missing_ok:
            raise


def delete_files(folder: Path, names: Iterable[str]) -> None:
    """Delete files of one directory, as far as they exist. A symbolic link is refused. Reaches the directory once."""
    with suppress(FileNotFoundError), _folder_of(folder / "_") as directory:
        for name in names:
            try:  # a flow may delete tens of thousands of files per epoch, so nothing is built per file
                if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                    raise linked(folder / name)
                os.unlink(name, dir_fd=directory)
            except FileNotFoundError:
                continue


def delete_folder(path: Path) -> None:
    """Delete an empty directory."""
    with _folder_of(path) as folder:
        _refuse_link(path, folder)
        os.rmdir(path.name, dir_fd=folder)


def delete_tree(path: Path, *, within: Path) -> None:
    """Delete a directory strictly inside another, with all its contents. Does nothing when it does not exist. Links in
    it are deleted, not followed.
    """
    path, within = _absolute(path), _absolute(within)
    if within not in path.parents:
        raise HomeDamaged(
            f"{path} is not inside {within}: nothing was deleted",
            hint="the records of the home name a folder outside it; `millstream repair` lists what can be done",
        )
    try:
        with _folder_of(path, within) as folder:
            _refuse_link(path, folder)
            shutil.rmtree(path.name, dir_fd=folder)
    except FileNotFoundError:
        pass


def rename(old: Path, new: Path, *, link_ok: bool = False) -> None:
    """Rename a file or directory, replacing an existing file of the new name. Neither name is reached through a link. A
    symbolic link is refused, unless the link itself is to be renamed (`link_ok`).
    """
    with _folder_of(new) as target, _folder_of(old) as source:
        _refuse_link(old, source, link_ok=link_ok)
        try:
            os.rename(old.name, new.name, src_dir_fd=source, dst_dir_fd=target)
        except OSError as error:
            error.filename = str(old if isinstance(error, FileNotFoundError) else new)
            raise


def truncate(path: Path, size: int) -> None:
    """Truncate a file durably."""
    with _folder_of(path) as folder:
        _refuse_link(path, folder)
        file = os.open(path.name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.ftruncate(file, size)
            os.fsync(file)
        finally:
            os.close(file)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def open_file(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a file without following links and return its descriptor."""
    with _folder_of(path) as folder:
        try:
            return os.open(path.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise linked(path) from None
            raise


def linked(path: Path) -> HomeDamaged:
    """Return the error for a symbolic link inside a home."""
    return HomeDamaged(
        f"{path} is a symbolic link: nothing was changed through it",
        detail="Millstream deletes and replaces only what is in the home itself",
        hint="put the file or folder itself there, or move the whole home and name it by its new path",
    )


@contextmanager
def _folder_of(path: Path, root: Path | None = None) -> Iterator[int]:
    """Open the directory that contains a path, reached from the home (or `root`) without following links."""
    parent = os.path.dirname(os.path.abspath(path))  # as text: paths as values took half of the time
    at = _root(parent) if root is None else str(root)
    folder = os.open(at, _OPEN)
    try:
        for name in filter(None, parent[len(at) :].split(os.sep)):
            at = os.path.join(at, name)
            try:
                inner = os.open(name, _OPEN | os.O_NOFOLLOW, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(at):
                    raise linked(Path(at)) from None
                raise
            os.close(folder)
            folder = inner
        at = os.path.join(at, path.name)
        yield folder
    except OSError as error:  # a call by descriptor names only the last component
        if isinstance(error.filename, str) and not os.path.isabs(error.filename):
            error.filename = at
        raise
    finally:
        os.close(folder)


def _root(folder: str) -> str:
    """Return the home that contains a directory, or the directory itself when it is not in a home."""
    at = folder
    while not os.path.lexists(os.path.join(at, MARKER)):
        above = os.path.dirname(at)
        if above == at:
            return folder
        at = above
    return at


def _refuse_link(path: Path, folder: int, *, link_ok: bool = False) -> None:
    if not link_ok and stat.S_ISLNK(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise linked(path)


def _absolute(path: Path) -> Path:
    """Return a path without `.` and `..`. This is purely lexical: no link is followed."""
    return Path(os.path.abspath(path))
