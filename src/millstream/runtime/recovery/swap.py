"""Replaces parts of a home atomically, and keeps what it replaces.

A swap is a directory, ``repair/<time>/``. The new parts are prepared under ``.new``. Then a note, ``swap.json``, lists
what is to be moved. From that moment the swap will be completed: by this process, or by the next one that opens the
home. Replaced parts are next to the note under their old paths. When everything is done, the note is renamed to
``done.json``. A directory without a note was only a preparation, and is removed.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from millstream import paths
from millstream.errors import HomeDamaged
from millstream.state.durable import write_durably

FOLDER = "repair"
Failpoint = Callable[[str], None]


class Swap:
    """One replacement of parts of a home. Paths are relative to the home."""

    def __init__(self, home: Path, reason: str, *, failpoint: Failpoint = lambda _: None) -> None:
        self._home, self._reason, self._fail = home, reason, failpoint
        self._puts: list[str] = []
        self._asides: list[str] = []
        (home / FOLDER).mkdir(exist_ok=True)
        self.folder = _new_folder(home / FOLDER)

    def put(self, path: str) -> Path:
        """Return where to write the new part for `path`."""
        self._puts.append(path)
        place = self.folder / ".new" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def aside(self, path: str) -> None:
        """Remove a part without a replacement."""
        self._asides.append(path)

    def commit(self) -> Path:
        """Execute the swap; returns the directory that keeps what was replaced."""
        self._fail("prepared")
        sync_tree(self.folder)
        paths.sync_directory(self.folder.parent)
        paths.sync_directory(self._home)
        note: dict[str, Any] = {"format": 1, "reason": self._reason, "put": self._puts, "aside": self._asides}
        note["crc"] = zlib.crc32(orjson.dumps(note))
        write_durably(self.folder / "swap.json", orjson.dumps(note))
        self._fail("noted")
        _finish(self._home, self.folder, self._fail)
        return self.folder

    def cancel(self) -> None:
        """Discard what was prepared. A swap that has a note is completed instead, by the next process that opens the
        home: its directory may be the only place of what it has replaced.
        """
        if os.path.lexists(self.folder / "swap.json"):
            return
        with suppress(OSError):
            paths.delete_tree(self.folder, within=self._home)


def finish(home: Path) -> list[Path]:
    """Complete the swaps that a process left unfinished, and remove preparations. The home must be owned."""
    finished = []
    for folder in sorted((home / FOLDER).glob("*")):
        if os.path.lexists(folder / "swap.json"):
            _finish(home, folder, lambda _: None)
            finished.append(folder)
        elif folder.is_dir() and not os.path.lexists(folder / "done.json"):
            _forget(home, folder)
    return finished


def _forget(home: Path, folder: Path) -> None:
    """Remove a preparation; files that were moved out of the home are never removed."""
    parts = [p.name for p in folder.iterdir()]
    if parts in ([], [".new"]):
        paths.delete_tree(folder, within=home)
    elif ".new" in parts:
        raise HomeDamaged(
            f"the note {folder / 'swap.json'} is missing",
            detail=f"parts of the home were being replaced; those from before are in {folder}",
            hint="restore the home from a copy, or a checkpoint into a new home: docs/guide/recovery.md says how",
        )


def sync_tree(root: Path) -> None:
    """Make all files below a directory, and their names, durable."""
    for folder, _, files in os.walk(root):
        for name in files:
            handle = os.open(os.path.join(folder, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        paths.sync_directory(Path(folder))


def _finish(home: Path, folder: Path, fail: Failpoint) -> None:
    """Move what is not moved yet; idempotent."""
    note = _note(folder / "swap.json")
    for path in note["aside"]:
        _keep(home / path, folder / path)
        fail(f"aside {path}")
    for path in note["put"]:
        new = folder / ".new" / path
        if new.exists():
            _keep(home / path, folder / path)
            fail(f"kept {path}")
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            paths.rename(new, home / path)
            paths.sync_directory((home / path).parent)
        fail(f"put {path}")
    paths.delete_tree(folder / ".new", within=home)
    paths.rename(folder / "swap.json", folder / "done.json")
    paths.sync_directory(folder)


def _keep(present: Path, target: Path) -> None:
    if os.path.lexists(present) and not os.path.lexists(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        paths.rename(present, target, link_ok=True)
        paths.sync_directory(target.parent)
        paths.sync_directory(present.parent)


def _note(path: Path) -> dict[str, Any]:
    try:
        note: dict[str, Any] = orjson.loads(path.read_bytes())
        crc = note.pop("crc")
        if crc != zlib.crc32(orjson.dumps(note)):
            raise ValueError(crc)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise HomeDamaged(
            f"the note {path} cannot be read",
            detail=f"parts of the home were being replaced; those from before are in {path.parent}",
            hint="restore the home from a copy, or a checkpoint into a new home: docs/guide/recovery.md says how",
        ) from None
    return note


def _new_folder(parent: Path) -> Path:
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}"
    for number in range(1000):
        folder = parent / f"{stamp}-{number:03d}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise HomeDamaged(f"too many folders in {parent}", hint="remove those that are not needed any more")
