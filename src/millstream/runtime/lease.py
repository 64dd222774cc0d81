"""Who owns a home: one process at a time, by a lock that the system lets go when the process dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from millstream.errors import HomeInUse


class HomeLock:
    """The lock of a home, held from the moment it is made until `release`. Refuses (HomeInUse) a second owner."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            owner = self._file.read().strip() or "unknown"
            self._file.close()
            raise HomeInUse(
                f"the home {path.parent} is in use by process {owner}",
                hint="read it with `millstream query` or ms.connect(...), which go through that process; "
                "or stop it first",
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Let go of the home."""
        self._file.close()
