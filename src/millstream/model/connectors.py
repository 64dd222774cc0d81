"""Where records come from and what they are joined to, as values. The readers are in `connect/` and `engine/`."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from millstream.errors import DefinitionError
from millstream.model.origin import here
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema

FORMATS = ("json", "csv", "parquet")
LONGEST_NAME = 63
"""Characters of a name."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


def check_name(name: object, what: str) -> None:
    """Names of flows, sources, views, topics and columns are plain identifiers: they become tables and files."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise DefinitionError(
            f"{name!r} is not a good name for a {what}",
            hint="use letters, digits and _, beginning with a letter, at most 63 characters",
            origin=here(),
        )


@dataclass(frozen=True)
class Files:
    """A folder of files: those that are there, then new ones as they appear. Each is read once."""

    path: str
    format: str
    header: bool = True
    bounded: bool = False
    """True: read what is there at the start, then end."""


@dataclass(frozen=True)
class Generator:
    """Records made from their number alone, so that any slice can be made at any time, in parallel.

    `make(start, end)` returns an Arrow table with one row for each record numbered in [start, end) (a
    generator may leave numbers out). `rate` paces it in records per second; None is as fast as possible.
    """

    name: str
    make: Callable[[int, int], pa.Table]
    rate: float | None = None
    events: int | None = None
    schema: pa.Schema | None = None
    key: str = ""
    """What decides the records besides their numbers (seed and so on); part of the flow's identity."""

    def __post_init__(self) -> None:
        """Refuse a rate or a number of events that is none."""
        rate, events = self.rate, self.events
        if rate is not None and (not _is_number(rate) or not 0 < rate <= MOST_EVENTS):
            raise DefinitionError(f"a rate must be above zero and finite, not {rate!r}", origin=here())
        if events is not None and (not _is_number(events, int) or not 0 <= events <= MOST_EVENTS):
            raise DefinitionError(f"events must be a whole number from 0 on, not {events!r}", origin=here())


MOST_EVENTS = 2**62
"""Events that a generator makes at most, in all or in a second."""


def _is_number(value: object, kind: type | tuple[type, ...] = (int, float)) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True, eq=False)
class Memory:
    """Rows that a test or a program sends by hand; they live as long as the process."""

    partitions: int = 1
    rows: list[list[dict[str, Any]]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event, repr=False)

    def send(self, *rows: dict[str, Any], partition: int = 0) -> None:
        """Append rows to a partition; the next epoch takes them."""
        if self.ended.is_set():
            msg = "rows sent to a memory source that has ended"
            raise ValueError(msg)
        while len(self.rows) < self.partitions:
            self.rows.append([])
        if not 0 <= partition < self.partitions:
            msg = f"partition {partition} of a memory source with {self.partitions}"
            raise IndexError(msg)
        self.rows[partition].extend(rows)

    def end(self) -> None:
        """Say that nothing more will be sent: once what was sent is read, all windows close and the flow may finish."""
        self.ended.set()


@dataclass(frozen=True)
class LogTopic:
    """A topic of the home's own log: read from an offset on, or written to."""

    topic: str
    start: str | Mapping[int, int] = "beginning"
    """"beginning", "end" (only what is new), an instant as ISO 8601 text, or an offset per partition."""
    bounded: bool = False
    """True: read what is there at the start, then end."""


@dataclass(frozen=True)
class SparkStream:
    """Any source of Spark Structured Streaming: a tap lands its records in a topic of the log, exactly once."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    topic: str = ""
    """Where the records land; named after flow and source unless said."""


@dataclass(frozen=True)
class Console:
    """The standard output of the process that runs a flow: one line per change."""


@dataclass(frozen=True, eq=False)
class TableTarget:
    """A stored table that changes are written to: rows are appended, or replaced and deleted by its key."""

    table: str
    columns: tuple[str, ...]
    """The columns that the values of a row go to, in order; the others are NULL."""
    key: tuple[str, ...]
    required: tuple[str, ...]
    """The columns that are NOT NULL."""
    schema: Schema


Connector = Files | Generator | LogTopic | Memory | SparkStream
Sink = LogTopic | Files | Console | TableTarget
"""Where changes may be written to."""


def files(path: str, *, format: str, header: bool = True, bounded: bool = False) -> Files:
    """Read a folder (or one file, or a glob) of JSON lines, CSV or Parquet; or, as a sink, write to a folder.

    A file must appear whole (write it elsewhere and rename it); names that begin with ``.`` or ``_`` are left out.
    """
    if format not in FORMATS:
        raise DefinitionError(f"unknown format {format!r}", hint="one of: " + ", ".join(FORMATS), origin=here())
    return Files(str(path), format, header, bounded)


def console() -> Console:
    """The terminal, to write to (`Stream.sink`): one line per change."""
    return Console()


def memory(*, partitions: int = 1) -> Memory:
    """A source fed by `send` until `end`, for tests and small programs."""
    if partitions <= 0:
        raise DefinitionError(f"partitions must be above zero, not {partitions}", origin=here())
    return Memory(partitions)


def log(topic: str, *, start: str | datetime | Mapping[int, int] = "beginning", bounded: bool = False) -> LogTopic:
    """A topic of the home's log, to read from (`Flow.source`) or to write to (`Stream.sink`).

    A flow that reads it for the first time begins at `start`: ``"beginning"``, ``"end"`` (only what is new), a time (as
    ISO 8601 text or a datetime: the first record that came in then or later), or an offset per partition. After that it
    goes on where it was.
    """
    check_name(topic, "topic")
    if isinstance(start, datetime):
        start = (start if start.tzinfo else start.replace(tzinfo=UTC)).isoformat()
    if isinstance(start, str) and start not in ("beginning", "end"):
        try:
            datetime.fromisoformat(start)
        except ValueError:
            raise DefinitionError(
                f"start={start!r} of the topic `{topic}` is not a place to begin",
                hint='"beginning", "end", a time like "2026-01-01T00:00:00Z", or offsets like {0: 1200}',
                origin=here(),
            ) from None
    return LogTopic(topic, start, bounded)


def spark_stream(format: str, options: Mapping[str, object] | None = None, *, topic: str = "") -> SparkStream:
    """Read any source of Spark Structured Streaming (Kafka, Kinesis, rate, ...), with its own options.

    While the flow runs, a tap lands the records in a topic of the log, each exactly once, and the flow reads them from
    there; so they can be replayed, rewound and read by other flows, whatever the source itself can do.
    """
    if not format:
        raise DefinitionError("a Spark stream needs a format", hint='e.g. ms.spark_stream("rate")', origin=here())
    if topic:
        check_name(topic, "topic")
    return SparkStream(format, {k: str(v) for k, v in (options or {}).items()}, topic)


def generator(
    make: Callable[[int, int], pa.Table],
    *,
    rate: float | None = None,
    events: int | None = None,
    name: str = "",
) -> Generator:
    """A source whose records a function makes from their numbers: ``make(start, end) -> pyarrow.Table``."""
    label = name or getattr(make, "__name__", "generator")
    return Generator(label, make, rate, events, key=label)


@dataclass(frozen=True)
class Corrections:
    """How later records revise earlier ones of a source: the columns that name a record, the one that says what is done
    to it, and the one that says which version is newer.
    """

    key: tuple[str, ...]
    op: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class SourceOptions:
    """Event time and admission of a source."""

    event_time: str | None
    lateness: Duration
    future_bound: Duration
    idle_timeout: Duration | None
    max_rows: int | None
    punctuation: str | None = None
    """A condition in Spark SQL: records for which it is true move the watermark, and no others."""
    corrections: Corrections | None = None
    computed_time: str | None = field(default=None, repr=False)
    """The event time in Spark SQL, where it is computed from the columns that are read. (Left out of `repr`, by which
    plans are told apart: `plan/rules/identify.py` adds it where there is one.)
    """
    processing_time: str | None = field(default=None, repr=False)
    """The column that holds the clock of the epoch which read the record, beside an event time. (Left out of `repr` for
    the same reason.)
    """

    @property
    def time_sql(self) -> str | None:
        """Spark SQL for the event time over the columns that are read; NULL where its expression fails."""
        if self.computed_time is None:
            return None if self.event_time is None else f"`{self.event_time}`"
        return f"try_add({self.computed_time}, INTERVAL '0' SECOND)"  # TRY for all that is inside, unlike for numbers
