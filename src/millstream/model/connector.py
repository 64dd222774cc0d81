"""Where records come from and what they are joined to, as values. The readers are in `connect/` and `engine/`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millstream.errors import DefinitionError
from millstream.model.duration import Duration
from millstream.model.origin import here

FORMATS = ("json", "csv", "parquet")


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


Connector = Files | Generator | Memory


def files(path: str, *, format: str, header: bool = True, bounded: bool = False) -> Files:
    """Read a folder (or one file, or a glob) of JSON lines, CSV or Parquet.

    A file must appear whole (write it elsewhere and rename it); names that begin with ``.`` or ``_`` are left out.
    """
    if format not in FORMATS:
        raise DefinitionError(f"unknown format {format!r}", hint="one of: " + ", ".join(FORMATS), origin=here())
    return Files(str(path), format, header, bounded)


def memory(*, partitions: int = 1) -> Memory:
    """A source fed by `send` until `end`, for tests and small programs."""
    if partitions <= 0:
        raise DefinitionError(f"partitions must be above zero, not {partitions}", origin=here())
    return Memory(partitions)


def generator(
    make: Callable[[int, int], pa.Table],
    *,
    rate: float | None = None,
    events: int | None = None,
    name: str = "",
) -> Generator:
    """A source whose records a function makes from their numbers: ``make(start, end) -> pyarrow.Table``."""
    if rate is not None and rate <= 0:
        raise DefinitionError(f"a rate must be above zero, not {rate}", origin=here())
    if events is not None and events < 0:
        raise DefinitionError(f"events must not be negative, not {events}", origin=here())
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
    corrections: Corrections | None = None
    """A condition in Spark SQL: records for which it is true move the watermark, and no others."""
