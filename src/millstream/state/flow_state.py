"""The places of one flow's state: its runs and the files of changes on a storage, and the notes of the driver."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millstream.state.local_storage import LocalStorage
from millstream.state.storage import Storage


@dataclass(frozen=True)
class FlowState:
    """Where the state of a flow is. Tasks read and write the storages; the folder is the driver's alone."""

    runs: Storage
    changes: Storage
    """For changes that tasks write and the driver takes."""
    answers: Storage
    """For the results of lookups."""
    folder: Path
    private: Path | None = None
    """A folder that tasks on other machines cannot read: the home, if state is outside it."""

    @classmethod
    def in_folder(cls, folder: Path) -> FlowState:
        """All of it below one folder."""
        state, changes, answers = (LocalStorage(folder / name) for name in ("state", "changes", "answers"))
        return cls(state, changes, answers, folder)
