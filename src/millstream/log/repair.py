"""Finds damage in the files of a log without a writer, and what can be restored from the rest.

Small files are restored from their copies, and the durable position from the records themselves. Records exist only
once: damage to them is reported, and cannot be repaired.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from millstream.clock import Clock
from millstream.errors import HomeDamaged, MillstreamError
from millstream.log import recovery
from millstream.log.log import Log
from millstream.log.storage.disk import Disk, RealDisk
from millstream.log.storage.files import COPY, copy_of, encoded, folder_of, list_files, read_durable, read_small
from millstream.log.storage.segment import Owner
from millstream.log.storage.wal import chain
from millstream.log.topic import Topic
from millstream.log.topic_info import NOTE, About, read_about


@dataclass(frozen=True)
class Wrong:
    """A problem of a topic. `data` replaces `path`; without data, the file is removed; without a path, it cannot be
    repaired.
    """

    topic: str
    problem: str
    would: str = ""
    path: Path | None = None
    data: bytes | None = None
    harmless: bool = False
    """Whether the next writer repairs it automatically."""


def look(root: Path, clock: Clock, disk: Disk | None = None) -> Iterator[Wrong]:
    """Find problems of the topics under `root`. Where something can be restored, what depends on it is not checked:
    check again after the repair.
    """
    disk = disk or RealDisk()
    for name in Log(root, clock, disk).topics():
        yield from _topic(disk, clock, root / name)


def _topic(disk: Disk, clock: Clock, folder: Path) -> Iterator[Wrong]:
    note = folder / NOTE
    main, copy = _about(disk, folder, NOTE), _about(disk, folder, NOTE + COPY)
    if isinstance(main, HomeDamaged):
        if not isinstance(copy, About):
            hint = "there is no copy of it: restore the topic's folder from a copy"
            yield Wrong(folder.name, _message(main), hint)
        else:
            yield _put_back(note, _message(main), copy.to_json())
        return
    if isinstance(copy, HomeDamaged) and disk.exists(copy_of(note)):
        yield _put_back(copy_of(note), _message(copy), main.to_json(), "it is rewritten")
        return
    fine = True
    for partition in range(main.partitions):
        owner = Owner(main.id, partition, main.schema)
        for wrong in _partition(disk, folder_of(folder, partition), owner):
            fine = False
            yield wrong
    for wrong in _holds(disk, folder, main) if fine else ():
        fine = False
        yield wrong
    if fine:
        topic = Topic(disk, clock, folder, main)
        yield from (Wrong(folder.name, _message(e), LOST) for e in topic.verify())
        topic.close()


LOST = "nothing can be done: these records are in no other file; restore the topic's folder from a copy"


def _about(disk: Disk, folder: Path, name: str) -> About | HomeDamaged:
    try:
        return read_about(disk, folder, name)
    except HomeDamaged as error:
        return error


def _partition(disk: Disk, folder: Path, owner: Owner) -> Iterator[Wrong]:
    """Find small files that can be restored."""
    path = folder / "start.json"
    main, copy = _small(disk, path), _small(disk, copy_of(path))
    first = 0 if main is None else main
    if isinstance(copy, HomeDamaged):
        if isinstance(main, int):
            yield _put_back(copy_of(path), _message(copy), main, "it is rewritten")
        else:  # an empty copy, or both are damaged: the files themselves show where they begin
            begin = min(_bases(disk, folder), default=0)
            yield _put_back(path, _message(copy), begin, f"the partition begins with its first file, at {begin:,}")
            yield _put_back(copy_of(path), _message(copy), begin, "it is rewritten")
        return
    lost = main is None and copy is not None
    if isinstance(main, HomeDamaged) or lost or not _reaches(disk, folder, int(first)):
        begin = copy if copy is not None else min(_bases(disk, folder), default=0)
        if _reaches(disk, folder, begin) and (isinstance(main, HomeDamaged) or copy is not None):
            problem = _message(main) if isinstance(main, HomeDamaged) else f"the log file {path} is missing or too old"
            yield _put_back(path, problem, begin)
            return
    try:
        published = read_durable(disk, folder)
        files_found = recovery.check(disk, folder, owner)
    except HomeDamaged as error:
        if (folder / "durable").name in error.message.rpartition("/")[2]:
            yield Wrong(folder.parent.name, _message(error), "it is rebuilt from the records", folder / "durable")
        return
    if published is not None and files_found.wal is not None and published.offset < files_found.wal.end:
        problem = (
            f"{folder / 'durable'} says that there are {published.offset:,} records, "
            f"but there are {files_found.wal.end:,}"
        )
        what = "it is rebuilt from the records"  # a writer that died before it published its last frame leaves this
        yield Wrong(folder.parent.name, problem, what, folder / "durable", harmless=True)


def _bases(disk: Disk, folder: Path) -> list[int]:
    files = list_files(disk, folder)
    return [*(s.base for s in files.segments), *files.wals]


def _reaches(disk: Disk, folder: Path, start: int) -> bool:
    """Whether the files of a partition are contiguous from this start on."""
    files = list_files(disk, folder)
    return not files.wals or not isinstance(chain(files, start, files.wals[-1]), int)


def _holds(disk: Disk, folder: Path, about: About) -> Iterator[Wrong]:
    """A damaged hold is restored from its copy, or keeps everything until its reader moves it forward."""
    names = {n.removesuffix(COPY) for n in disk.list(folder / "holds") if n.removesuffix(COPY).endswith(".json")}
    for path in (folder / "holds" / n for n in sorted(names)):
        main, copy = _small(disk, path), _small(disk, copy_of(path))
        reader = unquote(path.name.removesuffix(".json"))
        everything = {"reader": reader, "offsets": {str(p): 0 for p in range(about.partitions)}}
        if main is None or isinstance(main, HomeDamaged):
            problem = _message(main) if main is not None else f"the log file {path} is missing"
            yield _put_back(path, problem, copy if isinstance(copy, dict) else everything)
        if isinstance(copy, HomeDamaged):
            yield _put_back(
                copy_of(path), _message(copy), main if isinstance(main, dict) else everything, "it is rewritten"
            )


def _small(disk: Disk, path: Path) -> Any:
    """The value of a small file, None if it does not exist, or what is wrong with it."""
    try:
        return read_small(disk, path)
    except HomeDamaged as error:
        return error


def _put_back(path: Path, problem: str, value: Any, would: str = "it is restored from its copy") -> Wrong:
    topic = path.parent.name if path.name.startswith(NOTE) else path.parent.parent.name
    return Wrong(topic, problem, would, path, encoded(value))


def _message(error: MillstreamError) -> str:
    return f"{error.message}: {error.detail}" if error.detail else error.message
