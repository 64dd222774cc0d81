"""Feeds: the changes of a flow's last epochs, for subscribers. Kept in memory, up to a limit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

MOST_BYTES = 64 << 20
MOST_EPOCHS = 10_000


@dataclass(frozen=True)
class Heard:
    """One epoch: its number and what it changed, by view."""

    epoch: int
    changes: Mapping[str, pa.Table]
    bytes: int


class ChangeFeed:
    """The recent changes of a flow."""

    def __init__(self) -> None:
        self._kept: deque[Heard] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self.ended = False
        self.last = 0
        """The newest known epoch."""

    def take(self, epoch: int, changes: Mapping[str, pa.Table]) -> None:
        """Add an epoch."""
        size = sum(t.nbytes for t in changes.values())
        with self._changed:
            self._kept.append(Heard(epoch, changes, size))
            self._bytes += size
            self.last = epoch
            while len(self._kept) > 1 and (self._bytes > MOST_BYTES or len(self._kept) > MOST_EPOCHS):
                self._bytes -= self._kept.popleft().bytes
            self._changed.notify_all()

    def end(self) -> None:
        """End the feed: the flow was dropped or the home is being closed."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def oldest(self) -> int | None:
        """The oldest retained epoch."""
        with self._changed:
            return self._kept[0].epoch if self._kept else None

    def after(self, epoch: int, patience: float) -> Heard | None:
        """The first retained epoch after the specified one; waits for it for a while. A slow subscriber does not
        increase memory use.
        """
        with self._changed:
            if self.last <= epoch and not self.ended:
                self._changed.wait(patience)
            return next((h for h in self._kept if h.epoch > epoch), None)
