"""Recovery of a partition before the first append of a writer: checks the files for consistency, and cuts off a torn
tail.

Only the last frame of the newest write-ahead file can be torn, because every frame has its own fsync. Any other
inconsistency is damage: it is reported and left unchanged. A step that a crash interrupts is repeated. `check` reports
what a writer would report, and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millstream.log.storage.disk import Disk
from millstream.log.storage.files import (
    Durable,
    PartitionFiles,
    SegmentName,
    damaged,
    list_files,
    read_durable,
    read_start,
    require_folder,
    wal_name,
    write_whole,
)
from millstream.log.storage.frame import Header, Producers, remember
from millstream.log.storage.segment import Owner, check_segment
from millstream.log.storage.wal import Wal, chain


@dataclass(frozen=True)
class Recovered:
    """A partition that is ready for appends."""

    wal: Wal
    producers: Producers
    unsealed: tuple[int, ...]
    """Write-ahead files that are complete and not yet segments."""
    cut: int
    """Bytes of a torn frame that were cut off."""


@dataclass(frozen=True)
class FoundFiles:
    """The consistent files of a partition, and the leftovers."""

    files: PartitionFiles
    gone: tuple[str, ...]
    """Names that a crash has left: temporary files, trimmed files, and write-ahead files that became segments."""
    wal: Wal | None
    """The newest write-ahead file, read to its last whole frame; None if nothing was ever written."""
    published: Durable | None

    @property
    def known(self) -> int:
        """The position in the newest write-ahead file up to which a writer has published it as durable."""
        assert self.wal is not None
        last = self.published
        return last.position if last is not None and last.base == self.wal.base else self.wal.begin


def recover(disk: Disk, folder: Path, owner: Owner) -> Recovered:
    """Recover a partition; the caller must hold its lock."""
    require_folder(disk, folder)
    disk.fsync_dir(folder)  # a killed process may have left names that are not durable; the next steps depend on them
    files_found = check(disk, folder, owner)
    if files_found.wal is None:
        for above in folder.parents[:3]:  # the creator of the topic may have been killed before it did so
            disk.fsync_dir(above)
        write_whole(disk, folder / wal_name(0), Header(owner.topic, owner.partition, 0, 0).pack())
        files_found = check(disk, folder, owner)
        assert files_found.wal is not None
    for name in files_found.gone:
        disk.unlink(folder / name)
    if files_found.gone:
        disk.fsync_dir(folder)
    files, wal = files_found.files, files_found.wal
    cut = _settle_tail(disk, files_found)
    disk.fsync(wal.path)
    disk.write_at(folder / "durable", 0, Durable(disk.boot(), wal.end, wal.base, wal.position, wal.time).pack())
    producers: Producers = dict(wal.header.producers)
    for frame in wal.frames:
        for mark in frame.marks():
            remember(producers, mark)
    return Recovered(wal, producers, tuple(b for b in files.wals if b != wal.base), cut)


def check(disk: Disk, folder: Path, owner: Owner) -> FoundFiles:
    """Check what a writer would find; raises what it would raise, and changes nothing."""
    require_folder(disk, folder)
    start, published = read_start(disk, folder), read_durable(disk, folder)
    files = list_files(disk, folder)
    if not files.wals and not files.segments:
        if start or (published is not None and published.offset):
            raise damaged(folder, 0, f"its files are gone; offset {start:,} should be there")
        return FoundFiles(files, files.temporary, None, published)
    if not files.wals:
        raise damaged(folder, 0, "its write-ahead file is gone")
    files, gone = _needed(disk, folder, files, start)
    newest = files.wals[-1]
    pieces = chain(files, start, newest)
    if isinstance(pieces, int) or (pieces and pieces[-1].end != newest):
        at = pieces if isinstance(pieces, int) else newest
        raise damaged(folder, 0, f"no file holds offset {at:,}")
    for piece in pieces:
        if piece.segment is None:
            _check_complete(disk, folder, owner, piece.base, piece.end)
    wal = Wal(disk, folder, owner, newest)
    wal.advance()
    files_found = FoundFiles(files, gone, wal, published)
    if published is not None and published.base > wal.base:
        raise damaged(folder / wal_name(published.base), 0, "the file is gone")
    if (wal.bad_place() and wal.position < files_found.known) or (published is not None and wal.end < published.offset):
        raise damaged(wal.path, wal.position, f"the frame of offset {wal.end:,} is not whole")
    return files_found


def _needed(disk: Disk, folder: Path, files: PartitionFiles, start: int) -> tuple[PartitionFiles, tuple[str, ...]]:
    """The files that are still needed, and the leftovers."""
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
        elif base < start:  # left by a trim: the file being written never begins below the start
            gone.append(wal_name(base))
        else:
            wals.append(base)
    if not wals:
        raise damaged(folder, 0, "its newest write-ahead file is gone")
    return PartitionFiles(tuple(segments), tuple(wals), ()), tuple(gone)


def _check_complete(disk: Disk, folder: Path, owner: Owner, base: int, end: int) -> None:
    wal = Wal(disk, folder, owner, base)
    wal.advance()
    if wal.end != end or wal.position != disk.size(wal.path):
        raise damaged(wal.path, wal.position, f"the frame of offset {wal.end:,} is not whole")


def _settle_tail(disk: Disk, files_found: FoundFiles) -> int:
    """Cut off what follows the last whole frame, and return the number of bytes.

    Frames after the published position are kept: a writer may have died before it published them, and the published
    position may be an older copy. After a failed fsync, memory shows bytes that the medium does not have; so, unless
    the machine was rebooted since, they are written again before the fsync that makes them durable.
    """
    wal = files_found.wal
    assert wal is not None
    cut = disk.size(wal.path) - wal.position
    if cut > 0:
        disk.truncate(wal.path, wal.position)
    last = files_found.published
    if last is not None and last.boot == disk.boot() and wal.position > files_found.known:
        disk.write_at(
            wal.path, files_found.known, disk.read(wal.path, files_found.known, wal.position - files_found.known)
        )
    return cut
