"""The file layer below the log: every byte the log keeps goes through a `Disk`.

It is a thin port over the calls of the operating system, so that a test can put a simulated disk below the log that
crashes, tears and fills up. Files that are written stay open under their path until `close`.
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
"""What `Disk.lock` raises when somebody else has the lock."""


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
        """Give it back."""
        ...


class Disk(Protocol):
    """What the log asks of a disk. Failures are OSErrors, as the operating system gives them."""

    background: bool
    """Whether threads may work on it: committing what was sent, and sealing segments."""

    def boot(self) -> bytes:
        """16 bytes that name this run of the machine: they change when it starts again."""
        ...

    def mkdir(self, path: Path) -> None:
        """Make a directory and those above it; one that is there is left."""
        ...

    def create(self, path: Path) -> None:
        """Make an empty file, or empty the one that is there."""
        ...

    def append(self, path: Path, data: bytes | memoryview) -> None:
        """Write at the end, all of it or an OSError; after one, part of it may be there."""
        ...

    def write_at(self, path: Path, position: int, data: bytes) -> None:
        """Write in place, making the file if need be."""
        ...

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file."""
        ...

    def fsync(self, path: Path) -> None:
        """Return when the content and the length of a file are durable."""
        ...

    def close(self, path: Path) -> None:
        """Forget a file that was written."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name in its directory, in place of one that has it."""
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
        """The names in a directory, sorted; none if it is not there."""
        ...

    def read(self, path: Path, start: int = 0, size: int | None = None) -> bytes:
        """A stretch of a file; shorter where the file ends."""
        ...

    def map(self, path: Path) -> pa.Buffer:
        """A file's content, without a copy where that can be done."""
        ...

    def size(self, path: Path) -> int:
        """The length of a file."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory of this name."""
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
        """The kernel's own name of this run."""
        return self._boot

    def mkdir(self, path: Path) -> None:
        """Make a directory and those above it."""
        path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def create(self, path: Path) -> None:
        """Make an empty file."""
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
        """Cut a file."""
        os.ftruncate(self._fd(path), size)

    def fsync(self, path: Path) -> None:
        """Down to the medium."""
        _sync(self._fd(path))

    def close(self, path: Path) -> None:
        """Forget a file."""
        with self._mutex:
            fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        """Move within a directory."""
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
        """Down to the medium."""
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
        """A stretch of a file."""
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
        """The file in the page cache; it stays readable when the file is removed meanwhile."""
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
        """A link that leads nowhere is there, too."""
        return os.path.lexists(path)

    def lock(self, path: Path, *, wait: bool = False) -> Lock:
        """An flock, with the process id written into the file."""
        fd = _opened(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            raise LOCKED_OUT(holder) from None
        with contextlib.suppress(OSError):  # the name is for messages alone; a full disk must not stand in the way
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
    """A file to be written, made if it is missing. What is behind a link is not part of the log and is not touched."""
    with _readable(path):
        return paths.open_file(path, os.O_RDWR | os.O_CREAT)


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Name the file that cannot be opened or read as one. A file that is not there is left to the caller."""
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
            asked = subprocess.run(["sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, check=True, text=True)
            text = asked.stdout
        else:
            text = Path("/proc/sys/kernel/random/boot_id").read_text()
        return uuid.UUID(text.strip()).bytes
    except (OSError, ValueError, subprocess.SubprocessError):
        return bytes(16)
