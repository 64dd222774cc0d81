"""Gap recovery: a flow that may lose records resumes after a failure without its state, and reports how much it
skipped.

A flow that ends between two epochs leaves a note, ``stopped.json`` with the epoch. A flow that finds its note resumes
normally. Without the note, the state may be half written: the flow starts with empty state at the newest records.
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
from millstream.state.durable import write_durably


class StopNote:
    """The note that a flow leaves after a clean stop."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def was_clean(self, number: int) -> bool:
        """Whether the flow stopped cleanly after this epoch. The note is removed, so that it counts only once."""
        if not os.path.lexists(self._path):
            return False
        note = read_note(self._path)
        paths.delete_file(self._path)
        paths.sync_directory(self._path.parent)
        return note == number

    def write(self, number: int) -> None:
        """Write the note."""
        write_durably(self._path, note(number))


def note(number: int) -> bytes:
    """Build the note of a flow that stopped cleanly after this epoch."""
    return encoded({"epoch": number})


def read_note(path: Path) -> int:
    """Read the epoch of a note. A damaged note is not treated as missing: without it, a flow discards its state."""
    try:
        data = path.read_bytes()
        note = orjson.loads(data)
        if "crc" in note and encoded(note["value"]) != data:
            raise ValueError("its checksum does not match")
        return int(note.get("value", note)["epoch"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        detail = error.strerror if isinstance(error, OSError) else "it is not what was written"
        raise HomeDamaged(f"the note {path} cannot be read", detail=detail, hint=HINT) from None


def skipped(heads: Mapping[str, Offsets], progress: Progress) -> dict[str, SourceSlice]:
    """The records between the position of the flow and the newest ones, as slices."""
    slices = {}
    for source, ends in heads.items():
        at = progress.offsets.get(source, {})
        slices[source] = SourceSlice({p: (at.get(p, 0), max(at.get(p, 0), end)) for p, end in ends.items()})
    return slices


def after(progress: Progress, slices: Mapping[str, SourceSlice]) -> Progress:
    """The progress after a gap."""
    moved = progress.copy()
    for source, part in slices.items():
        moved.offsets[source] = part.end
        count(moved.skipped, source, sum(end - start for start, end in part.ranges.values()))
    return moved
