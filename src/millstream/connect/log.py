"""A topic of the log as a source: slices are offset ranges, exact, parallel, and the same for ever."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa

from millstream.connect.port import Offsets, SourceSlice
from millstream.errors import SourceUnreadable
from millstream.log.reader import Part
from millstream.log.topic import Topic
from millstream.model.connectors import LogTopic
from millstream.model.types.schema import Schema

BOUND = 8_000_000
"""Rows that one epoch takes at most of a topic when nobody said how many."""


class LogSource:
    """A topic as a source of one flow."""

    def __init__(
        self, topic: Topic, how: LogTopic, schema: Schema, reader: str, at: Offsets, *, holds: bool = True
    ) -> None:
        self.topic, self._schema, self._reader = topic, schema, reader
        _check(topic, schema)
        self._first = _first(topic, how.start)
        self._until = topic.end() if how.bounded else None
        if holds and reader not in topic.holds():
            topic.hold(reader, {**self._first, **at})

    def head(self, now: int) -> Offsets:
        """What is durable by now."""
        del now
        return self.topic.end() if self._until is None else self._until

    def start(self) -> Offsets:
        """The oldest offsets that can still be read."""
        return self.topic.start()

    def admit(self, start: Offsets, head: Offsets, limit: int | None) -> SourceSlice:
        """From where the flow is, at most `limit` rows, shared fairly by the partitions."""
        most = BOUND if limit is None else limit
        firsts = {p: start.get(p, self._first.get(p, 0)) for p in head}
        waiting = {p: max(0, end - firsts[p]) for p, end in head.items()}
        share = _shares(waiting, most)
        return SourceSlice({p: (firsts[p], firsts[p] + share[p]) for p in sorted(head)})

    def rows(self, part: SourceSlice) -> int:
        """Exactly."""
        return sum(end - start for start, end in part.ranges.values())

    def finished(self, start: Offsets) -> bool:
        """Whether all that there was at the start has been read, if no more was asked for."""
        return self._until is not None and all(
            start.get(p, self._first.get(p, 0)) >= end for p, end in self._until.items()
        )

    def parts(self, part: SourceSlice) -> list[Part]:
        """The segments and the stretches of the tail that hold a slice."""
        return [
            piece
            for partition, (start, end) in sorted(part.ranges.items())
            if end > start
            for piece in self.topic.parts(partition, start, end)
        ]

    def table(self, part: SourceSlice) -> pa.Table:
        """The rows of a slice with ``$part``, ``$pos`` and ``$bad``, read in this process."""
        return self.rows_of([Part(p, start, end, None, False, start) for p, (start, end) in part.ranges.items()])

    def rows_of(self, parts: list[Part]) -> pa.Table:
        """Some stretches of the topic, read in this process."""
        wanted = pa.schema([*self._schema.to_arrow(), pa.field("$part", pa.int32()), pa.field("$pos", pa.int64())])
        pieces = []
        for piece in parts:
            rows = self.topic.read(piece.partition, piece.start, piece.end, columns=list(self._schema.names))
            columns = [rows["$offset" if n == "$pos" else n].cast(wanted.field(n).type) for n in wanted.names]
            pieces.append(pa.table(columns, schema=wanted))
        found = pa.concat_tables(pieces) if pieces else wanted.empty_table()
        return found.append_column("$bad", pa.repeat(pa.scalar(0, pa.int32()), found.num_rows))

    def hold(self, offsets: Offsets) -> None:
        """Tell the topic from where on this flow may still need its records."""
        self.topic.hold(self._reader, dict(offsets))


def _check(topic: Topic, schema: Schema) -> None:
    """The columns that a source declares must be there, with types that fit."""
    for field in schema:
        index = topic.schema.get_field_index(field.name)
        if index < 0:
            raise SourceUnreadable(
                f"the topic `{topic.name}` has no column `{field.name}`",
                detail="it has: " + ", ".join(topic.schema.names),
                hint="correct the schema of the source",
            )
        found = topic.schema.field(index).type
        if field.type is not None and found != field.type:
            raise SourceUnreadable(
                f"the column `{field.name}` of the topic `{topic.name}` is {found}, but the source says {field.type}",
                hint="correct the schema of the source",
            )


def _first(topic: Topic, start: str | Mapping[int, int]) -> Offsets:
    """Where a flow begins that has not read the topic yet."""
    starts = topic.start()
    if isinstance(start, Mapping):
        return {p: max(starts[p], start.get(p, starts[p])) for p in starts}
    if start == "beginning":
        return starts
    if start == "end":
        return topic.end()
    instant = datetime.fromisoformat(start)
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return topic.at(round(instant.timestamp() * 1_000_000))


def _shares(waiting: Mapping[int, int], most: int) -> dict[int, int]:
    """How much each partition gives when `most` is to be taken in all: small ones all they have, the others alike."""
    share: dict[int, int] = {}
    for left, partition in zip(range(len(waiting), 0, -1), sorted(waiting, key=lambda p: (waiting[p], p)), strict=True):
        share[partition] = min(waiting[partition], -(-most // left))
        most = max(0, most - share[partition])
    return share
