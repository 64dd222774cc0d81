"""Group commit: appends that wait together are written to disk together, as one frame and one fsync.

A caller that finds no other at work commits for all waiting callers. A thread commits what was sent without waiting.
The linger applies only while there are other callers: when the previous group had more than one append.
"""

from __future__ import annotations

import threading
import time
from collections import deque

import pyarrow as pa

from millstream.errors import LogFailed, MillstreamError, RecordRefused, RecoveryFailed
from millstream.log.append_ack import Entry
from millstream.log.rows import from_dicts, oversized
from millstream.log.storage.frame import Mark
from millstream.log.writer import PartitionWriter

GROUP_BYTES = 8 << 20
QUEUE_BYTES = 64 << 20


class Group:
    """The appends to one partition."""

    def __init__(
        self, writer: PartitionWriter, schema: pa.Schema, partition: int, *, record_bytes: int, linger: float
    ) -> None:
        self.writer = writer
        self._schema = schema
        self._partition = partition
        self._record_bytes = record_bytes
        self._linger = linger
        self._queue: deque[Entry] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self.answers = threading.Condition()
        """The condition that the futures of single rows share."""
        self._busy = False
        self._last = 1
        self._closing = False
        self._threads: list[threading.Thread] = []
        """At most one, once something was sent without waiting."""

    # ------------------------------------------------------------ for those who append

    def put(self, entry: Entry) -> None:
        """Queue an append; blocks while the queue is full."""
        with self._changed:
            while self._bytes > QUEUE_BYTES and not self._closing:
                self._changed.wait()
            if self._closing:
                raise LogFailed("the topic is closed", hint="open it again: log.topic(...)")
            self._queue.append(entry)
            self._bytes += entry.weight
            if len(self._queue) in (1, self._last) or self._bytes > GROUP_BYTES:
                self._changed.notify_all()

    def drive(self, entry: Entry) -> None:
        """Return when an append is complete; commits for all waiting callers when no other thread does."""
        while self._has_turn(entry):
            self._commit_next()

    def _has_turn(self, entry: Entry) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: entry.answered or not self._busy)
            if not entry.answered:
                self._busy = True
            return not entry.answered

    def start_thread(self) -> None:
        """Start a thread that commits what is sent without waiting."""
        if not self._threads:
            with self._changed:
                if not self._threads and not self._closing:
                    name = f"millstream-log-{self._partition}"
                    self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
                    self._threads[0].start()

    def close(self) -> None:
        """Commit what is queued, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        while True:
            with self._changed:
                while self._busy:
                    self._changed.wait()
                if not self._queue:
                    break
                self._busy = True
            self._commit_next()
        self.writer.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._busy or not self._queue:
                    if self._closing and not self._queue:
                        return
                    self._changed.wait()
                self._busy = True
            self._commit_next()

    # ------------------------------------------------------------ committing

    def _commit_next(self) -> None:
        group: list[Entry] = []
        try:
            with self._changed:
                self._wait_for_others()
                size = 0
                while self._queue and (not group or size + self._queue[0].weight <= GROUP_BYTES):
                    entry = self._queue.popleft()
                    size += entry.weight
                    group.append(entry)
                self._bytes -= size
                self._last = len(group)
            self._commit(group)
        except BaseException as error:
            for entry in group:
                entry.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _wait_for_others(self) -> None:
        until = time.monotonic() + self._linger
        while 0 < len(self._queue) < self._last and self._bytes < GROUP_BYTES and not self._closing:
            left = until - time.monotonic()
            if left <= 0:
                return
            self._changed.wait(left)

    def _commit(self, group: list[Entry]) -> None:
        """Write the new records as one frame; acknowledge those that exist already, and refuse those that cannot be
        written.
        """
        fresh: list[Entry] = []
        ahead: dict[str, Entry] = {}
        again: list[tuple[Entry, Entry]] = []
        for entry in group:
            if entry.producer is not None:
                before = ahead.get(entry.producer)
                if before is not None and entry.sequence == before.sequence and entry.digest == before.digest:
                    again.append((entry, before))
                    continue
                if before is not None:  # settle the entries before it, then look again
                    self._write(fresh)
                    fresh, ahead = [], {}
                try:
                    known = self._known(entry)
                except MillstreamError as error:
                    entry.fail(error)
                    continue
                if known is not None:
                    entry.settle(self._partition, known if known[1] else None, repeated=True)
                    continue
                ahead[entry.producer] = entry
            fresh.append(entry)
        self._write(fresh)
        for entry, first in again:
            entry.follow(first, self._partition)
        assert all(entry.answered for entry in group), "every append is answered"

    def _known(self, entry: Entry) -> tuple[int, int] | None:
        """The begin and end of a sequence that exists already; (0, 0) for one whose details are no longer known."""
        mark = self.writer.producers.get(entry.producer or "")
        if mark is None or entry.sequence > mark.sequence:
            return None
        if entry.sequence < mark.sequence:
            return (0, 0)
        if entry.digest != mark.digest:
            raise RecoveryFailed(
                f"the producer {entry.producer} sends sequence {entry.sequence} with different content than before",
                detail=f"It became the offsets {mark.first:,} to {mark.end:,} of partition {self._partition}.",
                hint="a retry sends the same records; new records have a new sequence",
            )
        return (mark.first, mark.end)

    def _write(self, fresh: list[Entry]) -> None:
        if not fresh:
            return
        try:
            batch, accepted = self._batch(fresh)
            if batch is None:
                return
            marks, at = [], self.writer.end
            for entry, rows in accepted:
                if entry.producer is not None:
                    marks.append(Mark(entry.producer, entry.sequence, entry.digest, at, at + rows))
                at += rows
            first = self.writer.write(batch, marks)
        except MillstreamError as error:
            for entry in fresh:
                entry.fail(error)
            return
        with self.answers:  # a waiting caller wakes up once, when all are complete
            for entry, rows in accepted:
                entry.settle(self._partition, (first, first + rows), repeated=False)
                first += rows

    def _batch(self, entries: list[Entry]) -> tuple[pa.RecordBatch | None, list[tuple[Entry, int]]]:
        """The records of all appends as one batch, and the number of each; those that do not match the schema are
        refused.
        """
        pieces: list[pa.RecordBatch] = []
        accepted: list[tuple[Entry, int]] = []
        waiting: list[Entry] = []

        def convert() -> None:
            if waiting:
                batch, good = self._from_single(list(waiting))
                waiting.clear()
                if good:
                    pieces.append(batch)
                    accepted.extend((entry, 1) for entry in good)

        for entry in entries:
            if isinstance(entry.rows, pa.RecordBatch):
                convert()
                pieces.append(entry.rows)
                accepted.append((entry, entry.rows.num_rows))
            else:
                waiting.append(entry)
        convert()
        if len(pieces) > 1:
            return pa.concat_batches(pieces), accepted
        return (pieces[0] if pieces else None), accepted

    def _from_single(self, entries: list[Entry]) -> tuple[pa.RecordBatch, list[Entry]]:
        """Convert single rows to one batch; when one of them does not match the schema, they are tried one by one."""
        try:
            batch = from_dicts([e.rows for e in entries], self._schema)
        except RecordRefused:
            good = []
            for entry in entries:
                try:
                    from_dicts([entry.rows], self._schema)
                    good.append(entry)
                except RecordRefused as error:
                    entry.fail(error)
            batch, entries = from_dicts([e.rows for e in good], self._schema), good
        large = set(oversized(batch, self._record_bytes))
        if large:
            for row in large:
                entries[row].fail(too_large(0, self._record_bytes))
            batch = batch.take(pa.array([i for i in range(len(entries)) if i not in large], pa.int64()))
            entries = [e for i, e in enumerate(entries) if i not in large]
        return batch, entries


def too_large(row: int, limit: int) -> RecordRefused:
    """Return the error for a record above the size limit of its topic."""
    return RecordRefused(
        f"row {row} is larger than the topic accepts: {limit:,} bytes",
        hint="store large values elsewhere and refer to them in the record, or create the topic with record_bytes=...",
    )
