"""Gap recovery: a flow that may lose records goes on after a failure without what it had, and says how much that was.

A flow that ends between two epochs leaves a note, ``stopped.json`` with the epoch; one that finds its note goes on as
if nothing had been. Without it, the state may be half written: the flow takes empty state and the newest records.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import orjson

from millstream import paths
from millstream.connect.port import Offsets, SourceSlice
from millstream.errors import HomeDamaged
from millstream.log.storage.files import encoded
from millstream.runtime.epoch.progress import Progress, count
from millstream.runtime.home_dir import HINT
from millstream.state.run import sync_directory, write_durably


class StopNote:
    """The note that a flow leaves when it ends well."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def was_clean(self, number: int) -> bool:
        """Whether the flow ended well after this epoch; the note is taken away, so that it speaks once."""
        if not os.path.lexists(self._path):
            return False
        found = read_note(self._path)
        paths.delete_file(self._path)
        sync_directory(self._path.parent)
        return found == number

    def write(self, number: int) -> None:
        """Leave the note."""
        write_durably(self._path, note(number))


def note(number: int) -> bytes:
    """The note of a flow that ended well after this epoch."""
    return encoded({"epoch": number})


def read_note(path: Path) -> int:
    """The epoch of a note. One that is damaged is not taken for none: without it, a flow gives up its state."""
    try:
        data = path.read_bytes()
        found = orjson.loads(data)
        if "crc" in found and encoded(found["value"]) != data:
            raise ValueError("its checksum does not match")
        return int(found.get("value", found)["epoch"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        detail = error.strerror if isinstance(error, OSError) else "it is not what was written"
        raise HomeDamaged(f"the note {path} cannot be read", detail=detail, hint=HINT) from None


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
