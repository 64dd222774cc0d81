"""A topic: producers append to it and readers read from it. Partitions do the work; see `writer` and `reader`."""

from __future__ import annotations

import errno
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.clock import Clock
from millstream.errors import DefinitionError, HomeDamaged, LogFailed, MillstreamError, RecordRefused
from millstream.log import recovery
from millstream.log import rows as append_rows
from millstream.log.append_ack import Ack, Entry, Gather, Sent
from millstream.log.group_commit import Group, too_large
from millstream.log.holds import Keeper
from millstream.log.partitioner import partition_of, partitions_of
from millstream.log.reader import Part, PartitionReader
from millstream.log.retention import Offsets, TrimReport
from millstream.log.storage.disk import LOCKED_OUT, Disk
from millstream.log.storage.files import (
    SegmentName,
    copy_of,
    damaged,
    folder_of,
    list_files,
    read_durable,
    require_folder,
    wal_name,
    write_copy,
)
from millstream.log.storage.frame import MAX_FRAME
from millstream.log.storage.segment import Owner, check_segment
from millstream.log.topic_info import NOTE, About, read_about
from millstream.log.writer import PartitionWriter, WriterLimits

__all__ = ["Ack", "Part", "PartitionStats", "Topic", "TrimReport"]


@dataclass(frozen=True)
class PartitionStats:
    """Statistics of a partition."""

    partition: int
    start: int
    end: int
    bytes: int
    segments: int
    problem: str | None = None
    """Why a segment could not be sealed; no data is lost."""


class Topic:
    """A durable, partitioned stream of records of one schema."""

    def __init__(self, disk: Disk, clock: Clock, folder: Path, about: About) -> None:
        self._disk = disk
        self._clock = clock
        self._folder = folder
        self._about = about
        owners = [Owner(about.id, p, about.schema) for p in range(about.partitions)]
        self._owners = owners
        self._readers = [PartitionReader(disk, folder_of(folder, p), o) for p, o in enumerate(owners)]
        self._groups: dict[int, Group] = {}
        self._keeper = Keeper(disk, clock, folder / "holds", about, self._readers, lambda p: self._group(p).writer)
        self._mutex = threading.RLock()
        self._turn = itertools.count()
        self._sealer = ThreadPoolExecutor(1, "millstream-log-seal") if disk.background else None
        self.closed = False

    @property
    def name(self) -> str:
        """The name of the topic."""
        return self._about.name

    @property
    def id(self) -> str:
        """A random id that no other topic has, not even an earlier one of the same name."""
        return self._about.id

    @property
    def schema(self) -> pa.Schema:
        """The columns of its records."""
        return self._about.schema

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self._about.partitions

    @property
    def key(self) -> str | None:
        """The column whose value determines the partition."""
        return self._about.key

    @property
    def about(self) -> About:
        """All settings of the topic."""
        return self._about

    # ------------------------------------------------------------ appending

    def append(
        self,
        rows: append_rows.Rows,
        *,
        partition: int | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        digest: str | None = None,
    ) -> Ack:
        """Append a dict, dicts, a record batch, a table or a data frame; returns when they are durable.

        All rows are written or none. With a `producer` and an increasing `sequence`, a retry is recognised in each
        partition and acknowledged with the original offsets. `digest` identifies the content, so that different content
        is refused.
        """
        future, entries = self._queue(rows, partition, producer, sequence, digest)
        for group, entry in entries:
            group.drive(entry)
        return future.result()

    def send(
        self,
        rows: append_rows.Rows,
        *,
        partition: int | None = None,
        producer: str | None = None,
        sequence: int | None = None,
        digest: str | None = None,
    ) -> Future[Ack]:
        """Append without waiting; the future completes when the rows are durable. Blocks only when the queue is full.

        A callback of the future must not append to the topic: it runs on the thread that commits appends.
        """
        try:
            if type(rows) is dict and producer is None and sequence is None:
                return self._send_one(rows, partition)
            future, entries = self._queue(rows, partition, producer, sequence, digest)
        except MillstreamError as error:
            failed: Future[Ack] = Future()
            failed.set_exception(error)
            return failed
        for group, entry in entries:
            if self._disk.background:
                group.start_thread()
            else:
                group.drive(entry)
        return future

    def _send_one(self, row: dict[str, Any], partition: int | None) -> Future[Ack]:
        """Append a single row: the same as `_queue`, without what only larger appends need."""
        if partition is None:
            partition = 0 if self.partitions == 1 else self._partition(row, None, None)
        group = self._groups.get(partition)
        if group is None:
            self._reader(partition)  # raises when there is no such partition
            group = self._group(partition)
        future = Sent(group.answers)
        entry = Entry(row.copy(), append_rows.weight(row), future)
        group.put(entry)
        if self._disk.background:
            group.start_thread()
        else:
            group.drive(entry)
        return future

    def _queue(
        self,
        rows: append_rows.Rows,
        partition: int | None,
        producer: str | None,
        sequence: int | None,
        digest: str | None,
    ) -> tuple[Future[Ack], list[tuple[Group, Entry]]]:
        if (producer is None) != (sequence is None):
            raise DefinitionError("a producer and a sequence go together", hint="pass both or none")
        if sequence is not None and not -(2**63) <= sequence < 2**63:
            raise DefinitionError(f"the sequence {sequence:.3e} does not fit into 64 bits", hint="count up from 1")
        pieces = self._placed(rows, partition, sequence)
        future: Future[Ack] = Future()
        future.set_running_or_notify_cancel()  # what was sent cannot be cancelled
        if not pieces:
            future.set_result(Ack({}))
        gather = Gather(future, len(pieces)) if len(pieces) > 1 else None
        groups = [self._groups.get(p) or self._group(p) for p in pieces]  # all locks before the first record
        entries = []
        for group, piece in zip(groups, pieces.values(), strict=True):
            entry = Entry(piece, append_rows.weight(piece), future, gather, producer, sequence or 0, digest)
            group.put(entry)
            entries.append((group, entry))
        return future, entries

    def _placed(self, rows: append_rows.Rows, partition: int | None, sequence: int | None) -> dict[int, Any]:
        """The rows of each partition: a batch, or one row in its original form, to be batched with others."""
        if partition is not None and not 0 <= partition < self.partitions:
            raise DefinitionError(f"{self.name} has no partition {partition}", hint=f"0 to {self.partitions - 1}")
        if isinstance(rows, Mapping):
            return {self._partition(rows, partition, sequence): dict(rows)}
        batch = append_rows.to_batch(rows, self.schema)
        if not batch.num_rows:
            return {}
        large = append_rows.oversized(batch, self._about.record_bytes)
        if large:
            raise too_large(large[0], self._about.record_bytes)
        if batch.nbytes > MAX_FRAME:
            raise RecordRefused(
                f"an append accepts at most {MAX_FRAME >> 20} MiB, not {batch.nbytes >> 20} MiB",
                hint="append the rows in smaller batches",
            )
        if partition is not None or self.key is None or self.partitions == 1:
            return {self._partition({}, partition, sequence): batch}
        places = partitions_of(batch, self.key, self.partitions)
        by_partition = {}
        for place in np.unique(places):
            chosen = np.flatnonzero(places == place)
            by_partition[int(place)] = batch if len(chosen) == len(places) else batch.take(pa.array(chosen))
        return by_partition

    def _partition(self, row: Mapping[str, Any], partition: int | None, sequence: int | None) -> int:
        if partition is not None:
            return partition
        if self.partitions == 1:
            return 0
        if self.key is None:
            return (next(self._turn) if sequence is None else sequence) % self.partitions
        kind = self.schema.field(self.key).type
        try:
            return partition_of(row.get(self.key), kind, self.partitions)
        except append_rows.REFUSED:
            append_rows.from_dicts([row], self.schema)  # raises with the reason
            raise

    def _group(self, partition: int) -> Group:
        group = self._groups.get(partition)
        if group is None:
            with self._mutex:
                if self.closed:
                    raise LogFailed(f"the topic {self.name} is closed", hint="open it again: log.topic(...)")
                group = self._groups.get(partition)
                if group is None:
                    group = self._groups[partition] = self._open(partition)
        return group

    def _open(self, partition: int) -> Group:
        about = self._about
        require_folder(self._disk, folder_of(self._folder, partition))
        if not self._disk.exists(copy_of(self._folder / NOTE)):
            # created by an older version, or by a process that was killed
            self._disk.fsync_dir(self._folder)
            write_copy(self._disk, self._folder / NOTE, about.to_json())
        writer = PartitionWriter(
            self._disk,
            self._clock,
            folder_of(self._folder, partition),
            self._owners[partition],
            WriterLimits(about.segment_bytes, about.segment_rows),
            sealer=self._sealer,
            on_sealed=self._keeper.retain_quietly,
        )
        return Group(writer, self.schema, partition, record_bytes=about.record_bytes, linger=about.linger)

    def last_sequence(self, producer: str) -> dict[int, int]:
        """By partition, the last durable sequence of a producer; -1: none."""
        marks = {p: self._group(p).writer.producers.get(producer) for p in range(self.partitions)}
        return {p: -1 if mark is None else mark.sequence for p, mark in marks.items()}

    # ------------------------------------------------------------ reading

    def start(self) -> dict[int, int]:
        """By partition, the first offset that was not trimmed."""
        return {p: r.start() for p, r in enumerate(self._readers)}

    def end(self) -> dict[int, int]:
        """By partition, the offset after the last durable record."""
        return {p: r.durable().offset for p, r in enumerate(self._readers)}

    def at(self, time: int) -> dict[int, int]:
        """By partition, the first offset that was appended at this time (in microseconds) or later."""
        return {p: r.at(time) for p, r in enumerate(self._readers)}

    def read(self, partition: int, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Read durable records with ``$part``, ``$offset`` and ``$time``."""
        return self._reader(partition).read(start, end, columns)

    def parts(self, partition: int, start: int, end: int) -> list[Part]:
        """The files that hold durable records: sealed segments, and the rest."""
        return self._reader(partition).parts(start, end)

    def _reader(self, partition: int) -> PartitionReader:
        if not 0 <= partition < self.partitions:
            raise DefinitionError(f"{self.name} has no partition {partition}", hint=f"0 to {self.partitions - 1}")
        return self._readers[partition]

    # ------------------------------------------------------------ keeping and removing

    def hold(self, reader: str, offsets: Offsets) -> None:
        """Prevent removal from these offsets on until the reader moves its hold or releases it."""
        for partition in offsets:
            self._reader(partition)
        self._keeper.hold(reader, offsets)

    def release(self, reader: str) -> bool:
        """Release the hold of a reader; returns whether there was one."""
        return self._keeper.release(reader)

    def holds(self) -> dict[str, dict[int, int]]:
        """The holds of each reader, by partition."""
        return self._keeper.holds()

    def trim(self, before: Offsets, force: bool = False) -> TrimReport:
        """Remove the files whose records are all below these offsets; refuses to cross a hold unless forced."""
        for partition in before:
            self._reader(partition)
        return self._keeper.trim(before, force=force)

    def retain(self, hard: bool = False) -> TrimReport:
        """Apply retention by age and size; with `hard`, also to what readers still need.

        This happens automatically whenever a segment is sealed; call it for a topic without appends.
        """
        return self._keeper.retain(hard=hard)

    def roll(self) -> None:
        """Seal the write-ahead files in the background; this happens automatically when they are full."""
        for partition in range(self.partitions):
            if self._readers[partition].durable().offset > self._readers[partition].start():
                self._group(partition).writer.roll()

    # ------------------------------------------------------------ care

    def verify(self) -> list[HomeDamaged]:
        """Read everything and compare it with its checksums; returns the damage, each with its file."""
        problems: list[HomeDamaged] = []

        def look(work: Callable[[], object]) -> None:
            try:
                work()
            except HomeDamaged as error:
                problems.append(error)
            except FileNotFoundError as error:
                problems.append(damaged(Path(error.filename), 0, "it is missing"))

        look(lambda: read_about(self._disk, self._folder))
        if self._disk.exists(copy_of(self._folder / NOTE)):
            look(lambda: read_about(self._disk, self._folder, copy_of(self._folder / NOTE).name))
        look(self._keeper.holds)
        for partition, reader in enumerate(self._readers):
            folder = folder_of(self._folder, partition)
            look(lambda f=folder, o=self._owners[partition]: self._verify_writing(f, o))  # type: ignore[misc]
            look(lambda r=reader, f=folder: self._verify(r, f, look))  # type: ignore[misc]
        return list({str(e): e for e in problems}.values())

    def settle(self) -> None:
        """Resolve an append that was interrupted by the death of its process: afterwards its records exist, or they do
        not.

        Otherwise readers would not see them until the next append, which keeps all whole frames.
        """
        for partition, owner in enumerate(self._owners):
            folder = folder_of(self._folder, partition)
            wals, published = list_files(self._disk, folder).wals, read_durable(self._disk, folder)
            if published is None or not wals or wals[-1] < published.base:
                continue
            known = published.position if wals[-1] == published.base else 0
            if self._disk.size(folder / wal_name(wals[-1])) <= known:
                continue
            with ExitStack() as locks:
                try:
                    locks.callback(self._disk.lock(folder / "lock").release)
                except LOCKED_OUT:
                    continue  # its writer is alive
                recovery.recover(self._disk, folder, owner)

    def _verify_writing(self, folder: Path, owner: Owner) -> None:
        """Report what a writer would report; not while there is one."""
        require_folder(self._disk, folder)
        for path in (folder / name for name in self._disk.list(folder)):
            if path.is_symlink():
                raise damaged(path, 0, "it is a symbolic link")
        with ExitStack() as locks:
            try:
                locks.callback(self._disk.lock(folder / "lock").release)
            except OSError as error:
                if error.errno != errno.EROFS:  # on a read-only disk there is no writer
                    return
            published, files_found = read_durable(self._disk, folder), recovery.check(self._disk, folder, owner)
            if published is not None and files_found.wal is not None and published.offset < files_found.wal.end:
                there = f"it ends at offset {published.offset:,}, but the records end at {files_found.wal.end:,}"
                raise damaged(folder / "durable", 0, there)

    def _verify(self, reader: PartitionReader, folder: Path, look: Callable[[Callable[[], object]], None]) -> None:
        for piece in reader.layout().pieces:
            if piece.segment is not None:
                look(lambda s=piece.segment: check_segment(self._disk, folder, s))  # type: ignore[misc]
            look(lambda p=piece: reader.read(p.base, p.end))  # type: ignore[misc]

    def verify_segment(self, path: Path) -> None:
        """Compare a sealed segment with the checksum in its name; once per process."""
        name = SegmentName.parse(path.name)
        for partition, reader in enumerate(self._readers):
            if name is not None and path.parent == folder_of(self._folder, partition):
                reader.check(name)
                return
        raise damaged(path, 0, f"it is no segment of {self.name}")

    def cut(self) -> dict[int, int]:
        """By partition, the bytes of a torn frame that were cut off when this writer opened it."""
        return {p: g.writer.cut for p, g in sorted(self._groups.items()) if g.writer.cut}

    def stats(self) -> list[PartitionStats]:
        """The statistics of each partition."""
        rows = []
        for partition, reader in enumerate(self._readers):
            layout = reader.layout()
            group = self._groups.get(partition)
            problem = None if group is None else group.writer.seal_problem
            rows.append(
                PartitionStats(
                    partition,
                    layout.start,
                    layout.durable.offset,
                    sum(reader.size(p) for p in layout.pieces),
                    sum(p.segment is not None for p in layout.pieces),
                    None if problem is None else str(problem),
                )
            )
        return rows

    def close(self) -> None:
        """Commit what was sent, and release the locks."""
        with self._mutex:
            self.closed = True
            groups, self._groups = self._groups, {}
        with ExitStack() as all_of_them:
            if self._sealer is not None:
                all_of_them.callback(self._sealer.shutdown)
            for group in groups.values():
                all_of_them.callback(group.close)
