"""Every error that Millstream raises, as one class hierarchy.

MillstreamError
├── DefinitionError      the definition of the flow is invalid
│   ├── SchemaError
│   ├── DuplicateName
│   └── UnknownName
├── PlanError            a valid flow, but no plan for it
│   ├── Unsupported
│   └── IncompatibleChange
├── SourceError          a source cannot be read
│   ├── SourceMissing
│   └── SourceUnreadable
├── SinkError            a sink cannot be written to
├── HomeError            the directory that holds log, state and store
│   ├── HomeInUse
│   ├── HomeTooNew
│   └── HomeDamaged
├── RunError             a running flow failed
│   ├── UserCodeFailed
│   ├── EngineFailed
│   │   └── EngineLost
│   ├── EngineMissing
│   ├── DiskFull
│   ├── StorageFailed
│   ├── MemoryExceeded
│   ├── LeaseLost
│   └── RecoveryFailed
├── QueryError           a query cannot be answered
│   ├── ViewNotFound
│   ├── ViewFailed
│   ├── StatementRefused
│   ├── LimitExceeded
│   ├── Cancelled
│   └── ConnectionLost
└── LogError             records cannot be appended to the log, or read from it
    ├── LogInUse
    ├── LogFailed
    ├── OffsetsTrimmed
    └── RecordRefused

An error reports what happened (`message`), where (`origin`), why (`detail`) and what to do (`hint`). The class
defines a stable `code` and the exit code of the command line; the wording may change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_KINDS = re.compile(r"(?m)(?:^|(?<=: )|(?<=; ))[A-Z][A-Za-z]*(?: [A-Za-z]+)* Error: ")
"""The prefix of DuckDB's messages: ``Conversion Error: ...``."""
_CLASSES = re.compile(
    r"<?\b(?:java|javax|org\.apache|scala|py4j|pyarrow|polars|_?duckdb|pyspark|sqlglot|orjson|numpy|pandas)"
    r"(?:\.\w+)*\.[A-Z]\w*(?:\$\w+)*>?(?:: ?)?"
    r"|\b(?:Arrow(?:Invalid|NotImplementedError|TypeError|KeyError|IOError|Exception)|Py4J\w+|ComputeError"
    r"|PanicException|(?:Spark|Analysis|NumberFormat|Parse|Runtime|IllegalArgument|NullPointer|ClassCast|DateTime|"
    r"FileNotFound|SparkArithmetic|SparkRuntime|InvalidInput|Binder|Catalog|Conversion)Exception)\b(?:: ?)?"
)
"""Class names of other libraries."""


def plain(text: str) -> str:
    """Remove class names from the message of another library.

    >>> plain("Conversion Error: Could not convert string 'x' to INT32")
    "Could not convert string 'x' to INT32"
    >>> plain("java.lang.NumberFormatException: For input string: 'x'")
    "For input string: 'x'"
    """
    return _CLASSES.sub("", _KINDS.sub("", text)).strip() or "an unexpected fault"


@dataclass(frozen=True)
class Origin:
    """The location in user code that an error refers to: file and line. For SQL also the column, and the line itself
    with a marker.
    """

    file: str
    line: int
    column: int = 0
    excerpt: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")
        return f"{place}\n{self.excerpt}" if self.excerpt else place


class MillstreamError(Exception):
    """The base class of all errors: a message and, optionally, origin, detail and hint."""

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        origin: Origin | None = None,
    ) -> None:
        super().__init__(message)
        self.message = plain(message)
        self.detail = plain(detail) if detail else detail
        self.hint = hint
        self.origin = origin

    @property
    def code(self) -> str:
        """A stable identifier of the kind of error, e.g. ``home_in_use``."""
        name = type(self).__name__
        return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")

    def __str__(self) -> str:
        lines = [self.message]
        if self.origin:
            lines.append(f"  at {self.origin}")
        if self.detail:
            lines.append(f"  {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


class DefinitionError(MillstreamError):
    """The definition of the flow is invalid."""

    exit_code = 2


class SchemaError(DefinitionError):
    """A column is unknown, a type is wrong, or a schema cannot be parsed."""


class DuplicateName(DefinitionError):
    """Two sources or views of a flow have the same name."""


class UnknownName(DefinitionError):
    """A name refers to something that does not exist."""


class PlanError(MillstreamError):
    """The definition of the flow is valid, but Millstream has no plan for it."""

    exit_code = 2


class Unsupported(PlanError):
    """Millstream does not support this yet. docs/limits.md lists all known limits."""


class IncompatibleChange(PlanError):
    """The flow was changed in a way that is incompatible with its existing state."""


class SourceError(MillstreamError):
    """A source cannot be read."""

    exit_code = 3


class SourceMissing(SourceError):
    """A directory or file of a source does not exist."""


class SourceUnreadable(SourceError):
    """A file or folder may not be read, or a topic or stream does not have the columns of the source."""


class SinkError(MillstreamError):
    """Writing to a sink failed."""

    exit_code = 3


class HomeError(MillstreamError):
    """The home directory cannot be used."""

    exit_code = 4


class HomeInUse(HomeError):
    """Another process owns the home."""


class HomeTooNew(HomeError):
    """The home was written by a newer version of Millstream."""


class HomeDamaged(HomeError):
    """A file of the home is missing or does not match its checksum."""


class RunError(MillstreamError):
    """A running flow failed."""

    exit_code = 5


class UserCodeFailed(RunError):
    """A user-supplied Python function raised an exception."""


class EngineFailed(RunError):
    """Spark failed. The message names the log file with the full report."""


class EngineLost(EngineFailed):
    """Spark's Java process has exited. The next start launches a new one."""


class EngineMissing(RunError):
    """Java was not found or is too old."""


class DiskFull(RunError):
    """The disk of the home is full."""


class StorageFailed(RunError):
    """The storage of the state does not answer, or refuses a request."""


class MemoryExceeded(RunError):
    """An epoch needs more memory than the flow may use."""


class LeaseLost(RunError):
    """Another process has taken over this flow (`store/duckdb.py`), or the home was moved or replaced
    (`runtime/supervision/lease.py`). Nothing more is written.
    """


class RecoveryFailed(RunError):
    """The store, the epoch records and the state are inconsistent."""


class QueryError(MillstreamError):
    """A query cannot be answered."""

    exit_code = 6


class ViewNotFound(QueryError):
    """No view, table or system table has this name."""


class ViewFailed(QueryError):
    """A view that the query reads has failed, so its rows may not match its definition."""


class StatementRefused(QueryError):
    """The statement is not allowed for a reader."""


class LimitExceeded(QueryError):
    """The query was stopped because it exceeded its time or memory limit."""


class Cancelled(QueryError):
    """The query was stopped because the client no longer waits for the result."""


class ConnectionLost(QueryError):
    """The connection to the process that owns the home was lost."""


class LogError(MillstreamError):
    """Records cannot be appended to the log, or read from it."""

    exit_code = 7


class LogInUse(LogError):
    """Another writer holds the partition; the message names its process."""


class LogFailed(LogError):
    """A disk error occurred in a writer. Nothing more is appended until the topic is reopened."""


class OffsetsTrimmed(LogError):
    """The requested offsets were trimmed and no longer exist."""


class RecordRefused(LogError):
    """A record does not match the schema of its topic. Nothing of the append was written."""
