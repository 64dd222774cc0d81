"""Reads a partition: takes no lock, sees durable records only, and tolerates a writer that rolls and trims."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from millstream.errors import LogError, OffsetsTrimmed
from millstream.log.storage.disk import Disk
from millstream.log.storage.files import (
    Durable,
    SegmentName,
    damaged,
    list_files,
    read_durable,
    read_start,
    require_folder,
)
from millstream.log.storage.segment import PLACE, ROW_GROUP, Owner, check_segment, open_segment, times_of
from millstream.log.storage.wal import Piece, Wal, chain

LOOKS = 50
"""How often a reader retries when files change during a read."""

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """A range of offsets in one file."""

    partition: int
    start: int
    end: int
    path: Path | None
    """The sealed segment as a Parquet file; None while the records are in a write-ahead file: use `Topic.read`."""
    whole: bool
    """Whether it covers the whole file."""
    base: int
    """The first offset of the file."""


@dataclass(frozen=True)
class Layout:
    """The files of a partition at one moment."""

    start: int
    durable: Durable
    pieces: tuple[Piece, ...]


class PartitionReader:
    """The readable records of a partition."""

    def __init__(self, disk: Disk, folder: Path, owner: Owner) -> None:
        self._disk = disk
        self._folder = folder
        self._owner = owner
        self._mutex = threading.RLock()
        self._wals: dict[int, Wal] = {}
        self._checked: set[SegmentName] = set()
        self._times: dict[SegmentName, tuple[int, int]] = {}

    # ------------------------------------------------------------ how far

    def start(self) -> int:
        """The first offset that was not trimmed."""
        return read_start(self._disk, self._folder)

    def durable(self) -> Durable:
        """The end of the durable records.

        The writer publishes it without an fsync. After a reboot of the machine, the files themselves are checked: what
        is read from them then comes from the medium.
        """
        published = read_durable(self._disk, self._folder)
        if published is not None and published.boot == self._disk.boot() and any(published.boot):
            return published
        for _ in range(LOOKS):
            files = list_files(self._disk, self._folder)
            if not files.wals:
                require_folder(self._disk, self._folder)
                if files.segments or (published is not None and published.offset):
                    raise damaged(self._folder, 0, "its write-ahead file is gone")
                return Durable(self._disk.boot(), 0, 0, 0, 0)
            try:
                with self._mutex:
                    wal = self._wal(files.wals[-1])
                    wal.advance()
                    if self._disk.size(wal.path) > wal.position:
                        wal.bad_place()
                    if published is not None and wal.end < published.offset:
                        raise damaged(wal.path, wal.position, f"the frame of offset {wal.end:,} is not whole")
                    return Durable(self._disk.boot(), wal.end, wal.base, wal.position, wal.time)
            except FileNotFoundError:
                continue
        raise self._restless()

    def layout(self) -> Layout:
        """The files from the start to the durable end; HomeDamaged when one is missing."""
        missing = 0
        for _ in range(LOOKS):
            start = self.start()
            durable = self.durable()
            files = list_files(self._disk, self._folder)
            pieces = chain(files, start, durable.offset)
            if not isinstance(pieces, int):
                self._forget({*files.wals}, {*files.segments})
                return Layout(start, durable, tuple(pieces))
            missing = pieces
        raise damaged(self._folder, 0, f"no file holds offset {missing:,}")

    # ------------------------------------------------------------ records

    def parts(self, start: int, end: int) -> list[Part]:
        """The files that hold these offsets."""
        layout = self.layout()
        self._check(start, end, layout)
        parts = []
        for piece in layout.pieces:
            first, last = max(start, piece.base), min(end, piece.end)
            if first < last:
                path = None if piece.segment is None else self._folder / str(piece.segment)
                whole = (first, last) == (piece.base, piece.end)
                parts.append(Part(self._owner.partition, first, last, path, whole, piece.base))
        return parts

    def read(self, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Read these records with their positions, checked."""
        names = self._names(columns)

        def look(layout: Layout) -> pa.Table:
            self._check(start, end, layout)
            tables = [
                table.select(names)
                for piece in layout.pieces
                if piece.base < end and piece.end > start
                for table in self._read(piece, layout, max(start, piece.base), min(end, piece.end), names)
            ]
            empty = pa.schema([*self._owner.schema, *PLACE]).empty_table().select(names)
            return pa.concat_tables(tables) if tables else empty

        return self._steady(look)

    def at(self, time: int) -> int:
        """The first offset with this ingest time or a later one; the end when there is none."""

        def look(layout: Layout) -> int:
            for piece in layout.pieces:
                if piece.segment is None:
                    wal = self._indexed(piece, layout)
                    later = next((f.base for f in wal.frames if f.time >= time), None)
                    if later is not None and later < layout.durable.offset:
                        return later
                    continue
                first, last = self.times(piece.segment)
                if first >= time:
                    return piece.base
                if last >= time:
                    tables = self._read(piece, layout, piece.base, piece.end, ["$time"])
                    times = pa.concat_tables(tables).column("$time").cast(pa.int64()).to_numpy()
                    return piece.base + int(np.searchsorted(times, time))
            return layout.durable.offset

        return self._steady(look)

    def last_time(self, piece: Piece) -> int:
        """The ingest time of the last record of a file."""

        def look(layout: Layout) -> int:
            return self.times(piece.segment)[1] if piece.segment is not None else self._indexed(piece, layout).time

        return self._steady(look)

    def times(self, segment: SegmentName) -> tuple[int, int]:
        """The ingest times of a segment's first and last record."""
        if segment not in self._times:
            self._times[segment] = times_of(open_segment(self._disk, self._folder, segment, self._owner))
        return self._times[segment]

    def check(self, segment: SegmentName) -> None:
        """Compare a segment with its checksum, once."""
        if segment not in self._checked:
            check_segment(self._disk, self._folder, segment)
            open_segment(self._disk, self._folder, segment, self._owner)
            self._checked.add(segment)

    def size(self, piece: Piece) -> int:
        """The size of a file in bytes; 0 when it was removed in the meantime."""
        try:
            name = str(piece.segment) if piece.segment is not None else f"{piece.base:020d}.wal"
            return self._disk.size(self._folder / name)
        except FileNotFoundError:
            return 0

    # ------------------------------------------------------------ inside

    def _names(self, columns: Sequence[str] | None) -> list[str]:
        known = self._owner.schema.names
        names = known if columns is None else [c for c in columns if c not in PLACE.names]
        strange = [c for c in names if c not in known]
        if strange:
            raise LogError(f"the topic does not have a column `{strange[0]}`", detail="columns: " + ", ".join(known))
        return [*names, *PLACE.names]

    def _steady(self, look: Callable[[Layout], T]) -> T:
        """Retry a read when a file was removed between listing and opening it."""
        for _ in range(LOOKS):
            try:
                return look(self.layout())
            except FileNotFoundError:
                continue
        raise self._restless()

    def _read(self, piece: Piece, layout: Layout, start: int, end: int, names: list[str]) -> list[pa.Table]:
        if piece.segment is None:
            wal = self._indexed(piece, layout)
            if wal.end < end:
                raise damaged(wal.path, wal.position, f"the frame of offset {wal.end:,} is not whole")
            return wal.read(start, end)
        self.check(piece.segment)
        file = open_segment(self._disk, self._folder, piece.segment, self._owner)
        first, last = start - piece.base, end - piece.base
        groups = range(first // ROW_GROUP, (last - 1) // ROW_GROUP + 1)
        table = file.read_row_groups(list(groups), columns=names)
        skipped = first // ROW_GROUP * ROW_GROUP
        return [table.replace_schema_metadata().slice(first - skipped, last - first)]

    def _indexed(self, piece: Piece, layout: Layout) -> Wal:
        with self._mutex:
            wal = self._wal(piece.base)
            wal.advance(layout.durable.position if piece.base == layout.durable.base else None)
            return wal

    def _wal(self, base: int) -> Wal:
        if base not in self._wals:
            self._wals[base] = Wal(self._disk, self._folder, self._owner, base)
        return self._wals[base]

    def _forget(self, wals: set[int], segments: set[SegmentName]) -> None:
        with self._mutex:
            self._wals = {b: w for b, w in self._wals.items() if b in wals}
            self._checked &= segments
            self._times = {s: t for s, t in self._times.items() if s in segments}

    def _check(self, start: int, end: int, layout: Layout) -> None:
        where = f"partition {self._owner.partition}"
        if start < layout.start:
            raise OffsetsTrimmed(
                f"the offsets below {layout.start:,} of {where} were trimmed",
                detail=f"requested: {start:,} to {end:,}",
                hint=f"read from {layout.start:,} on, or let a reader hold what it needs: topic.hold(...)",
            )
        if end > layout.durable.offset or start > end:
            raise LogError(
                f"the offsets {start:,} to {end:,} of {where} are not there",
                detail=f"the durable ones are {layout.start:,} to {layout.durable.offset:,}",
            )

    def _restless(self) -> LogError:
        return LogError(f"the files of {self._folder} change faster than they can be read", hint="read again")
