"""What a writer does before its first append: sees that the files fit together, and cuts off a torn tail.

Only the last frame of the newest write-ahead file can be torn, because every frame has its own fsync. Anything else
that does not fit is damage: it is named and left as it is. Every step may be cut short by a crash and is done again
then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millstream.log.disk import Disk
from millstream.log.files import (
    Durable,
    Files,
    SegmentName,
    damaged,
    list_files,
    read_durable,
    read_start,
    wal_name,
    write_whole,
)
from millstream.log.frame import Header, Producers, remember
from millstream.log.segment import Owner, check_segment
from millstream.log.wal import Wal, chain


@dataclass(frozen=True)
class Recovered:
    """A partition that is ready to be appended to."""

    wal: Wal
    producers: Producers
    unsealed: tuple[int, ...]
    """Write-ahead files that are complete and not yet segments."""
    cut: int
    """Bytes of a torn frame that were cut off."""


def recover(disk: Disk, folder: Path, owner: Owner) -> Recovered:
    """Make a partition ready; only for who holds its lock."""
    disk.fsync_dir(
        folder
    )  # a process that was killed may have left names that are not durable; what follows builds on them
    start, published = read_start(disk, folder), read_durable(disk, folder)
    files = list_files(disk, folder)
    if not files.wals and not files.segments:
        if start or (published is not None and published.offset):
            raise damaged(folder, 0, f"its files are gone; offset {start:,} should be there")
        for above in folder.parents[:3]:  # who made the topic may have been killed before it did so
            disk.fsync_dir(above)
        write_whole(disk, folder / wal_name(0), Header(owner.topic, owner.partition, 0, 0).pack())
        files = list_files(disk, folder)
    if not files.wals:
        raise damaged(folder, 0, "its write-ahead file is gone")
    files = _tidy(disk, folder, files, start)
    newest = files.wals[-1]
    missing = chain(files, start, newest)
    if isinstance(missing, int) or (missing and missing[-1].end != newest):
        at = missing if isinstance(missing, int) else newest
        raise damaged(folder, 0, f"no file holds offset {at:,}")
    for piece in missing:
        if piece.segment is None:
            _check_complete(disk, folder, owner, piece.base, piece.end)
    wal = Wal(disk, folder, owner, newest)
    cut = _cut_tail(disk, folder, wal, published)
    disk.fsync(wal.path)
    disk.write_at(folder / "durable", 0, Durable(disk.boot(), wal.end, wal.base, wal.position, wal.time).pack())
    producers: Producers = dict(wal.header.producers)
    for frame in wal.frames:
        for mark in frame.marks():
            remember(producers, mark)
    return Recovered(wal, producers, tuple(b for b in files.wals if b != newest), cut)


def _tidy(disk: Disk, folder: Path, files: Files, start: int) -> Files:
    """Remove what a crash left: temporary files, what was trimmed, and write-ahead files that became segments."""
    gone: list[str] = list(files.temporary)
    segments: list[SegmentName] = []
    for segment in files.segments:
        if segment.end <= start:
            gone.append(str(segment))
        else:
            segments.append(segment)
    sealed = {s.base: s for s in segments}
    wals: list[int] = []
    for base in files.wals:
        if base in sealed:
            check_segment(disk, folder, sealed[base])
            gone.append(wal_name(base))
        elif base < start:  # it was left behind by a trim: the one that is written to never begins below the start
            gone.append(wal_name(base))
        else:
            wals.append(base)
    if not wals:
        raise damaged(folder, 0, "its newest write-ahead file is gone")
    for name in gone:
        disk.unlink(folder / name)
    if gone:
        disk.fsync_dir(folder)
    return Files(tuple(segments), tuple(wals), ())


def _check_complete(disk: Disk, folder: Path, owner: Owner, base: int, end: int) -> None:
    wal = Wal(disk, folder, owner, base)
    wal.advance()
    if wal.end != end or wal.position != disk.size(wal.path):
        raise damaged(wal.path, wal.position, f"the frame of offset {wal.end:,} is not whole")


def _cut_tail(disk: Disk, folder: Path, wal: Wal, published: Durable | None) -> int:
    """Find the last whole frame, cut off what follows it, and say how many bytes that were.

    When the machine was not started since, what lies behind the published place was never acknowledged. It is cut off
    even if it looks whole: after an fsync that failed, memory shows bytes that the medium does not have.
    """
    size = disk.size(wal.path)
    same = published is not None and published.boot == disk.boot() and any(published.boot)
    if published is not None and published.base > wal.base:
        raise damaged(folder / wal_name(published.base), 0, "the file is gone")
    if same and published is not None:
        wal.advance(published.position if published.base == wal.base else wal.begin)
        if wal.end != published.offset:
            raise damaged(wal.path, wal.position, f"the frame of offset {wal.end:,} is not whole")
    else:
        wal.advance()
        torn = wal.bad_place()
        known = published.position if published is not None and published.base == wal.base else wal.begin
        if (torn and wal.position < known) or (published is not None and wal.end < published.offset):
            raise damaged(wal.path, wal.position, f"the frame of offset {wal.end:,} is not whole")
    cut = size - wal.position
    if cut > 0:
        disk.truncate(wal.path, wal.position)
    return cut
