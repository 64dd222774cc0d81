"""Generated records: offset n is record number n, paced by the clock or as fast as possible."""

from __future__ import annotations

from millstream.connect.port import Offsets, SourceSlice
from millstream.model.connectors import Generator

ROWS_PER_EPOCH = 1_000_000


class GeneratorSource:
    """A sequence of records that can be made again at any time from their numbers.

    A paced generator begins its schedule when it is first asked, at the number it has come to; record n of the
    schedule is due n / rate seconds later. It never skips a number, however late the reader is.
    """

    def __init__(self, generator: Generator, start: int) -> None:
        self.generator = generator
        self._first = start
        self._since: int | None = None

    def head(self, now: int) -> Offsets:
        """The number of records that are due."""
        end = self.generator.events
        if self.generator.rate is None:
            return {0: end if end is not None else 2**62}
        if self._since is None:
            self._since = now
        due = self._first + int((now - self._since) * self.generator.rate / 1_000_000)
        return {0: due if end is None else min(due, end)}

    def admit(self, start: Offsets, head: Offsets, limit: int | None) -> SourceSlice:
        """The next records that are due."""
        first = start.get(0, 0)
        return SourceSlice({0: (first, max(first, min(head[0], first + (limit or ROWS_PER_EPOCH))))})

    def rows(self, part: SourceSlice) -> int:
        """One per number, at the most."""
        start, end = part.ranges.get(0, (0, 0))
        return end - start

    def finished(self, start: Offsets) -> bool:
        """Whether the last number has been read."""
        return self.generator.events is not None and start.get(0, 0) >= self.generator.events
