"""Every error a person can meet, as one tree.

MillstreamError
├── DefinitionError      the flow as written is wrong
│   ├── SchemaError
│   ├── DuplicateName
│   └── UnknownName
├── PlanError            a right flow, but no plan for it
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
├── RunError             a running flow stopped
│   ├── UserCodeFailed
│   ├── EngineFailed
│   │   └── EngineLost
│   ├── EngineMissing
│   ├── DiskFull
│   ├── MemoryExceeded
│   ├── LeaseLost
│   └── RecoveryFailed
├── QueryError           a question that cannot be answered
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

An error says what happened (`message`), where (`origin`), why (`detail`) and what to do (`hint`). The class
gives a stable `code` and the exit code of the command line; the wording may change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_KINDS = re.compile(r"(?m)(?:^|(?<=: )|(?<=; ))[A-Z][A-Za-z]*(?: [A-Za-z]+)* Error: ")
"""How DuckDB begins: ``Conversion Error: ...``."""
_CLASSES = re.compile(
    r"<?\b(?:java|javax|org\.apache|scala|py4j|pyarrow|polars|_?duckdb|pyspark|sqlglot|orjson|numpy|pandas)"
    r"(?:\.\w+)*\.[A-Z]\w*(?:\$\w+)*>?(?:: ?)?"
    r"|\b(?:Arrow(?:Invalid|NotImplementedError|TypeError|KeyError|IOError|Exception)|Py4J\w+|ComputeError"
    r"|PanicException|(?:Spark|Analysis|NumberFormat|Parse|Runtime|IllegalArgument|NullPointer|ClassCast|DateTime|"
    r"FileNotFound|SparkArithmetic|SparkRuntime|InvalidInput|Binder|Catalog|Conversion)Exception)\b(?:: ?)?"
)
"""Names of classes of other libraries."""


def plain(text: str) -> str:
    """What another library says, without the names of its classes.

    >>> plain("Conversion Error: Could not convert string 'x' to INT32")
    "Could not convert string 'x' to INT32"
    >>> plain("java.lang.NumberFormatException: For input string: 'x'")
    "For input string: 'x'"
    """
    return _CLASSES.sub("", _KINDS.sub("", text)).strip() or "an unexpected fault"


@dataclass(frozen=True)
class Origin:
    """The user's own file and line that an error speaks of; of SQL also the column, and the line itself, marked."""

    file: str
    line: int
    column: int = 0
    excerpt: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")
        return f"{place}\n{self.excerpt}" if self.excerpt else place


class MillstreamError(Exception):
    """The root: message, then optionally origin, detail and hint."""

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
        """A stable name of the kind of error, e.g. ``home_in_use``."""
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
    """The flow as written is wrong."""

    exit_code = 2


class SchemaError(DefinitionError):
    """An unknown column, a wrong type, or a schema that cannot be read."""


class DuplicateName(DefinitionError):
    """Two sources or views of one flow have the same name."""


class UnknownName(DefinitionError):
    """Something is named that does not exist."""


class PlanError(MillstreamError):
    """The flow is right, but there is no plan for it."""

    exit_code = 2


class Unsupported(PlanError):
    """Millstream cannot do this yet; docs/limits.md lists what else it cannot do."""


class IncompatibleChange(PlanError):
    """The flow was changed in a way its kept state does not allow."""


class SourceError(MillstreamError):
    """A source cannot be read."""

    exit_code = 3


class SourceMissing(SourceError):
    """A folder or file that a source names is not there."""


class SourceUnreadable(SourceError):
    """A file is there but is not what the source says it is."""


class SinkError(MillstreamError):
    """A sink cannot be written to."""

    exit_code = 3


class HomeError(MillstreamError):
    """Something is wrong with the home directory."""

    exit_code = 4


class HomeInUse(HomeError):
    """Another process owns the home."""


class HomeTooNew(HomeError):
    """The home was written by a newer version of Millstream."""


class HomeDamaged(HomeError):
    """A file of the home is missing or does not match its checksum."""


class RunError(MillstreamError):
    """A running flow stopped."""

    exit_code = 5


class UserCodeFailed(RunError):
    """A Python function given by the user raised."""


class EngineFailed(RunError):
    """Spark failed; the full report is in the log file that the message names."""


class EngineLost(EngineFailed):
    """Spark's Java process has ended; the next start brings a new one."""


class EngineMissing(RunError):
    """No Java, or one that is too old."""


class DiskFull(RunError):
    """No space is left on the disk of the home."""


class MemoryExceeded(RunError):
    """An epoch needs more memory than a flow may take."""


class LeaseLost(RunError):
    """Another process has taken this flow over, or the home was moved or replaced; nothing more is written."""


class RecoveryFailed(RunError):
    """Store, epoch records and state do not fit together."""


class QueryError(MillstreamError):
    """A question that cannot be answered."""

    exit_code = 6


class ViewNotFound(QueryError):
    """No view, table or system table has this name."""


class ViewFailed(QueryError):
    """A view of the question has failed: its rows are not those that its definition means."""


class StatementRefused(QueryError):
    """The statement is not one that a reader may run."""


class LimitExceeded(QueryError):
    """A question was stopped because it took more time or memory than is allowed."""


class Cancelled(QueryError):
    """A question was stopped because nobody waits for its answer any more."""


class ConnectionLost(QueryError):
    """The connection to the process that owns the home has ended."""


class LogError(MillstreamError):
    """Records cannot be appended to the log, or read from it."""

    exit_code = 7


class LogInUse(LogError):
    """Another writer has the partition; the message names its process."""


class LogFailed(LogError):
    """The disk failed under a writer; nothing more is appended until the topic is opened anew."""


class OffsetsTrimmed(LogError):
    """The offsets asked for were trimmed and are gone."""


class RecordRefused(LogError):
    """A record does not fit its topic; nothing of its append was taken."""
