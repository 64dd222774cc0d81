"""Where records come from and where changes go, as values. `model/connector_declarations.py` declares the systems and
their options; `connect/` opens them.
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
from millstream.model import connector_declarations
from millstream.model.connector import Connector, Sink
from millstream.model.connector_declarations import System
from millstream.model.origin import here
from millstream.model.types.schema import Schema

FORMATS = ("json", "csv", "parquet")
LONGEST_NAME = 63
"""Characters of a name."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


def check_name(name: object, what: str) -> None:
    """Names of flows, sources, views, topics and columns are plain identifiers: they become tables and files."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise DefinitionError(
            f"{name!r} is not a valid name for a {what}",
            hint="use letters, digits and _, beginning with a letter, at most 63 characters",
            origin=here(),
        )


@dataclass(frozen=True)
class Files(Connector, Sink):
    """A folder of files: those that are there, then new ones as they appear. Each is read once."""

    path: str
    format: str
    header: bool = True
    bounded: bool = False
    """True: read what exists at the start, then end."""

    _system: ClassVar[System] = connector_declarations.FILES
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
    """What determines the records in addition to their numbers (such as a seed); part of the flow's identity."""

    def __post_init__(self) -> None:
        """Refuse a rate or a number of events that is none."""
        rate, events = self.rate, self.events
        if rate is not None and (not _is_number(rate) or not 0 < rate <= MOST_EVENTS):
            raise DefinitionError(f"a rate must be above zero and finite, not {rate!r}", origin=here())
        if events is not None and (not _is_number(events, int) or not 0 <= events <= MOST_EVENTS):
            raise DefinitionError(f"events must be a whole number of at least 0, not {events!r}", origin=here())

    _system: ClassVar[System] = connector_declarations.GENERATOR

    @property
    def identity(self) -> object:
        """The name, and what decides the records."""
        return (self.name, self.key)

    @property
    def described(self) -> str:
        """Name, pace and end."""
        pace = "as fast as possible" if self.rate is None else f"{self.rate:,.0f} per second"
        end = "endless" if self.events is None else f"{self.events:,} events"
        return f"generator {self.name}, {pace}, {end}"

    @property
    def known_schema(self) -> pa.Schema | None:
        """The columns that it makes."""
        return self.schema


MOST_EVENTS = 2**62
"""Events that a generator makes at most, in all or in a second."""


def _is_number(value: object, kind: type | tuple[type, ...] = (int, float)) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


@dataclass(frozen=True, eq=False)
class Memory(Connector):
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

    _system: ClassVar[System] = connector_declarations.MEMORY

    @property
    def identity(self) -> object:
        """All alike."""
        return "memory"

    @property
    def described(self) -> str:
        """The number of partitions."""
        return f"memory, {self.partitions} partition{'' if self.partitions == 1 else 's'}"


@dataclass(frozen=True)
class LogTopic(Connector, Sink):
    """A topic of the home's own log: read from an offset on, or written to."""

    topic: str
    start: str | Mapping[int, int] = "beginning"
    """"beginning", "end" (only what is new), an instant as ISO 8601 text, or an offset per partition."""
    bounded: bool = False
    """True: read what exists at the start, then end."""

    _system: ClassVar[System] = connector_declarations.LOG

    @property
    def identity(self) -> object:
        """The topic."""
        return ("log", self.topic)

    @property
    def described(self) -> str:
        """The topic, and where a flow begins."""
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
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    topic: str = ""
    """The topic of the records; by default named after flow and source."""

    _system: ClassVar[System] = connector_declarations.SPARK

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

    _system: ClassVar[System] = connector_declarations.CONSOLE

    @property
    def target(self) -> str:
        """The console."""
        return "console"


@dataclass(frozen=True, eq=False)
class TableTarget(Sink):
    """A stored table that changes are written to: rows are appended, or replaced and deleted by its key."""

    table: str
    columns: tuple[str, ...]
    """The columns that the values of a row go to, in order; the others are NULL."""
    key: tuple[str, ...]
    required: tuple[str, ...]
    """The columns that are NOT NULL."""
    schema: Schema

    _system: ClassVar[System] = connector_declarations.TABLE

    @property
    def target(self) -> str:
        """The table."""
        return f"table {self.table}"

    def promise(self, flow: str) -> str:
        """How rows come into the table, too."""
        by = f"upserted by {', '.join(self.key)}" if self.key else "appended"
        return f"{super().promise(flow)}, {by}"

    def check_columns(self, name: str, columns: Schema) -> None:
        """Values go to columns one by one."""
        if len(self.columns) != len(columns.names):
            raise SchemaError(
                f"the sink `{name}` has {len(columns.names)} values for {len(self.columns)} columns of "
                f"`{self.table}`: {', '.join(self.columns)}",
                hint=f"INTO TABLE {self.table} (a, b) names the columns that values go to",
            )

    def check_changes(self, name: str, *, append_only: bool, origin: Origin | None) -> None:
        """Rows that change need a key."""
        if not append_only and not self.key:
            raise Unsupported(
                f"the rows of the sink `{name}` change, and the table `{self.table}` has no PRIMARY KEY",
                detail="a change could not be matched with a row of the table",
                hint=f"CREATE TABLE {self.table} (id BIGINT PRIMARY KEY, ...); or write the changes themselves: "
                "SELECT * FROM CHANGELOG OF ...",
                origin=origin,
            )


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
    ISO 8601 text or a datetime: the first record appended then or later), or an offset per partition. After that it
    resumes where it was.
    """
    check_name(topic, "topic")
    if isinstance(start, datetime):
        start = (start if start.tzinfo else start.replace(tzinfo=UTC)).isoformat()
    if isinstance(start, str) and start not in ("beginning", "end"):
        try:
            datetime.fromisoformat(start)
        except ValueError:
            raise DefinitionError(
                f"start={start!r} of the topic `{topic}` is not a start position",
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
