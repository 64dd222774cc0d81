"""Generated records: offset n is record number n, paced by the clock or as fast as possible."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millstream.clock import Micros
from millstream.connect.forms import Form, PythonRanges
from millstream.connect.port import Offsets, SourceBase, SourceFacts, SourceSlice
from millstream.connect.registry import SourceContext
from millstream.model.connectors import Generator

ROWS_PER_EPOCH = 1_000_000
CHUNK = 50_000
"""The most numbers per call of a generator on the executors."""
ENDLESS = 2**62


@dataclass(frozen=True)
class MakesNumbers:
    """The function of a generator as a reader of ranges; it has one partition."""

    make: Callable[[int, int], pa.Table]

    def __call__(self, partition: int, start: int, end: int) -> pa.Table:
        """The records of these numbers."""
        del partition
        return self.make(start, end)


class GeneratorSource(SourceBase):
    """A sequence of records that can be regenerated at any time from their numbers.

    A paced generator begins its schedule at the first call of `head`, at the current number; record n of the schedule
    is due n / rate seconds later. It never skips a number, however late the reader is.
    """

    def __init__(self, generator: Generator, start: int) -> None:
        self.generator = generator
        self._first = start
        self._since: int | None = None
        self._starting = threading.Lock()

    def head(self, now: Micros) -> Offsets:
        """The number of records that are due."""
        with self._starting:
            if self._since is None:
                self._since = now
            return {0: self._due(now, self._since)}

    def _due(self, now: Micros, since: int) -> int:
        end = ENDLESS if self.generator.events is None else self.generator.events
        if self.generator.rate is None:
            return end
        return min(end, self._first + int((now - since) * self.generator.rate / 1_000_000))

    def admit(self, start: Offsets, head: Offsets, limit: int | None) -> SourceSlice:
        """The next due records."""
        first = start.get(0, 0)
        return SourceSlice({0: (first, max(first, min(head[0], first + (limit or ROWS_PER_EPOCH))))})

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        """The numbers, to be generated anywhere."""
        start, end = part.ranges.get(0, (0, 0))
        return [PythonRanges(MakesNumbers(self.generator.make), ((0, start, end),), CHUNK)] if end > start else []

    def pending(self, at: Offsets, now: Micros) -> int | None:
        """The due records; none for an unbounded generator that is not paced."""
        due = self._due(now, now if self._since is None else self._since)
        return 0 if due >= ENDLESS else max(0, due - at.get(0, 0))

    def describe(self) -> SourceFacts:
        """It generates nothing while no flow reads it."""
        return SourceFacts("generator", rests=True)

    def finished(self, start: Offsets) -> bool:
        """Whether the last number has been read."""
        return self.generator.events is not None and start.get(0, 0) >= self.generator.events


def open_generator(context: SourceContext) -> GeneratorSource:
    """Open a generator as a source."""
    assert isinstance(context.connector, Generator)
    return GeneratorSource(context.connector, context.at.get(0, 0))
