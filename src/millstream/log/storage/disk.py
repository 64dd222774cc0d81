"""The disk layer of the log: every byte of the log goes through a `Disk`.

It is a thin port over the calls of the operating system, so that a test can substitute a simulated disk that crashes,
tears writes and fills up. Written files stay open under their path until `close`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from millstream import paths
from millstream.errors import HomeDamaged

LOCKED_OUT = BlockingIOError
"""Raised by `Disk.lock` when another process holds the lock."""


UNREADABLE = {
    errno.EISDIR: "it is a folder",
    errno.ENOTDIR: "a file is where a folder should be",
    errno.ELOOP: "it is a symbolic link",
    errno.EACCES: "this user may not open it",
    errno.EPERM: "this user may not open it",
    errno.EIO: "the disk cannot read it",
    errno.ENXIO: "it is not a file",
}
"""What is wrong with a file that cannot be opened or read, by the error of the operating system."""


class Lock(Protocol):
    """A lock that is held."""

    def release(self) -> None:
        """Release the lock."""
        ...


class Disk(Protocol):
    """What the log requires of a disk. Failures are OSErrors, as the operating system raises them."""

    background: bool
    """Whether threads may use it: to commit what was sent, and to seal segments."""

    def boot(self) -> bytes:
        """16 bytes that identify this boot of the machine."""
        ...

    def mkdir(self, path: Path) -> None:
        """Create a directory and its parents; an existing one is left unchanged."""
        ...

    def create(self, path: Path) -> None:
        """Create an empty file, or truncate an existing one."""
        ...

    def append(self, path: Path, data: bytes | memoryview) -> None:
        """Write at the end, all of it or an OSError; after an error, part of it may be written."""
        ...

    def write_at(self, path: Path, position: int, data: bytes) -> None:
        """Write in place, creating the file if necessary."""
        ...

    def truncate(self, path: Path, size: int) -> None:
        """Truncate a file."""
        ...

    def fsync(self, path: Path) -> None:
        """Return when the content and the length of a file are durable."""
        ...

    def close(self, path: Path) -> None:
        """Close a file that was written."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file in its directory, replacing an existing one."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        ...

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        ...

    def fsync_dir(self, path: Path) -> None:
        """Return when the names in a directory are durable."""
        ...

    def list(self, path: Path) -> list[str]:
        """The names in a directory, sorted; empty if it does not exist."""
        ...

    def read(self, path: Path, start: int = 0, size: int | None = None) -> bytes:
        """Read a range of a file; shorter where the file ends."""
        ...

    def map(self, path: Path) -> pa.Buffer:
        """Map a file's content, without a copy where possible."""
        ...

    def size(self, path: Path) -> int:
        """The length of a file."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether a file or directory of this name exists."""
        ...

    def lock(self, path: Path, *, wait: bool = False) -> Lock:
        """Lock a file for this process, or raise LOCKED_OUT with the holder's process id in its text."""
        ...


class RealDisk:
    """The disk of this machine."""

    background = True

    def __init__(self) -> None:
        self._open: dict[Path, int] = {}
        self._mutex = threading.Lock()
        self._boot = _boot()

    def boot(self) -> bytes:
        """The boot id of the kernel."""
        return self._boot

    def mkdir(self, path: Path) -> None:
        """Create a directory and its parents."""
        path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def create(self, path: Path) -> None:
        """Create an empty file."""
        os.ftruncate(self._fd(path), 0)

    def append(self, path: Path, data: bytes | memoryview) -> None:
        """Write at the end."""
        fd = self._fd(path)
        os.lseek(fd, 0, os.SEEK_END)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]

    def write_at(self, path: Path, position: int, data: bytes) -> None:
        """Write in place."""
        fd = self._fd(path)
        rest = memoryview(data)
        while rest:
            done = os.pwrite(fd, rest, position)
            rest, position = rest[done:], position + done

    def truncate(self, path: Path, size: int) -> None:
        """Truncate a file."""
        os.ftruncate(self._fd(path), size)

    def fsync(self, path: Path) -> None:
        """Sync to the medium."""
        _sync(self._fd(path))

    def close(self, path: Path) -> None:
        """Close a file."""
        with self._mutex:
            fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        """Rename within a directory."""
        self.close(old)
        paths.rename(old, new)

    def unlink(self, path: Path) -> None:
        """Remove."""
        self.close(path)
        paths.delete_file(path)

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        paths.delete_folder(path)

    def fsync_dir(self, path: Path) -> None:
        """Sync to the medium."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def list(self, path: Path) -> list[str]:
        """The names, sorted."""
        try:
            with _readable(path):
                return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def read(self, path: Path, start: int = 0, size: int | None = None) -> bytes:
        """Read a range of a file."""
        with _readable(path), path.open("rb", buffering=0) as file:
            file.seek(start)
            if size is None:
                return file.read()
            pieces = []
            while size > 0 and (piece := file.read(size)):
                pieces.append(piece)
                size -= len(piece)
            return b"".join(pieces)

    def map(self, path: Path) -> pa.Buffer:
        """Map the file from the page cache; it stays readable when the file is removed in the meantime."""
        with _readable(path):
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if not status.st_size:
                return pa.py_buffer(b"")
            with pa.memory_map(str(path)) as file:
                return file.read_buffer()

    def size(self, path: Path) -> int:
        """Its length."""
        with _readable(path):
            return path.stat().st_size

    def exists(self, path: Path) -> bool:
        """Whether it exists; a dangling link counts, too."""
        return os.path.lexists(path)

    def lock(self, path: Path, *, wait: bool = False) -> Lock:
        """Take an flock and write the process id to the file."""
        fd = _opened(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            raise LOCKED_OUT(holder) from None
        with contextlib.suppress(OSError):  # the id is only for messages; a full disk must not prevent the lock
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return _Flock(fd)

    def _fd(self, path: Path) -> int:
        fd = self._open.get(path)
        if fd is None:
            with self._mutex:
                fd = self._open.get(path)
                if fd is None:
                    fd = self._open[path] = _opened(path)
        return fd


class _Flock:
    """An flock that is held."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def release(self) -> None:
        """Close the file, which ends the lock."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _opened(path: Path) -> int:
    """Open a file for writing, creating it if it is missing. The target of a link is not part of the log and is not
    touched.
    """
    with _readable(path):
        return paths.open_file(path, os.O_RDWR | os.O_CREAT)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Name the file that cannot be opened or read as one. A missing file is left to the caller."""
    try:
        yield
    except OSError as error:
        dangling = isinstance(error, FileNotFoundError) and path.is_symlink()
        if error.errno not in UNREADABLE and not dangling:
            raise
        raise HomeDamaged(
            f"the log file {path} cannot be used",
            detail="it is a symbolic link that leads nowhere" if dangling else UNREADABLE[error.errno or 0],
            hint="`millstream repair` says what can be done",
        ) from None


def _sync(fd: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone stops at the drive's own cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def _boot() -> bytes:
    try:
        if sys.platform == "darwin":
            answer = subprocess.run(
                ["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, check=True, text=True
            )
            text = answer.stdout
        else:
            text = Path("/proc/sys/kernel/random/boot_id").read_text()
        return uuid.UUID(text.strip()).bytes
    except (OSError, ValueError, subprocess.SubprocessError):
        return bytes(16)
