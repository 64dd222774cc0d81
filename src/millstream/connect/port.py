"""The contract between the epoch loop and a source.

A source is a set of partitions, each a growing sequence of offsets. The loop asks how far each has come, fixes a slice
(an offset range per partition), writes it down, and only then is anything read; the same slice must always give the
same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

Offsets = Mapping[int, int]
"""For every partition the offset after the last record."""

UNPARSABLE, NO_TIME, MISTYPED, FUTURE, OUT_OF_RANGE, DAMAGED = 1, 2, 3, 4, 5, 6
"""Why a row is an error, as the ``$bad`` column says it; 0 is a good row."""

REASONS = {
    UNPARSABLE: "unparsable",
    NO_TIME: "no event time",
    MISTYPED: "wrong type in a field",
    FUTURE: "event time too far in the future",
    OUT_OF_RANGE: "event time outside of the years 1 to 9999",
    DAMAGED: "the file cannot be read",
}


@dataclass(frozen=True)
class SourceSlice:
    """The offset ranges of one source in one epoch: partition -> (start, end)."""

    ranges: Mapping[int, tuple[int, int]]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""
        return all(start == end for start, end in self.ranges.values())

    @property
    def end(self) -> dict[int, int]:
        """Where the next slice begins."""
        return {p: end for p, (_, end) in self.ranges.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain data for the epoch record."""
        return {str(p): [start, end] for p, (start, end) in sorted(self.ranges.items())}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SourceSlice:
        """Read what `to_json` wrote."""
        return cls({int(p): (r[0], r[1]) for p, r in data.items()})


class SourcePort(Protocol):
    """A source as the loop sees it. Called by the flow's own thread only."""

    def head(self, now: int) -> Offsets:
        """How far every partition has come. Called once before an epoch; what it promises must be readable from then
        on, also after a crash, so anything the answer rests on is durable when this returns.
        """
        ...

    def admit(self, start: Offsets, head: Offsets, limit: int | None) -> SourceSlice:
        """The next slice: from `start` to at most `head`, about `limit` rows where the source can tell, else all it
        thinks wise.
        """
        ...

    def rows(self, part: SourceSlice) -> int:
        """About how many rows a slice has; decides the placement only."""
        ...

    def finished(self, start: Offsets) -> bool:
        """Whether a bounded source has been read to its end."""
        ...


class TablePort(SourcePort, Protocol):
    """A source whose slices are made in the driver as Arrow tables (memory), with the system columns of a reader."""

    def table(self, part: SourceSlice) -> pa.Table:
        """The rows of a slice with ``$part``, ``$pos`` and ``$bad``."""
        ...
