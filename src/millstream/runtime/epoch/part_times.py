"""Where the time of an epoch goes: seconds by part, in the order of the path of a record.

``slice`` fixes the slices and the clock, ``open`` writes the epoch record, ``scan`` reads rows, ``operators`` runs the
kernels and writes their state (on the executors, both are ``scan``), ``engine`` is what the engine does besides,
``stage`` writes changes for sinks, ``commit`` is the transaction of the store, ``deliver`` writes to sinks, ``tidy``
closes the record and removes old files. An epoch that is resumed has no ``slice`` and no ``open``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

PARTS = ("slice", "open", "scan", "operators", "engine", "stage", "commit", "deliver", "tidy")


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

    def end_engine(self, parts: Mapping[str, float]) -> None:
        """The engine is done, and has measured some parts of its work. The rest of its time is ``engine``."""
        now = time.perf_counter()
        self.seconds |= {**parts, "engine": max(0.0, now - self._last - sum(parts.values()))}
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
    return {part: sums[part] / len(found) for part in PARTS if part in sums}
