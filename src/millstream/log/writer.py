"""The single writer of a partition: one frame and one fsync per group of appends, then rolled and sealed.

State machine: open (recovered, lock held) -> failed (an fsync or a write failed) or closed. A failed writer accepts
nothing more, because after a failed fsync the content of the medium is unknown; when it is reopened, the files are
checked again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from millstream.clock import Clock
from millstream.errors import LogFailed, LogInUse, MillstreamError
from millstream.log.recovery import recover
from millstream.log.storage.disk import LOCKED_OUT, Disk
from millstream.log.storage.files import (
    Durable,
    NotSynced,
    disk_full,
    disk_full_named,
    is_full,
    list_files,
    read_start,
    wal_name,
    write_kept,
    write_whole,
)
from millstream.log.storage.frame import Header, Mark, pack_frame, remember, seed_of
from millstream.log.storage.segment import Owner, write_segment
from millstream.log.storage.wal import Wal


@dataclass(frozen=True)
class WriterLimits:
    """When a write-ahead file is full."""

    segment_bytes: int
    segment_rows: int


class PartitionWriter:
    """Appends to a partition. Not thread-safe, except for `trim` and sealing."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        folder: Path,
        owner: Owner,
        limits: WriterLimits,
        *,
        sealer: Executor | None,
        on_sealed: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._folder = folder
        self._owner = owner
        self._limits = limits
        self._sealer = sealer
        self._on_sealed = on_sealed
        self._seed = seed_of(owner.topic, owner.partition)
        self._files = threading.RLock()
        """Held while segments and old write-ahead files are created and removed."""
        self._writing = threading.RLock()
        """Held while the write-ahead file grows or is replaced by a new one."""
        self.failed: LogFailed | None = None
        self.seal_problem: Exception | None = None
        self._sealing: Future[None] | None = None
        try:
            with disk_full_named(folder / "lock"):
                self._lock = disk.lock(folder / "lock")
        except LOCKED_OUT as error:
            raise _in_use(folder, str(error)) from None
        try:
            with disk_full_named(folder / "lock"):
                files_found = recover(disk, folder, owner)
        except BaseException:
            self._lock.release()
            raise
        self.cut = files_found.cut
        """Bytes of a torn frame that were cut off when it was opened."""
        self.producers = files_found.producers
        self._unsealed = list(files_found.unsealed)
        self._wal = files_found.wal.path
        self._base, self.end, self._time = files_found.wal.base, files_found.wal.end, files_found.wal.time
        self._begin, self._position = files_found.wal.begin, files_found.wal.position
        self.seal_soon()

    # ------------------------------------------------------------ appending

    def write(self, batch: pa.RecordBatch, marks: list[Mark]) -> int:
        """Append records as one frame and return the offset of the first when they are durable."""
        with self._writing:
            if self.failed is not None:
                raise self.failed
            if (
                self._position - self._begin >= self._limits.segment_bytes
                or self.end - self._base >= self._limits.segment_rows
            ):
                self.roll()
                if self.failed is not None:
                    raise self.failed
            first, time = self.end, max(self._time, self._clock.now())
            frame = pack_frame(self._seed, first, time, batch, marks)
            try:
                self._disk.append(self._wal, frame)
            except OSError as error:
                self._cut_back(error)
                raise disk_full(self._wal) from None
            try:
                self._disk.fsync(self._wal)
            except OSError as error:
                raise self._fail("an fsync failed", error) from None
            self.end, self._time = first + batch.num_rows, time
            self._position += len(frame)
            self._publish()
            for mark in marks:
                remember(self.producers, mark)
            return first

    def _cut_back(self, error: OSError) -> None:
        """Remove a frame that was not written completely; fatal unless the disk was full."""
        try:
            self._disk.truncate(self._wal, self._position)
            self._disk.fsync(self._wal)
        except OSError as second:
            raise self._fail("a frame could not be removed", second) from None
        if not is_full(error):
            raise self._fail("a write failed", error) from None

    def _publish(self) -> None:
        """Publish to readers, also in other processes, how far they may read."""
        published = Durable(self._disk.boot(), self.end, self._base, self._position, self._time)
        try:
            self._disk.write_at(self._folder / "durable", 0, published.pack())
        except OSError as error:
            raise self._fail("the new end could not be published", error) from None

    def _fail(self, what: str, error: OSError) -> LogFailed:
        self.failed = LogFailed(
            f"{what}: nothing more is appended to {self._folder}",
            detail=f"{error.strerror or error}. What was acknowledged is kept; "
            "the outcome of the last append is unknown.",
            hint="look at the disk, then close the topic and open it again",
        )
        return self.failed

    # ------------------------------------------------------------ rolling and sealing

    def roll(self, *, seal: bool = True) -> bool:
        """Start a new write-ahead file; the old one becomes a segment. False when it is empty, or the disk is full."""
        with self._writing:
            if self.end == self._base or self.failed is not None:
                return False
            header = Header(self._owner.topic, self._owner.partition, self.end, self._time, self.producers).pack()
            path = self._folder / wal_name(self.end)
            try:
                write_whole(self._disk, path, header)
            except OSError as error:
                if isinstance(error, NotSynced) or not is_full(error):
                    self._fail("a new file could not be created", error)
                return False  # without space the old file keeps growing, and the next append tries again
            old = self._base
            self._disk.close(self._wal)
            self._wal, self._base = path, self.end
            self._begin = self._position = len(header)
            with contextlib.suppress(LogFailed):  # the next append reports it
                self._publish()
            self._unsealed.append(old)
        if seal:
            self.seal_soon()
        return True

    def seal_soon(self) -> None:
        """Convert complete write-ahead files to segments, in the background where possible."""
        if not self._unsealed:
            return
        if self._sealer is None:
            self.seal()
        else:
            self._sealing = self._sealer.submit(self.seal)

    def seal(self) -> None:
        """Convert complete write-ahead files to segments; a failure is kept and retried later."""
        with self._files:
            if not self._unsealed:
                return
            while self._unsealed:
                try:
                    self._seal(self._unsealed[0])
                except (OSError, MillstreamError, pa.ArrowException) as error:
                    self.seal_problem = error
                    return
                self.seal_problem = None
                self._unsealed.pop(0)
        self._on_sealed()

    def _seal(self, base: int) -> None:
        if base >= read_start(self._disk, self._folder):
            wal = Wal(self._disk, self._folder, self._owner, base)
            wal.advance()
            write_segment(self._disk, self._folder, self._owner, pa.concat_tables(wal.read(base, wal.end)))
        self._disk.unlink(self._folder / wal_name(base))
        self._disk.fsync_dir(self._folder)

    # ------------------------------------------------------------ trimming

    def trim(self, start: int) -> None:
        """Remove the files below an offset that begins a file; the start is durable before anything is removed."""
        with self._files:
            if start <= read_start(self._disk, self._folder):
                return
            if self.failed is not None:
                raise self.failed
            try:
                write_kept(self._disk, self._folder / "start.json", start)
            except OSError as error:
                if isinstance(error, NotSynced) or not is_full(error):
                    raise self._fail("the new start could not be saved", error) from None
                raise disk_full(self._folder / "start.json") from None
            files = list_files(self._disk, self._folder)
            names = [str(s) for s in files.segments if s.end <= start]
            names += [wal_name(b) for b in files.wals if b < start]
            try:
                for name in names:
                    self._disk.unlink(self._folder / name)
                self._disk.fsync_dir(self._folder)
            except OSError as error:  # it is trimmed nevertheless; the files are removed when it is reopened
                self.seal_problem = error
            self._unsealed = [b for b in self._unsealed if b >= start]

    def close(self) -> None:
        """Wait for sealing and release the lock."""
        if self._sealing is not None:
            self._sealing.result()
        with self._writing, self._files:
            self._disk.close(self._wal)
            self._disk.close(self._folder / "durable")
            self._lock.release()


def _in_use(folder: Path, holder: str) -> LogInUse:
    return LogInUse(
        f"another writer has {folder.parent.name}, partition {int(folder.name[1:])}",
        detail=f"It is the process {holder or 'that is just starting'}.",
        hint="a partition has one writer at a time: end the other one, or send through it",
    )
