"""The log of a home: its topics, each a directory."""

from __future__ import annotations

import difflib
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from millstream.clock import Clock
from millstream.errors import DuplicateName, LogInUse, MillstreamError, UnknownName
from millstream.log.partitioner import check_key
from millstream.log.rows import topic_schema
from millstream.log.storage.disk import LOCKED_OUT, Disk, RealDisk
from millstream.log.storage.files import disk_full_named, folder_of
from millstream.log.topic import Topic
from millstream.log.topic_info import (
    DROPPED,
    LINGER,
    NAME,
    NOTE,
    PARTITION,
    RECORD_BYTES,
    SEGMENT_BYTES,
    SEGMENT_ROWS,
    About,
    is_topic,
    read_about,
    write_about,
)
from millstream.paths import topic_folder

LOCK = "topics.lock"
"""A name that no topic can have."""


class Log:
    """The topics under one directory. Opening it writes nothing."""

    def __init__(self, root: Path, clock: Clock, disk: Disk | None = None) -> None:
        self._root = Path(root)
        self._clock = clock
        self._disk: Disk = disk if disk is not None else RealDisk()
        self._open: dict[str, Topic] = {}
        self._mutex = threading.Lock()

    def topics(self) -> list[str]:
        """The names of the topics, sorted."""
        return [n for n in self._disk.list(self._root) if NAME.fullmatch(n) and self.exists(n)]

    def exists(self, name: str) -> bool:
        """Whether this topic exists."""
        return NAME.fullmatch(name) is not None and is_topic(self._disk, self._root / name)

    def topic(self, name: str) -> Topic:
        """Return the topic of this name; the same object until it is closed."""
        with self._mutex:
            topic = self._open.get(name)
            if topic is not None and not topic.closed:
                return topic
            if not self.exists(name):
                raise self._unknown(name)
            folder = topic_folder(self._root, name)
            about = read_about(self._disk, folder)
            opened = self._open[name] = Topic(self._disk, self._clock, folder, about)
            return opened

    def create(
        self,
        name: str,
        schema: pa.Schema,
        *,
        partitions: int = 1,
        key: str | None = None,
        retain_time: int | None = None,
        retain_bytes: int | None = None,
        hard_cap: bool = False,
        record_bytes: int = RECORD_BYTES,
        segment_bytes: int = SEGMENT_BYTES,
        segment_rows: int = SEGMENT_ROWS,
        linger: float = LINGER,
    ) -> Topic:
        """Create a topic; it is durable when this returns.

        `retain_time` (microseconds) and `retain_bytes` (per partition) limit what is kept; `hard_cap` lets retention
        remove records that readers still need. A record above `record_bytes` is refused.
        """
        about = self.check(
            name,
            schema,
            partitions=partitions,
            key=key,
            retain_time=retain_time,
            retain_bytes=retain_bytes,
            hard_cap=hard_cap,
            record_bytes=record_bytes,
            segment_bytes=segment_bytes,
            segment_rows=segment_rows,
            linger=linger,
        )
        folder = topic_folder(self._root, name)
        with disk_full_named(folder):
            self._disk.mkdir(self._root)
        with disk_full_named(folder), self._alone():
            if self.exists(name):
                read_about(self._disk, folder)  # raises if it is damaged
                raise DuplicateName(f"there is a topic {name} already", hint=f"open it: log.topic({name!r})")
            self._clear(folder)  # remove what an interrupted drop has left
            for inner in (folder / "holds", *(folder_of(folder, p) for p in range(partitions))):
                self._disk.mkdir(inner)
            self._disk.fsync_dir(folder)  # a topic.json without its directories would be damage
            write_about(self._disk, folder, about)
            self._disk.fsync_dir(self._root)
            self._disk.fsync_dir(self._root.parent)
        return self.topic(name)

    def check(
        self,
        name: str,
        schema: pa.Schema,
        *,
        partitions: int = 1,
        key: str | None = None,
        retain_time: int | None = None,
        retain_bytes: int | None = None,
        hard_cap: bool = False,
        record_bytes: int = RECORD_BYTES,
        segment_bytes: int = SEGMENT_BYTES,
        segment_rows: int = SEGMENT_ROWS,
        linger: float = LINGER,
    ) -> About:
        """Return what `create` would create; refuses what it would refuse, and creates nothing."""
        about = About(
            name,
            uuid.uuid4().hex,
            topic_schema(schema),
            partitions,
            key,
            retain_time,
            retain_bytes,
            hard_cap,
            record_bytes,
            segment_bytes,
            segment_rows,
            linger,
        )
        about.check()
        check_key(about.schema, key)
        alike = next((n for n in self.topics() if n.lower() == name.lower() and n != name), None)
        if alike is not None:
            raise DuplicateName(
                f"there is a topic {alike} already, and {name} differs from it in case only",
                detail="on some disks both would be the same folder",
                hint=f"use {alike}, or another name",
            )
        return about

    def drop(self, name: str) -> None:
        """Remove a topic and all its records; refused while another process writes to it."""
        if NAME.fullmatch(name) is None:
            raise self._unknown(name)
        folder = topic_folder(self._root, name)
        if not self._disk.list(folder):
            raise self._unknown(name)
        with disk_full_named(folder), self._alone(), ExitStack() as locks:
            if not self.exists(name):
                self._clear(folder)  # an earlier drop was interrupted: what it began is durable now
                raise self._unknown(name)
            topic = self.topic(name)
            topic.close()
            try:
                for partition in range(topic.partitions):
                    locks.callback(self._disk.lock(folder_of(folder, partition) / "lock").release)
            except LOCKED_OUT as error:
                raise LogInUse(
                    f"another process writes to {name}, so it cannot be dropped", detail=f"It is the process {error}."
                ) from None
            self._disk.rename(folder / NOTE, folder / DROPPED)
            self._clear(folder)

    def settle(self) -> None:
        """Resolve appends that were interrupted by the death of their process. Damage is left to be reported on use."""
        for name in self.topics():
            with suppress(MillstreamError, OSError):
                self.topic(name).settle()

    def close(self) -> None:
        """Close all topics."""
        with self._mutex:
            topics, self._open = list(self._open.values()), {}
        for topic in topics:
            topic.close()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Prevent other processes from creating or dropping a topic inside the block."""
        lock = self._disk.lock(self._root / LOCK, wait=True)
        try:
            yield
        finally:
            lock.release()

    def _clear(self, folder: Path) -> None:
        """Remove what is left of a topic. The removal is recorded durably before anything is deleted, and the record
        remains until everything else is gone: records without a topic.json or that record are damage.
        """
        if folder.name not in self._disk.list(self._root):
            return
        self._disk.fsync_dir(folder)
        names = self._disk.list(folder)
        for inner in names:
            path = folder / inner
            if inner == "holds" or PARTITION.fullmatch(inner):
                for name in self._disk.list(path):
                    self._disk.unlink(path / name)
                self._disk.rmdir(path)
            elif inner != DROPPED:
                self._disk.unlink(path)
        if DROPPED in names:
            self._disk.fsync_dir(folder)
            self._disk.unlink(folder / DROPPED)
        self._disk.rmdir(folder)
        self._disk.fsync_dir(self._root)

    def _unknown(self, name: str) -> UnknownName:
        known = self.topics()
        close = difflib.get_close_matches(name, known, n=1)
        return UnknownName(
            f"there is no topic `{name}`",
            detail="topics: " + (", ".join(known) or "none yet"),
            hint=f"did you mean `{close[0]}`?" if close else f"create it with `millstream log create {name}`",
        )
