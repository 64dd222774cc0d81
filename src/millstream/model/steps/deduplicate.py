"""Deduplication: one row of each key, the first or the last, permanently or within a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from millstream.errors import DefinitionError, Unsupported
from millstream.model.expression import col
from millstream.model.origin import here
from millstream.model.python.process import Process, is_attribute
from millstream.model.steps.event_times import nearest
from millstream.model.types.duration import Duration

if TYPE_CHECKING:
    from millstream.model.streams.stream import Stream


@dataclass
class _Kept:
    """When the last kept row of a key was."""

    at: datetime | None = None


class _First(Process):
    """Keeps a row unless a row of its key was kept within a time before it. Rows arrive in event-time order."""

    state = _Kept

    def __init__(self, time: str, micros: int) -> None:
        self.time, self.micros = time, micros

    def on_row(self, row: Any, state: _Kept, ctx: Any) -> Iterator[tuple[Any, ...]]:
        """Emit the row, or nothing."""
        at = getattr(row, self.time)
        if state.at is None or (at - state.at).total_seconds() * 1_000_000 >= self.micros:
            state.at = at
            yield tuple(row)


class _FirstByPlace(_First):
    """The same, for a time column whose name cannot be an attribute of a row."""

    def __init__(self, time: str, micros: int, place: int) -> None:
        super().__init__(time, micros)
        self.place = place

    def on_row(self, row: Any, state: _Kept, ctx: Any) -> Iterator[tuple[Any, ...]]:
        """Emit the row, or nothing."""
        at = row[self.place]
        if state.at is None or (at - state.at).total_seconds() * 1_000_000 >= self.micros:
            state.at = at
            yield tuple(row)


def deduplicated(stream: Stream, columns: tuple[str, ...], keep: str, within: Duration | None) -> Stream:
    """One row of each key; see `Stream.deduplicate`."""
    if keep not in ("first", "last"):
        raise DefinitionError(f"keep={keep!r}", hint='"first" or "last"', origin=here())
    time = nearest(stream.step, certain=False)
    if time is None:
        raise Unsupported(
            "deduplicate needs an event time to determine which row is first",
            hint="declare it: flow.source(..., event_time='ts'); or use .distinct() or .top(1, ...)",
            origin=here(),
        )
    keyed = stream.key_by(*(col(c) for c in columns or stream.schema.names))
    if within is None:
        return keyed.top(1, f"`{time}`" if keep == "first" else f"`{time}` DESC")
    if keep == "last":
        raise Unsupported(
            'keep="last" together with `within` is not supported',
            detail="whether a row is the last is known only after that time",
            hint="use a session window with ms.last(...)",
            origin=here(),
        )
    first = _First(time, within.micros)
    if not is_attribute(time):
        first = _FirstByPlace(time, within.micros, stream.schema.names.index(time))
    return keyed.process(first, schema=stream.schema, ordered=True, ttl=within)
