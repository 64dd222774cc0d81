"""Which state files may be removed: those that no kept version names.

The versions of the last epochs are kept, so that the state for a slightly older store still exists, and so that a
version can be copied while the flow runs. A process that has mapped a file can still read it after it is removed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from millstream.errors import MillstreamError
from millstream.state.storage import Storage
from millstream.state.version import Version

KEPT_VERSIONS = 5
"""How many versions before the present one stay."""


SWEEP_EVERY = 20
"""The number of epochs between two searches for files of tasks that no version names."""

AT_ONCE_FILES = 1_000
"""More files than this are removed in a thread, so that the next epoch does not wait."""

_OF_A_TASK = re.compile(r"\.?(\d{12})-\d+-\d+-\d+\.arrow(\.tmp)?")


class Upkeep:
    """Removes the state files of one flow once nobody can need them."""

    def __init__(
        self, state: Storage, *, keep: int = KEPT_VERSIONS, is_pinned: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._state, self._keep, self._is_pinned = state, keep, is_pinned
        self._last: dict[str, int] = {}
        """file -> the last epoch whose version may name it."""
        self._leftovers: set[str] = set()
        """Files of older versions that were there at the start."""

    def after(self, epoch: int, former: Iterable[Version], version: Version) -> list[str]:
        """Called when an epoch is the present: of the files of `former` versions, remove those that no kept version
        needs. Returns the removed.
        """
        left = [v.files - version.files for v in former if v is not version]
        for file in self._leftovers.difference(version.files).union(*left):
            self._last.setdefault(file, epoch)
        self._leftovers = set()
        if epoch % SWEEP_EVERY == 0:
            self._sweep(epoch, version)
        gone = [f for f, last in self._last.items() if last + self._keep < epoch and not self._is_pinned(f)]
        if len(gone) <= AT_ONCE_FILES:
            self._state.delete(gone)
        else:
            threading.Thread(target=self._delete_quietly, args=[gone], name="millstream-removal", daemon=True).start()
        for file in gone:
            del self._last[file]
        return gone

    def _delete_quietly(self, files: Iterable[str]) -> None:
        """Delete files in a thread. What a failure, or the end of the process, leaves there goes at the next start."""
        with suppress(OSError, MillstreamError):
            self._state.delete(files)

    def _sweep(self, epoch: int, version: Version) -> None:
        """Find the files that tasks wrote and the driver never learned of: a lost or repeated attempt left them."""
        for file in self._state.names().difference(version.files, self._last):
            name = _OF_A_TASK.fullmatch(file.rpartition("/")[2])
            if name is not None and int(name[1]) < epoch:
                self._last.setdefault(file, int(name[1]))

    def tidy(self, version: Version) -> None:
        """Called at the start: what is there and not named by this version goes as soon as it is old enough. (What no
        version names was removed before, by `recovery.reconcile`.)
        """
        self._leftovers = self._state.names() - version.files


def remove_left_overs(state: Storage, versions: Iterable[Version]) -> None:
    """Remove what no committed version names: it was left by an epoch that died."""
    named = frozenset().union(*(v.files for v in versions))
    state.delete(state.names() - named)
