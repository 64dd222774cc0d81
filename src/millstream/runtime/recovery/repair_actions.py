"""The findings of a repair, and the actions that it consists of."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.connect.port import SourceSlice
from millstream.errors import MillstreamError
from millstream.runtime.epoch.records import EpochRecord, RecordBook, written
from millstream.runtime.recovery.swap import Swap
from millstream.state.storage import Storage
from millstream.store.files import STORE_FILE, STORE_FILES, WAL_FILE
from millstream.store.port import EpochRow

NOTHING = "nothing is lost"


@dataclass(frozen=True)
class Finding:
    """One finding, in sentences; `do` is None when it cannot be repaired."""

    flow: str
    problem: str
    would: str
    lost: str = NOTHING
    do: Callable[[RepairContext], None] | None = None
    back: bool = False
    """Whether it needs an earlier state of the flow: a checkpoint, or all its records again."""
    harmless: bool = False
    """Whether a start repairs it automatically."""


class RepairContext:
    """A repair in preparation."""

    def __init__(self, home: Path, swap: Swap) -> None:
        self.home, self.swap = home, swap
        self._store: Path | None = None
        self._moved: set[str] = set()

    @property
    def store(self) -> Path:
        """A copy of the store that may be changed."""
        if self._store is None:
            self._store = self.swap.put(STORE_FILE)
            for name in STORE_FILES:
                part = self.home / name
                if part.exists():
                    shutil.copyfile(part, self._store.with_name(name))
            self.swap.aside(WAL_FILE)
        return self._store

    def new_store(self) -> None:
        """Start with an empty store instead."""
        if self._store is None:
            from millstream.store.repair import folded, following, set_generations

            self._store = self.swap.put(STORE_FILE)
            self.swap.aside(WAL_FILE)
            folded(self._store)
            set_generations(self._store, following(None, {"": 0}))  # also for flows that are no longer known

    def aside(self, path: Path) -> None:
        """Remove a file or directory."""
        self.swap.aside(str(path.relative_to(self.home)))

    def new_generation(self, flow: str) -> None:
        """Start a new generation of a flow: its epochs may have different content from now on."""
        self._moved.add(flow)

    def finish(self) -> None:
        """Write the generations. The store may be lost, or a copy from before other repairs, so it may not know which
        were used.
        """
        if self._moved:
            from millstream.store.repair import folded, following, generations, set_generations

            folded(self.store)
            new = following(None, dict.fromkeys(self._moved, 0), generations(self.store) or {})
            set_generations(self.store, {f: new[f] for f in self._moved})


@dataclass(frozen=True)
class Restore:
    """Restore the whole home to a checkpoint."""

    name: str

    def __call__(self, work: RepairContext) -> None:
        """Never called: a restore is a separate swap."""
        raise AssertionError(self.name)


def asides(flow: str | None, paths: Sequence[Path]) -> Callable[[RepairContext], None]:
    """Remove files. If `flow` is set, its epochs may have different content from now on."""

    def do(work: RepairContext) -> None:
        for path in paths:
            work.aside(path)
        if flow is not None:
            work.new_generation(flow)

    return do


def copied(donor: Path, to: str) -> Callable[[RepairContext], None]:
    """Put a copy of a file in place."""

    def do(work: RepairContext) -> None:
        shutil.copyfile(donor, work.swap.put(to))

    return do


def stored(donor: Path, state: Storage, file: str) -> Callable[[RepairContext], None]:
    """Put a copy of a state file in place, outside the home. It has the content that its name had before, so this needs
    no undoing.
    """

    def do(_work: RepairContext) -> None:
        state.put(file, donor.read_bytes())

    return do


def deleted(state: Storage, files: Sequence[str]) -> Callable[[RepairContext], None]:
    """Delete state files outside the home that no version names."""

    def do(_work: RepairContext) -> None:
        state.delete(files)

    return do


def rewritten(home: Path, last: EpochRow, book: RecordBook) -> Callable[[RepairContext], None]:
    """Rewrite the record of the last epoch from the store."""
    clock: Mapping[str, Any] = last.clock
    record = EpochRecord(
        last.number,
        last.plan,
        0,
        {n: SourceSlice.from_json(s) for n, s in last.slices.items()},
        clock["now"],
        clock["watermarks"],
        clock["before"],
        {},
        "closed",
        since=clock["since"],
        fractions=clock.get("fractions", {}),
    )

    def do(work: RepairContext) -> None:
        work.swap.put(str(book.path(last.number).relative_to(home))).write_bytes(written(record))

    return do


def message_of(error: MillstreamError) -> str:
    """Format an error as one sentence."""
    return f"{error.message} ({error.detail})" if error.detail else error.message
