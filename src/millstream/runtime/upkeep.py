"""Which state files may go: those that no kept version names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from millstream.state.version import Version


class Upkeep:
    """Removes the state files of one flow once nobody can need them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._obsolete: dict[str, int] = {}

    def after(self, epoch: int, named: Iterable[str], version: Version) -> list[str]:
        """Called when an epoch is the present: of the files `named` before, remove those that are not needed any more,
        one epoch later than they could be. Returns the removed.
        """
        for file in set(named) - version.files:
            self._obsolete.setdefault(file, epoch + 1)
        gone = [f for f, since in self._obsolete.items() if since < epoch]
        for file in gone:
            (self._root / file).unlink(missing_ok=True)
            del self._obsolete[file]
        return gone

    def tidy(self, version: Version) -> None:
        """Remove runs that no committed version names: left by an epoch that died."""
        for path in self._root.glob("*/*"):
            if str(path.relative_to(self._root)) not in version.files:
                path.unlink(missing_ok=True)
