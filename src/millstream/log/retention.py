"""Decides what may be removed from a partition: holds of readers, explicit trims, retention by time and size. Whole
files only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from millstream import paths
from millstream.clock import Micros
from millstream.errors import DefinitionError
from millstream.log.reader import Layout, PartitionReader
from millstream.log.storage.disk import Disk
from millstream.log.storage.files import COPY, damaged, disk_full_named, read_kept, remove_kept, write_kept, write_small

Offsets = Mapping[int, int]


@dataclass(frozen=True)
class TrimReport:
    """What was removed, and what prevented a removal."""

    removed: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By partition, the first removed offset and the new start."""
    bytes: int = 0
    files: int = 0
    crossed: dict[str, dict[int, int]] = field(default_factory=dict)
    """Readers whose hold was crossed, with their holds: they have lost records."""
    held: dict[str, dict[int, int]] = field(default_factory=dict)
    """Readers that keep more than retention would, with their holds."""


class Holds:
    """The lower bounds of a topic's readers, one small file each."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        self._disk = disk
        self._folder = folder

    def lock(self) -> Path:
        """The file that is locked while a hold is placed or crossed."""
        return self._folder / "lock"

    def put(self, reader: str, offsets: Offsets) -> None:
        """Store a reader's bounds durably."""
        path = self._path(reader)
        if not reader or len(path.name) > paths.LONGEST:
            raise DefinitionError(
                f"a reader cannot be called {reader[:100]!r}",
                hint=f"a name has 1 to {paths.LONGEST - 5} plain characters",
            )
        with disk_full_named(path):
            value = {"reader": reader, "offsets": {str(p): o for p, o in sorted(offsets.items())}}
            if path.name not in self._disk.list(self._folder):
                write_kept(self._disk, path, value)
            else:  # the copy has lower bounds: using it keeps more than is needed
                write_small(self._disk, path, value)

    def remove(self, reader: str) -> bool:
        """Release the hold of a reader; returns whether there was one."""
        return remove_kept(self._disk, self._path(reader))

    def all(self) -> dict[str, dict[int, int]]:
        """The bounds of every reader."""
        holds = {}
        names = {n.removesuffix(COPY) for n in self._disk.list(self._folder)}
        for name in sorted(names):
            if name.endswith(".json"):
                value = read_kept(self._disk, self._folder / name)
                try:
                    if value is not None:
                        holds[str(value["reader"])] = {int(p): int(o) for p, o in value["offsets"].items()}
                except (KeyError, TypeError, ValueError, AttributeError):
                    raise damaged(self._folder / name, 0, "it is not a file of a hold") from None
        return holds

    def _path(self, reader: str) -> Path:
        return self._folder / f"{quote(reader, safe='')}.json"


def floor(holds: Mapping[str, Offsets], partition: int) -> int | None:
    """The lowest offset that a reader of this partition still needs."""
    return min((o[partition] for o in holds.values() if partition in o), default=None)


def below(holds: Mapping[str, Offsets], partition: int, start: int) -> dict[str, dict[int, int]]:
    """The readers that still need something below a new start."""
    return {r: {partition: o[partition]} for r, o in holds.items() if partition in o and o[partition] < start}


def merge(into: dict[str, dict[int, int]], more: Mapping[str, Offsets]) -> None:
    """Add the holds of readers in another partition."""
    for reader, offsets in more.items():
        into.setdefault(reader, {}).update(offsets)


def expired(
    reader: PartitionReader, layout: Layout, now: Micros, retain_time: int | None, retain_bytes: int | None
) -> int:
    """The offset up to which age and size allow removal."""
    upto = layout.start
    sizes = [reader.size(p) for p in layout.pieces]
    total = sum(sizes)
    for piece, size in zip(layout.pieces, sizes, strict=True):
        old = retain_time is not None and reader.last_time(piece) < now - retain_time
        large = retain_bytes is not None and total > retain_bytes and piece.segment is not None
        if not (old or large):
            break
        upto, total = piece.end, total - size
    return upto
