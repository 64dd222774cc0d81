"""The built-in connectors as values: where records come from and where changes go. `model/systems.py` declares the
systems and their options; `connect/` opens them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

import pyarrow as pa

from millstream.errors import DefinitionError, Origin, SchemaError, Unsupported
from millstream.model import systems
from millstream.model.connector import Connector, Sink
from millstream.model.origin import here
from millstream.model.systems import System
from millstream.model.types.schema import Schema

FORMATS = ("json", "csv", "parquet")
LONGEST_NAME = 63
"""The maximum length of a name, in characters."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


def check_name(name: object, what: str) -> None:
    """Check that a name is a plain identifier. Names of flows, sources, views, topics and columns become tables and
    files.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise DefinitionError(
            f"{name!r} is not a good name for a {what}",
            hint="use letters, digits and _, beginning with a letter, at most 63 characters",
            origin=here(),
        )


@dataclass(frozen=True)
class Files(Connector, Sink):
    """A folder of files: the existing files, then new files as they appear. Each is read once."""

    path: str
    format: str
    header: bool = True
    bounded: bool = False
    """True: read what exists at the start, then end."""

    _system: ClassVar[System] = systems.FILES
    _how: ClassVar[str] = "a file per epoch"

    @property
    def identity(self) -> object:
        """The path and the format."""
        return (self.path, self.format)

    @property
    def described(self) -> str:
        """Format, path, and whether new files are followed."""
        return f"{self.target}, once" if self.bounded else f"{self.target}, new ones as they appear"

    @property
    def target(self) -> str:
        """Format and path."""
        return f"{self.format} files in {self.path}"


@dataclass(frozen=True)
class Generator(Connector):
    """Records computed from their numbers alone, so that any range can be generated at any time, in parallel.

    `make(start, end)` returns an Arrow table with one row for each record numbered in [start, end) (a generator may
    skip numbers). `rate` limits it to a number of records per second; None is as fast as possible.
    """

    name: str
    make: Callable[[int, int], pa.Table]
    rate: float | None = None
    events: int | None = None
    schema: pa.Schema | None = None
    key: str = ""
    """What determines the records in addition to their numbers (a seed, for example); part of the flow's identity."""

    def __post_init__(self) -> None:
        """Reject an invalid rate or number of events."""
        rate, events = self.rate, self.events
        if rate is not None and (not _is_number(rate) or not 0 < rate <= MOST_EVENTS):
            raise DefinitionError(f"a rate must be above zero and finite, not {rate!r}", origin=here())
        if events is not None and (not _is_number(events, int) or not 0 <= events <= MOST_EVENTS):
            raise DefinitionError(f"events must be a whole number from 0 on, not {events!r}", origin=here())

    _system: ClassVar[System] = systems.GENERATOR

    @property
    def identity(self) -> object:
        """The name, and what determines the records."""
        return (self.name, self.key)

    @property
    def described(self) -> str:
        """Name, rate and end."""
        pace = "as fast as possible" if self.rate is None else f"{self.rate:,.0f} per second"
        end = "endless" if self.events is None else f"{self.events:,} events"
        return f"generator {self.name}, {pace}, {end}"

    @property
    def known_schema(self) -> pa.Schema | None:
        """The columns that it generates."""
        return self.schema


MOST_EVENTS = 2**62
"""The most events that a generator may produce, in total or per second."""


def _is_number(value: object, kind: type | tuple[type, ...] = (int, float)) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True, eq=False)
class Memory(Connector):
    """Rows that a test or a program sends explicitly; they exist as long as the process."""

    partitions: int = 1
    rows: list[list[dict[str, Any]]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event, repr=False)

    def send(self, *rows: dict[str, Any], partition: int = 0) -> None:
        """Append rows to a partition; the next epoch reads them."""
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
        """Declare that no more rows will be sent. Once the rows sent so far are read, all windows close and the flow
        may finish.
        """
        self.ended.set()

    _system: ClassVar[System] = systems.MEMORY

    @property
    def identity(self) -> object:
        """The same for all memory sources."""
        return "memory"

    @property
    def described(self) -> str:
        """The number of partitions."""
        return f"memory, {self.partitions} partition{'' if self.partitions == 1 else 's'}"


@dataclass(frozen=True)
class LogTopic(Connector, Sink):
    """A topic of the home's own log, to read from an offset or to write to."""

    topic: str
    start: str | Mapping[int, int] = "beginning"
    """"beginning", "end" (new records only), an instant as ISO 8601 text, or an offset per partition."""
    bounded: bool = False
    """True: read what exists at the start, then end."""

    _system: ClassVar[System] = systems.LOG

    @property
    def identity(self) -> object:
        """The topic."""
        return ("log", self.topic)

    @property
    def described(self) -> str:
        """The topic, and where a flow starts."""
        begin = self.start
        if not isinstance(begin, str):
            begin = "offsets " + ", ".join(f"{p}: {o}" for p, o in sorted(begin.items()))
        return f"the topic {self.topic}, from {begin}" + (", once" if self.bounded else "")

    @property
    def target(self) -> str:
        """The topic."""
        return f"topic {self.topic}"

    @property
    def topic_of_its_own(self) -> str | None:
        """The topic."""
        return self.topic


@dataclass(frozen=True)
class SparkStream(Connector):
    """Any source of Spark Structured Streaming: a tap writes its records to a topic of the log, exactly once."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may contain secrets
    topic: str = ""
    """The topic for the records; by default named after flow and source."""

    _system: ClassVar[System] = systems.SPARK

    @property
    def identity(self) -> object:
        """Spark's name of the format, and the topic."""
        return ("spark", self.format, self.topic)

    @property
    def described(self) -> str:
        """Spark's name of the format."""
        return f"Spark's {self.format} stream, through a topic of the log"


@dataclass(frozen=True)
class Console(Sink):
    """The standard output of the process that runs a flow: one line per change."""

    _system: ClassVar[System] = systems.CONSOLE

    @property
    def target(self) -> str:
        """The console."""
        return "console"


@dataclass(frozen=True, eq=False)
class TableTarget(Sink):
    """A stored table as a target: changes are appended, or upserted and deleted by its key."""

    table: str
    columns: tuple[str, ...]
    """The columns that receive the values of a row, in order; the others are NULL."""
    key: tuple[str, ...]
    required: tuple[str, ...]
    """The NOT NULL columns."""
    schema: Schema

    _system: ClassVar[System] = systems.TABLE

    @property
    def target(self) -> str:
        """The table."""
        return f"table {self.table}"

    def promise(self, flow: str) -> str:
        """As for any sink, with how rows are written to the table."""
        by = f"upserted by {', '.join(self.key)}" if self.key else "appended"
        return f"{super().promise(flow)}, {by}"

    def check_columns(self, name: str, columns: Schema) -> None:
        """Check the values against the columns one by one."""
        if len(self.columns) != len(columns.names):
            raise SchemaError(
                f"the sink `{name}` has {len(columns.names)} values for {len(self.columns)} columns of "
                f"`{self.table}`: {', '.join(self.columns)}",
                hint=f"INTO TABLE {self.table} (a, b) names the columns that values go to",
            )

    def check_changes(self, name: str, *, append_only: bool, origin: Origin | None) -> None:
        """Changing rows need a key."""
        if not append_only and not self.key:
            raise Unsupported(
                f"the rows of the sink `{name}` change, and the table `{self.table}` has no PRIMARY KEY",
                detail="nothing would say which row of the table a change is of",
                hint=f"CREATE TABLE {self.table} (id BIGINT PRIMARY KEY, ...); or write the changes themselves: "
                "SELECT * FROM CHANGELOG OF ...",
                origin=origin,
            )


def files(path: str, *, format: str, header: bool = True, bounded: bool = False) -> Files:
    """Read a folder (or one file, or a glob) of JSON lines, CSV or Parquet files. As a sink, write to a folder.

    A file must appear complete (write it elsewhere and rename it). Names that start with ``.`` or ``_`` are ignored.
    """
    if format not in FORMATS:
        raise DefinitionError(f"unknown format {format!r}", hint="one of: " + ", ".join(FORMATS), origin=here())
    return Files(str(path), format, header, bounded)


def console() -> Console:
    """A sink that writes one line per change to the terminal (`Stream.sink`)."""
    return Console()


def memory(*, partitions: int = 1) -> Memory:
    """A source that is fed with `send` until `end`, for tests and small programs."""
    if partitions <= 0:
        raise DefinitionError(f"partitions must be above zero, not {partitions}", origin=here())
    return Memory(partitions)


def log(topic: str, *, start: str | datetime | Mapping[int, int] = "beginning", bounded: bool = False) -> LogTopic:
    """A topic of the home's log, to read from (`Flow.source`) or to write to (`Stream.sink`).

    A flow that reads it for the first time begins at `start`: ``"beginning"``, ``"end"`` (new records only), a time
    (ISO 8601 text or a datetime: the first record ingested at that time or later), or an offset per partition. After
    that the flow resumes where it stopped.
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

    While the flow runs, a tap writes the records to a topic of the log, each exactly once, and the flow reads them from
    there. So they can be replayed, rewound and read by other flows, regardless of the capabilities of the source.
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
    """A source whose records a function computes from their numbers: ``make(start, end) -> pyarrow.Table``."""
    label = name or getattr(make, "__name__", "generator")
    return Generator(label, make, rate, events, key=label)
