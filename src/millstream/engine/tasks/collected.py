"""Rows that a task collects before it sends them: many small batches become few parcels and few files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

SEND_BYTES = 32 << 20
"""Rows are sent once they have this many bytes."""


class Collected:
    """Frames by the number of their receiver, in the order in which they came."""

    def __init__(self) -> None:
        self._frames: dict[int, list[pl.DataFrame]] = {}
        self._bytes: dict[int, int] = {}

    def add(self, receiver: int, frames: Iterable[pl.DataFrame]) -> None:
        """Add frames of a receiver."""
        for frame in frames:
            self._frames.setdefault(receiver, []).append(frame)
            self._bytes[receiver] = self._bytes.get(receiver, 0) + int(frame.estimated_size())

    def full(self, receiver: int) -> list[pl.DataFrame] | None:
        """The frames of a receiver if they are to be sent now. They are no longer held then."""
        if self._bytes.get(receiver, 0) <= SEND_BYTES:
            return None
        del self._bytes[receiver]
        return self._frames.pop(receiver)

    def rest(self) -> Iterator[tuple[int, list[pl.DataFrame]]]:
        """All frames that are held, by receiver."""
        yield from self._frames.items()
