"""Gap recovery: a flow that may lose records goes on after a failure without what it had, and says how much that was.

A flow that ends between two epochs leaves a note, ``stopped.json`` with the epoch; one that finds its note goes on as
if nothing had been. Without it, the state may be half written: the flow takes empty state and the newest records.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import orjson

from millstream import paths
from millstream.connect.port import Offsets, SourceSlice
from millstream.runtime.progress import Progress, count
from millstream.state.run import sync_directory, write_durably


class Gap:
    """The note that a flow leaves when it ends well."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def was_clean(self, number: int) -> bool:
        """Whether the flow ended well after this epoch; the note is taken away, so that it speaks once."""
        try:
            found = orjson.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):
            return False
        paths.delete_file(self._path)
        sync_directory(self._path.parent)
        return bool(found == {"epoch": number})

    def stopped(self, number: int) -> None:
        """Leave the note."""
        write_durably(self._path, orjson.dumps({"epoch": number}))


def skipped(heads: Mapping[str, Offsets], progress: Progress) -> dict[str, SourceSlice]:
    """The records between where the flow was and the newest ones, as slices."""
    slices = {}
    for source, ends in heads.items():
        at = progress.offsets.get(source, {})
        slices[source] = SourceSlice({p: (at.get(p, 0), max(at.get(p, 0), end)) for p, end in ends.items()})
    return slices


def after(progress: Progress, slices: Mapping[str, SourceSlice]) -> Progress:
    """The progress behind a gap."""
    moved = progress.copy()
    for source, part in slices.items():
        moved.offsets[source] = part.end
        count(moved.skipped, source, sum(end - start for start, end in part.ranges.values()))
    return moved
