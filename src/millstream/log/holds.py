"""Retention of a topic: holds, trims and retention. They exclude each other while they work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from millstream.clock import Clock
from millstream.errors import LogError, MillstreamError, OffsetsTrimmed
from millstream.log.reader import PartitionReader
from millstream.log.retention import Holds, Offsets, TrimReport, below, expired, floor, merge
from millstream.log.storage.disk import Disk
from millstream.log.storage.files import disk_full_named, require_topic
from millstream.log.topic_info import About
from millstream.log.writer import PartitionWriter


class Keeper:
    """Decides what of a topic is kept."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        folder: Path,
        about: About,
        readers: Sequence[PartitionReader],
        writer: Callable[[int], PartitionWriter],
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._holds = Holds(disk, folder)
        self._about = about
        self._readers = readers
        self._writer = writer
        self._mutex = threading.RLock()
        self._depth = 0

    def holds(self) -> dict[str, dict[int, int]]:
        """The holds of each reader, by partition."""
        return self._holds.all()

    def hold(self, reader: str, offsets: Offsets) -> None:
        """Place a reader's hold, unless what it needs is gone already."""
        with self._alone():
            for partition, offset in offsets.items():
                start = self._readers[partition].start()
                if offset < start:
                    raise OffsetsTrimmed(
                        f"{reader} cannot hold offset {offset:,} of partition {partition}: it was trimmed",
                        hint=f"the first one that is there is {start:,}",
                    )
            self._holds.put(reader, offsets)

    def release(self, reader: str) -> bool:
        """Release the hold of a reader; returns whether there was one."""
        return self._holds.remove(reader)

    def trim(self, before: Offsets, *, force: bool) -> TrimReport:
        """Trim on request."""
        with self._alone():
            holds = self._holds.all()
            for partition, offset in before.items():
                crossed = below(holds, partition, offset)
                if crossed and not force:
                    reader, offsets = next(iter(crossed.items()))
                    raise LogError(
                        f"{reader} still needs partition {partition} from offset {offsets[partition]:,} on",
                        detail=f"requested: trim before {offset:,}; nothing was removed",
                        hint="trim less, or release the reader, or force it: the reader then loses records",
                    )
            return self._remove(before, holds)

    def retain(self, *, hard: bool) -> TrimReport:
        """Remove records by age and size."""
        about = self._about
        if about.retain_time is None and about.retain_bytes is None:
            return TrimReport()
        with self._alone():
            now, holds = self._clock.now(), self._holds.all()
            before: dict[int, int] = {}
            blocking: dict[str, dict[int, int]] = {}
            for partition, reader in enumerate(self._readers):
                layout = reader.layout()
                upto = expired(reader, layout, now, about.retain_time, about.retain_bytes)
                least = floor(holds, partition)
                if least is not None and least < upto and not (hard or about.hard_cap):
                    merge(blocking, below(holds, partition, upto))
                    upto = least
                if upto > layout.start:
                    before[partition] = upto
            return replace(self._remove(before, holds), held=blocking)

    def retain_quietly(self) -> None:
        """Apply retention after a segment was sealed; a failure is retried with the next one."""
        try:
            self.retain(hard=False)
        except (MillstreamError, OSError):
            return

    def _remove(self, before: Offsets, holds: Mapping[str, Offsets]) -> TrimReport:
        removed: dict[int, tuple[int, int]] = {}
        crossed: dict[str, dict[int, int]] = {}
        size = files = 0
        for partition, offset in sorted(before.items()):
            reader = self._readers[partition]
            layout = reader.layout()
            if not layout.pieces or layout.pieces[0].end > offset:
                continue
            writer = self._writer(partition)
            if layout.durable.offset <= offset and writer.roll(seal=False):
                layout = reader.layout()
            gone = [p for p in layout.pieces if p.end <= offset]
            if gone:
                start = gone[-1].end
                size += sum(reader.size(p) for p in gone)
                files += len(gone)
                writer.trim(start)
                removed[partition] = (layout.start, start)
                merge(crossed, below(holds, partition, start))
            writer.seal_soon()
        return TrimReport(removed, size, files, crossed)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Prevent other threads and processes from placing or crossing a hold inside the block."""
        with self._mutex:
            with disk_full_named(self._holds.lock()):
                require_topic(self._disk, self._holds.lock().parent.parent)
                if not self._disk.exists(self._holds.lock().parent):
                    self._disk.mkdir(self._holds.lock().parent)
                lock = self._disk.lock(self._holds.lock(), wait=True) if not self._depth else None
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if lock is not None:
                    lock.release()
