"""A topic of the log as a source: slices are offset ranges, exact, parallel and immutable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from millstream.clock import Micros, SystemClock
from millstream.connect.forms import ArrowRows, Form, SparkFormat
from millstream.connect.port import Offsets, SourceBase, SourceFacts, SourceSlice, SparkTap
from millstream.connect.registry import Offline, SourceContext
from millstream.errors import DefinitionError, MillstreamError, SourceUnreadable
from millstream.log.log import Log
from millstream.log.reader import Part
from millstream.log.topic import Topic
from millstream.model.connector import Connector
from millstream.model.connectors import LogTopic, SparkStream
from millstream.model.types.schema import Schema
from millstream.model.types.unknown_column import missing_column


class LogSource(SourceBase):
    """A topic as a source of one flow."""

    rows_per_epoch = 8_000_000

    def __init__(
        self,
        topic: Topic,
        how: LogTopic,
        schema: Schema,
        reader: str,
        at: Offsets,
        *,
        holds: bool = True,
        tap: SparkTap | None = None,
    ) -> None:
        self.topic, self._schema, self._reader, self._tap = topic, schema, reader, tap
        _check(topic, schema)
        self._first = _first(topic, how.start)
        self._until = topic.end() if how.bounded else None
        if holds and reader not in topic.holds():
            topic.hold(reader, {**self._first, **at})

    def head(self, now: Micros) -> Offsets:
        """The durable end."""
        del now
        return self.topic.end() if self._until is None else self._until

    def start(self) -> Offsets:
        """The oldest offsets that can still be read."""
        return self.topic.start()

    def end(self) -> Offsets | None:
        """The durable end."""
        return self.head(0)

    def first(self) -> Offsets:
        """Where a new flow begins, as declared."""
        return self._first

    def finished(self, start: Offsets) -> bool:
        """Whether a bounded reader has read everything that existed at the start."""
        return self._until is not None and all(
            start.get(p, self._first.get(p, 0)) >= end for p, end in self._until.items()
        )

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        """Spark reads sealed segments itself; the tail comes from this process."""
        parts = [
            piece
            for partition, (start, end) in sorted(part.ranges.items())
            if end > start
            for piece in self.topic.parts(partition, start, end)
        ]
        tail = [p for p in parts if p.path is None]
        sealed = [p for p in parts if p.path is not None]
        forms: list[Form] = []
        if sealed:
            for piece in sealed:
                assert piece.path is not None
                self.topic.verify_segment(piece.path)
            whole = all(p.whole for p in sealed)
            ranges = None if whole else {p: part.ranges[p] for p in sorted({s.partition for s in sealed})}
            forms.append(SparkFormat("parquet", paths=tuple(str(p.path) for p in sealed), ranges=ranges))
        return [*forms, ArrowRows(self._rows_of(tail))] if tail or not sealed else forms

    def _rows_of(self, parts: list[Part]) -> pa.Table:
        """Read some ranges of the topic in this process."""
        target = pa.schema([*self._schema.to_arrow(), pa.field("$part", pa.int32()), pa.field("$pos", pa.int64())])
        pieces = []
        for piece in parts:
            rows = self.topic.read(piece.partition, piece.start, piece.end, columns=list(self._schema.names))
            columns = [rows["$offset" if n == "$pos" else n].cast(target.field(n).type) for n in target.names]
            pieces.append(pa.table(columns, schema=target))
        return pa.concat_tables(pieces) if pieces else target.empty_table()

    def hold(self, offsets: Offsets) -> None:
        """Place a hold on the topic: this flow may still need its records from here on."""
        self.topic.hold(self._reader, dict(offsets))

    def pending(self, at: Offsets, now: Micros) -> int | None:
        """The records that were appended and not read."""
        return sum(max(0, end - at.get(p, 0)) for p, end in self.head(now).items())

    def describe(self) -> SourceFacts:
        """The topic. An offset is a record."""
        return SourceFacts(f"log {self.topic.name}", record_per_offset=True)

    def tap(self) -> SparkTap | None:
        """The tap that writes records to the topic, if it has one."""
        return self._tap


def _check(topic: Topic, schema: Schema) -> None:
    """Check that the declared columns exist with matching types."""
    for field in schema:
        index = topic.schema.get_field_index(field.name)
        if index < 0:
            raise missing_column(
                SourceUnreadable,
                f"the topic `{topic.name}`",
                field.name,
                topic.schema.names,
                hint="correct the schema of the source",
            )
        actual = topic.schema.field(index).type
        if field.type is not None and actual != field.type:
            raise SourceUnreadable(
                f"the column `{field.name}` of the topic `{topic.name}` is {actual}, "
                f"but the source declares {field.type}",
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


class LogOffline:
    """What a repair can determine about a topic without the flow: its start and end. The detail is its name."""

    def problems(self, place: Offline, at: Mapping[str, int]) -> Iterator[str]:
        """A topic that cannot be read, or does not hold the offsets at which a flow resumes."""
        starts, ends = _bounds(place)
        for partition, offset in at.items():
            if ends is None or starts is None:
                yield f"the topic `{place.detail}` of `{place.source}` cannot be read"
                break
            end = ends.get(int(partition), 0)
            if offset > end:
                yield f"partition {partition} of `{place.source}` ends at {end}, but it was read up to {offset}"
            elif offset < starts.get(int(partition), 0):
                yield f"partition {partition} of `{place.source}` was trimmed past {offset}, where the flow is"

    def cannot_begin(self, place: Offline) -> str | None:
        """A topic whose oldest records are gone."""
        starts, _ = _bounds(place)
        if starts is None:
            return f"the topic `{place.detail}` cannot be read"
        return f"the beginning of the topic `{place.detail}` was trimmed" if any(starts.values()) else None


def _bounds(place: Offline) -> tuple[dict[int, int] | None, dict[int, int] | None]:
    log = Log(place.home / "log", SystemClock())
    try:
        topic = log.topic(place.detail)
        return topic.start(), topic.end()
    except MillstreamError:
        return None, None
    finally:
        log.close()


def columns_of(connector: Connector, log: Log | None) -> Schema | None:
    """The columns of an existing topic."""
    name = connector.topic_of_its_own
    if name is None or log is None or not log.exists(name):
        return None
    return Schema.from_arrow(log.topic(name).schema, exact=True)


def open_topic(context: SourceContext) -> LogSource:
    """Open a topic as a source."""
    assert isinstance(context.connector, LogTopic)
    topic = context.log.topic(context.connector.topic)
    reader = f"{context.flow}.{context.name}"
    return LogSource(topic, context.connector, context.schema, reader, context.at, holds=context.holds)


def open_tapped(context: SourceContext) -> LogSource:
    """Open the topic to which a tap writes the records of a Spark stream, creating it if it does not exist."""
    stream = context.connector
    assert isinstance(stream, SparkStream)
    name = stream.topic or _landing(context.flow, context.name)
    if not context.log.exists(name):
        context.log.create(name, context.schema.to_arrow())
    topic = context.log.topic(name)
    tap = SparkTap(stream.format, stream.options, topic)
    reader = f"{context.flow}.{context.name}"
    return LogSource(topic, LogTopic(name), context.schema, reader, context.at, holds=context.holds, tap=tap)


def follow_topic(context: SourceContext) -> LogSource | None:
    """Open a topic next to the process that owns it; None when it does not exist yet."""
    assert isinstance(context.connector, LogTopic)
    return _followed(context, context.connector.topic)


def follow_tapped(context: SourceContext) -> LogSource | None:
    """Open the topic of a tap while another process writes records to it; None when it does not exist yet."""
    assert isinstance(context.connector, SparkStream)
    return _followed(context, context.connector.topic or _landing(context.flow, context.name))


def _followed(context: SourceContext, name: str) -> LogSource | None:
    if not context.log.exists(name):
        return None
    reader = f"{context.flow}.{context.name}"
    return LogSource(context.log.topic(name), LogTopic(name), context.schema, reader, {}, holds=False)


def _landing(flow: str, source: str) -> str:
    """The topic of a Spark stream that names none. A truncated name could be that of another source."""
    name = f"{flow}_{source}"
    if len(name) > 63:
        raise DefinitionError(
            f"the topic of the source `{source}` would be called {name}, which is too long",
            hint=f"name it: ms.spark_stream(..., topic={name[:63]!r})",
        )
    return name
