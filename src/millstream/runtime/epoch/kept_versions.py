"""Removal of state files that no retained version references.

The versions of the last epochs are retained, so that a flow whose store is restored to a slightly earlier epoch finds
its state, and so that a version can be copied while the flow runs. A process that has a file mapped keeps its contents
when it is removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from millstream import paths
from millstream.state.version import Version

KEEP = 5
"""The number of versions before the current one that are retained."""


class Upkeep:
    """Removes the state files of one flow once they are no longer needed."""

    def __init__(self, root: Path, *, keep: int = KEEP) -> None:
        self._root, self._keep = root, keep
        self._last: dict[str, int] = {}
        """file -> the last epoch whose version may reference it."""
        self._found: set[str] = set()
        """Files of older versions that existed at the start."""

    def after(self, epoch: int, named: Iterable[str], version: Version) -> list[str]:
        """Called when an epoch becomes the current one: of the files `named` before, remove those that no retained
        version needs. Returns the removed files.
        """
        for file in (set(named) | self._found) - version.files:
            self._last.setdefault(file, epoch)
        self._found = set()
        gone = [f for f, last in self._last.items() if last + self._keep < epoch]
        for file in gone:
            paths.delete_file(self._root / file, missing_ok=True)
            del self._last[file]
        return gone

    def tidy(self, version: Version) -> None:
        """Called at the start: existing files that this version does not reference are removed once they are old
        enough. (Files that no version references were removed before, by `recovery.reconcile`.)
        """
        self._found = files_in(self._root) - version.files


def files_in(root: Path) -> set[str]:
    """List the state files of a flow, by the names that versions use."""
    return {str(path.relative_to(root)) for path in root.glob("*/*")}


def remove_left_overs(root: Path, versions: Iterable[Version]) -> None:
    """Remove files that no committed version references: an epoch that died left them."""
    named = frozenset().union(*(v.files for v in versions))
    for file in files_in(root) - named:
        paths.delete_file(root / file, missing_ok=True)
