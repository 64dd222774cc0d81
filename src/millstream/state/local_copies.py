"""The bound on local copies of remote files in this process: the least recently used copy is dropped first.

Files are immutable, so a copy is never stale. Dropping one only means that it is fetched again when it is needed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable


class LocalCopies:
    """What this process has copied, by key, with how to drop it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, tuple[int, Callable[[], None]]] = OrderedDict()
        self.bytes = 0
        """The size of all copies."""

    def add(self, key: Hashable, size: int, drop: Callable[[], None], limit: int) -> None:
        """Count a new copy, and drop others until the limit holds. The new one stays, even if it is larger alone."""
        self.release(key)
        dropped = []
        with self._lock:
            self._held[key] = (size, drop)
            self.bytes += size
            while self.bytes > limit and len(self._held) > 1:
                _, (freed, dropping) = self._held.popitem(last=False)
                self.bytes -= freed
                dropped.append(dropping)
        for dropping in dropped:
            dropping()

    def use(self, key: Hashable) -> None:
        """Note that a copy is in use."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)

    def release(self, key: Hashable) -> None:
        """Forget a copy that was dropped."""
        with self._lock:
            size, _ = self._held.pop(key, (0, None))
            self.bytes -= size


COPIES = LocalCopies()
"""The copies of this process."""
