"""A write-ahead file as a list of its frames, and the chain of files of a partition."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from millstream.log.storage.disk import Disk
from millstream.log.storage.files import PartitionFiles, SegmentName, damaged, wal_name
from millstream.log.storage.frame import Frame, frame_at, read_header, seed_of, whole_frame_after
from millstream.log.storage.segment import Owner, placed

STEP = 8 << 20
"""How much of a file is scanned at a time."""

CHUNK_ROWS = 100_000
"""Frames with fewer rows than this, on average, are combined when they are read."""

END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class Wal:
    """The verified frames of a write-ahead file so far."""

    def __init__(self, disk: Disk, folder: Path, owner: Owner, base: int) -> None:
        self._disk = disk
        self._owner = owner
        self._seed = seed_of(owner.topic, owner.partition)
        self.path = folder / wal_name(base)
        self.base = base
        self.header, self.begin = read_header(disk, self.path, owner.topic, owner.partition, base)
        self.frames: list[Frame] = []
        self.position = self.begin
        """The position of the next frame."""

    @property
    def end(self) -> int:
        """The offset after its last record."""
        return self.frames[-1].end if self.frames else self.base

    @property
    def time(self) -> int:
        """The ingest time of its last record, or of the last one before it."""
        return self.frames[-1].time if self.frames else self.header.time

    def advance(self, limit: int | None = None) -> None:
        """Scan for frames up to a position in the file, or to its end; stops where there is no whole one."""
        if limit is None:
            limit = self._disk.size(self.path)
        step = STEP
        while self.position < limit:
            origin = self.position
            data = memoryview(self._disk.read(self.path, origin, min(step, limit - origin)))
            at, end = 0, self.end
            while (frame := frame_at(data, at, self._seed, origin)) is not None:
                if frame.base != end:
                    raise damaged(self.path, frame.position, f"offset {end} should follow, not {frame.base}")
                self.frames.append(frame)
                at += frame.size
                end += frame.rows
            self.position = origin + at
            if at == 0:
                if len(data) < step:
                    return
                step *= 4  # a frame may be longer than one scan step

    def bad_place(self) -> bool:
        """Whether something follows the last whole frame; damage that is not a torn tail is an error."""
        rest = memoryview(self._disk.read(self.path, self.position))
        after = whole_frame_after(rest, 0, self._seed)
        if after is not None:
            raise damaged(
                self.path, self.position, f"a frame is not whole, but one at byte {self.position + after:,} is"
            )
        return len(rest) > 0

    def read(self, start: int, end: int) -> list[pa.Table]:
        """The records from one offset to before another, with their positions."""
        first = bisect_right(self.frames, start, key=lambda f: f.base) - 1
        last = bisect_right(self.frames, end - 1, key=lambda f: f.base)
        tables = []
        for frames in _stretches(self.frames[max(first, 0) : last]):
            table = self._decoded(frames)
            times = np.repeat([f.time for f in frames], [f.rows for f in frames])
            skip = max(0, start - frames[0].base)
            rows = min(frames[-1].end, end) - frames[0].base - skip
            place = (self._owner.partition, frames[0].base + skip, times[skip : skip + rows])
            tables.append(placed(table.slice(skip, rows), *place))
        return tables

    def _decoded(self, frames: list[Frame]) -> pa.Table:
        """Read and decode the records of consecutive frames together: a schema followed by their payloads is an Arrow
        stream. Small ones become one chunk, since every operation on a table has a cost per chunk.
        """
        origin, end = frames[0].position, frames[-1].position + frames[-1].size
        data = memoryview(self._disk.read(self.path, origin, end - origin))
        if len(data) < end - origin:
            raise damaged(self.path, origin + len(data), "a frame is cut off")
        if len(frames) == 1:
            start, size = frames[0].payload
            payload = pa.py_buffer(data[start - origin : start - origin + size])
            return pa.Table.from_batches([pa.ipc.read_record_batch(payload, self._owner.schema)])
        payloads = (data[f.payload[0] - origin : f.payload[0] - origin + f.payload[1]] for f in frames)
        stream = b"".join((self._owner.schema.serialize(), *payloads, END_OF_STREAM))
        table = pa.ipc.open_stream(stream).read_all()
        return table.combine_chunks() if table.num_rows < CHUNK_ROWS * len(frames) else table


def _stretches(frames: list[Frame]) -> Iterator[list[Frame]]:
    """Group frames into ranges of about STEP bytes."""
    stretch: list[Frame] = []
    for frame in frames:
        if stretch and frame.position + frame.size - stretch[0].position > STEP:
            yield stretch
            stretch = []
        stretch.append(frame)
    if stretch:
        yield stretch


@dataclass(frozen=True)
class Piece:
    """A file of the chain; `segment` is None for a write-ahead file."""

    base: int
    end: int
    segment: SegmentName | None


def chain(files: PartitionFiles, start: int, end: int) -> list[Piece] | int:
    """The files that hold the offsets from `start` to `end`, in order; and the first missing offset, if there is one.

    Where a segment and the write-ahead file it was made from both exist, the segment is used.
    """
    segments = {s.base: s for s in files.segments}
    wals = set(files.wals)
    bases = sorted({*segments, *wals})
    pieces: list[Piece] = []
    at = start
    while at < end:
        if (segment := segments.get(at)) is not None:
            piece = Piece(at, segment.end, segment)
        elif at in wals:
            following = bisect_right(bases, at)
            piece = Piece(at, bases[following] if following < len(bases) else end, None)
        else:
            return at
        pieces.append(piece)
        at = piece.end
    return pieces
