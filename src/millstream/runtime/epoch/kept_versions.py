"""Which state files may be removed: those that no kept version names.

The versions of the last epochs are kept, so that the state for a slightly older store still exists, and so that a
version can be copied while the flow runs. A process that has mapped a file can still read it after it is removed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from millstream.errors import MillstreamError
from millstream.state.storage import Storage
from millstream.state.version import Version

KEPT_VERSIONS = 5
"""How many versions before the present one stay."""


SWEEP_EVERY = 20
"""The number of epochs between two searches for files of tasks that no version names. Each step has its turn."""

AT_ONCE_FILES = 1_000
"""More files than this are removed in a thread, so that the next epoch does not wait."""

_OF_A_TASK = re.compile(r"\.?((\d{12})-\d+)-\d+-\d+(-c)?\.arrow(\.tmp)?")
"""A run that a task wrote; with -c, a merge of runs."""


class Upkeep:
    """Removes the state files of one flow once nobody can need them."""

    def __init__(
        self, state: Storage, *, keep: int = KEPT_VERSIONS, pinned: Callable[[], Collection[str]] = frozenset
    ) -> None:
        self._state, self._keep, self._pinned = state, keep, pinned
        self._waiting: dict[int, set[str]] = {}
        """By epoch: the files that its version and later ones do not name."""
        self._leftovers: set[str] = set()
        """Files of older versions that were there at the start."""

    def after(
        self,
        epoch: int,
        former: Iterable[Version],
        version: Version,
        *,
        committed: Version | None = None,
        merging: Collection[str] = (),
    ) -> list[str]:
        """Called when an epoch is the present: of the files of `former` versions, remove those that no kept version
        needs. `committed` is the version that the row of the epoch names, if merges have changed it since. `merging`
        are the beginnings of the names of merges that tasks are writing. Returns the removed.
        """
        rewritten: set[str] = set()
        left = set[str]().union(*(v.dropped_in(version) for v in former if v is not version))
        if committed is not None:
            rewritten = {m.file for m in committed.manifests}.difference(m.file for m in version.manifests)
            left |= committed.dropped_in(version)
        if self._leftovers:
            left |= self._leftovers.difference(version.files)
        self._waiting.setdefault(epoch, set()).update(left - rewritten)
        self._waiting.setdefault(epoch + 1, set()).update(rewritten)  # a start reads all manifests of kept epochs
        self._leftovers = set()
        for number, step in enumerate(sorted(version.runs)):
            if (epoch + number) % SWEEP_EVERY == 0:
                self._sweep(step, epoch, version, merging)
        gone = self._removable(epoch)
        if len(gone) <= AT_ONCE_FILES:
            self._state.delete(gone)
        else:
            threading.Thread(target=self._delete_quietly, args=[gone], name="millstream-removal", daemon=True).start()
        return gone

    def _removable(self, epoch: int) -> list[str]:
        """The files that may go now. Those that are pinned wait longer."""
        gone: list[str] = []
        pinned = self._pinned()
        for last in [e for e in self._waiting if e + self._keep < epoch]:
            files = self._waiting.pop(last)
            kept = files.intersection(pinned)
            if kept:
                self._waiting[last] = kept
            gone += files - kept
        return gone

    def _delete_quietly(self, files: Iterable[str]) -> None:
        """Delete files in a thread. What a failure, or the end of the process, leaves there goes at the next start."""
        with suppress(OSError, MillstreamError):
            self._state.delete(files)

    def _sweep(self, step: str, epoch: int, version: Version, merging: Collection[str]) -> None:
        """Find the files that tasks wrote and the driver never learned of: a lost or repeated attempt left them."""
        found = {f"{step}/{name}" for name in self._state.within(step).names()}
        for file in found.difference(version.list_of(step).files, *self._waiting.values()):
            name = _OF_A_TASK.fullmatch(file.rpartition("/")[2])
            if name is not None and int(name[2]) < epoch and f"{step}/{name[1]}" not in merging:
                self._waiting.setdefault(int(name[2]), set()).add(file)

    def tidy(self, version: Version) -> None:
        """Called at the start: what is there and not named by this version goes as soon as it is old enough. (What no
        version names was removed before, by `recovery.reconcile`.)
        """
        self._leftovers = self._state.names() - version.files


def remove_left_overs(state: Storage, versions: Iterable[Version]) -> None:
    """Remove what no committed version names: it was left by an epoch that died."""
    named = frozenset().union(*(v.files for v in versions))
    state.delete(state.names() - named)
