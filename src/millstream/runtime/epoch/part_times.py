"""Where the time of an epoch goes: seconds by part, in the order of the path of a record.

``slice`` fixes the slices and the clock, ``open`` writes the epoch record, ``scan`` reads rows, ``operators`` runs the
kernels and writes their state (on the executors, both are ``scan``), ``stage`` writes changes for sinks, ``commit`` is
the transaction of the store, ``deliver`` writes to sinks, ``tidy`` closes the record and removes old files.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping


class PartTimes:
    """A stopwatch for the parts of one epoch, which follow one another."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = self._last = time.perf_counter()

    def end(self, part: str) -> None:
        """The part that began where the one before it ended is over."""
        now = time.perf_counter()
        self.seconds[part] = now - self._last
        self._last = now

    def end_all(self, parts: Mapping[str, float]) -> None:
        """Several parts are over, which measured themselves. The last of them gets the time that none of them has."""
        now = time.perf_counter()
        self.seconds.update(parts)
        last = next(reversed([*parts]), "operators")
        self.seconds[last] = max(0.0, self.seconds.get(last, 0.0) + now - self._last - sum(parts.values()))
        self._last = now

    @property
    def total(self) -> float:
        """The seconds since the first part began."""
        return time.perf_counter() - self._started


def mean_parts(epochs: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean seconds of each part over some epochs."""
    found = list(epochs)
    sums: dict[str, float] = {}
    for parts in found:
        for part, seconds in parts.items():
            sums[part] = sums.get(part, 0.0) + seconds
    return {part: seconds / len(found) for part, seconds in sums.items()}
