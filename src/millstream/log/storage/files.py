"""File names of the log, and its small files: each with a checksum, written by temp, fsync, rename, directory fsync.

<topic>/topic.json                          what the topic is
<topic>/topic.dropped                       topic.json under another name, while the topic is being removed
<topic>/holds/<reader>.json                 what a reader still needs
<topic>/p00000/lock                         held by the one writer
<topic>/p00000/start.json                   the first offset that was not trimmed
<topic>/p00000/durable                      how far the records are durable; for readers in other processes
<topic>/p00000/<base>.wal                   frames; the newest one is written to
<topic>/p00000/<base>-<end>.<crc>.parquet   a sealed segment; the checksum is that of the whole file

topic.json, start.json and holds have a second copy next to them, ``<name>.copy``. It is written after the file and
removed before it, so a copy without its file means that the file was lost: `millstream repair` restores it.
"""

from __future__ import annotations

import contextlib
import errno
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from millstream.errors import DiskFull, HomeDamaged, LogFailed
from millstream.log.storage.disk import Disk

TEMP = ".tmp"
COPY = ".copy"
HINT = "`millstream repair` says what can be done"

_WAL = re.compile(r"(\d{20})\.wal")
_SEGMENT = re.compile(r"(\d{20})-(\d{20})\.([0-9a-f]{8})\.parquet")
_DURABLE = struct.Struct("<8s16sqqqqI")
_MAGIC = b"MSDUR\0\0\1"


@dataclass(frozen=True, order=True)
class SegmentName:
    """A sealed segment, parsed from its name."""

    base: int
    end: int
    crc: int

    def __str__(self) -> str:
        return f"{self.base:020d}-{self.end:020d}.{self.crc:08x}.parquet"

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """Parse a file name; None when it is another kind of file."""
        match = _SEGMENT.fullmatch(name)
        return cls(int(match[1]), int(match[2]), int(match[3], 16)) if match else None


@dataclass(frozen=True)
class Durable:
    """What a writer publishes after an fsync."""

    boot: bytes
    offset: int
    """Records below this offset are durable."""
    base: int
    """The write-ahead file that is being written."""
    position: int
    """Its bytes below this position are durable."""
    time: int
    """The ingest time of the last record."""

    def pack(self) -> bytes:
        """Encode with a checksum."""
        body = _DURABLE.pack(_MAGIC, self.boot, self.offset, self.base, self.position, self.time, 0)[:-4]
        return body + struct.pack("<I", zlib.crc32(body))

    @classmethod
    def unpack(cls, data: bytes) -> Durable | None:
        """Decode what `pack` wrote; None when it is incomplete."""
        if len(data) != _DURABLE.size:
            return None
        magic, boot, offset, base, position, time, crc = _DURABLE.unpack(data)
        return cls(boot, offset, base, position, time) if (magic, crc) == (_MAGIC, zlib.crc32(data[:-4])) else None


def read_durable(disk: Disk, folder: Path) -> Durable | None:
    """Read what was published; None when there is nothing, or it is unreadable.

    It is written in place, so a reader may see it half written: then it reads again.
    """
    for _ in range(5):
        try:
            data = disk.read(folder / "durable")
        except FileNotFoundError:
            return None
        durable = Durable.unpack(data)
        if durable is not None or not data:
            return durable
    return None


def folder_of(topic: Path, partition: int) -> Path:
    """The directory of a partition."""
    return topic / f"p{partition:05d}"


def require_folder(disk: Disk, folder: Path) -> None:
    """Refuse a partition whose directory is gone: it was created before its topic."""
    require_topic(disk, folder.parent)
    if not disk.exists(folder):
        raise damaged(folder, 0, "the folder of the partition is missing")


def require_topic(disk: Disk, folder: Path) -> None:
    """Refuse a topic whose directory is gone."""
    if not disk.exists(folder):
        raise LogFailed(
            f"the topic {folder.name} is no longer in {folder.parent}",
            detail="It was removed, or its home was moved, while it was open.",
            hint="open the home where it is now, or put the topic back",
        )


def wal_name(base: int) -> str:
    """The name of a write-ahead file."""
    return f"{base:020d}.wal"


@dataclass(frozen=True)
class PartitionFiles:
    """The files in the directory of a partition."""

    segments: tuple[SegmentName, ...]
    wals: tuple[int, ...]
    temporary: tuple[str, ...]


def list_files(disk: Disk, folder: Path) -> PartitionFiles:
    """List the directory of a partition."""
    segments, wals, temporary = [], [], []
    for name in disk.list(folder):
        if (segment := SegmentName.parse(name)) is not None:
            segments.append(segment)
        elif match := _WAL.fullmatch(name):
            wals.append(int(match[1]))
        elif name.endswith(TEMP):
            temporary.append(name)
    return PartitionFiles(tuple(sorted(segments)), tuple(sorted(wals)), tuple(temporary))


# ---------------------------------------------------------------- small files


def write_small(disk: Disk, path: Path, value: Any) -> None:
    """Write a value durably, replacing the previous one."""
    write_whole(disk, path, encoded(value))


def read_small(disk: Disk, path: Path) -> Any | None:
    """Read what `write_small` wrote; None when there is no such file."""
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return None
    try:
        value = orjson.loads(data)["value"]
    except (ValueError, KeyError, TypeError):
        raise damaged(path, 0, "it is not what was written") from None
    if encoded(value) != data:
        raise damaged(path, 0, "its checksum does not match")
    return value


def copy_of(path: Path) -> Path:
    """The second copy of a small file."""
    return path.with_name(path.name + COPY)


def write_kept(disk: Disk, path: Path, value: Any) -> None:
    """Write a small file and its copy. Without space for the copy, the file is enough: the copy is written later."""
    write_small(disk, path, value)
    write_copy(disk, path, value)


def write_copy(disk: Disk, path: Path, value: Any) -> None:
    """Write the copy of a small file, if there is space for it."""
    with contextlib.suppress(OSError):
        write_small(disk, copy_of(path), value)


def read_kept(disk: Disk, path: Path) -> Any | None:
    """Read what `write_kept` wrote; None when there is neither the file nor a copy of it."""
    value = read_small(disk, path)
    if value is None and disk.exists(copy_of(path)):
        raise damaged(path, 0, f"it is missing; its copy is {copy_of(path).name}")
    return value


def remove_kept(disk: Disk, path: Path) -> bool:
    """Remove a small file durably, its copy first; returns whether there was one."""
    if disk.exists(copy_of(path)):
        disk.unlink(copy_of(path))
        disk.fsync_dir(path.parent)
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return False
    disk.fsync_dir(path.parent)
    return True


class NotSynced(OSError):
    """A file was renamed, but it is unknown whether the name is durable."""


def write_whole(disk: Disk, path: Path, data: bytes | memoryview) -> None:
    """Write by temp, fsync, rename, directory fsync; a failure leaves the old content, except for NotSynced."""
    temp = path.with_name(path.name + TEMP)
    try:
        disk.create(temp)
        disk.append(temp, data)
        disk.fsync(temp)
        disk.close(temp)
        disk.rename(temp, path)
    except OSError:
        with contextlib.suppress(OSError):
            disk.unlink(temp)
        raise
    try:
        disk.fsync_dir(path.parent)
    except OSError as error:
        raise NotSynced(error.errno, error.strerror) from None


def read_start(disk: Disk, folder: Path) -> int:
    """The first offset of a partition that was not trimmed."""
    value = read_kept(disk, folder / "start.json")
    return 0 if value is None else int(value)


def encoded(value: Any) -> bytes:
    """Encode a small file with its checksum."""
    body = orjson.dumps(value)
    return b'{"crc":"%08x","value":%s}\n' % (zlib.crc32(body), body)


# ---------------------------------------------------------------- what can go wrong


def damaged(path: Path, position: int, why: str) -> HomeDamaged:
    """Return the error for a file that does not match its checksum."""
    return HomeDamaged(f"the log file {path} is damaged at byte {position:,}", detail=why, hint=HINT)


@contextlib.contextmanager
def disk_full_named(path: Path) -> Iterator[None]:
    """Convert "no space left" and "read-only file system" to errors that name the location."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise disk_full(path) from None
        if error.errno == errno.EROFS:
            raise LogFailed(
                f"the disk of {path.parent} is mounted read-only",
                detail="Nothing was changed.",
                hint="mount it for writing, or write to a copy of the home elsewhere",
            ) from None
        raise


def is_full(error: OSError) -> bool:
    """Whether the disk or the quota was full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_full(path: Path) -> DiskFull:
    """Return the error for a full disk."""
    return DiskFull(
        f"no space is left on the disk of {path.parent}",
        detail="Nothing of this append was written; all that was acknowledged before is kept.",
        hint="make space, or trim the topic (`millstream log trim`), and append again",
    )
