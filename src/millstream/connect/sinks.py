"""Where changes go: a topic of the log, a folder of files, or the terminal. One object per sink of a flow.

An epoch is given to `write` once, or again after a crash; what keeps it from being there twice is the topic's producer
and sequence, or the name of the file. A terminal may show it twice.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from millstream.errors import SourceError
from millstream.log.topic import Topic
from millstream.model.types.interval import interval_text
from millstream.model.types.values import in_json, python_rows, python_values

Durably = Callable[[Path, bytes], None]
"""Writes a whole file, under another name first; durable when it returns."""


@dataclass(frozen=True)
class Reach:
    """How far a sink has written a topic."""

    topic: str
    id: str
    ends: Mapping[int, int]
    """By partition, the offset after the last record of the sink."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"topic": self.topic, "id": self.id, "ends": dict(self.ends)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reach:
        """Read what `to_json` wrote."""
        return cls(data["topic"], data["id"], {int(p): o for p, o in data["ends"].items()})

    def missing_in(self, topic: Topic) -> str | None:
        """What a topic of this name lacks of what was written to it; None when it has all."""
        if topic.id != self.id:
            return "it is another topic of the same name"
        ends = topic.end()
        short = [(p, end) for p, end in self.ends.items() if ends.get(p, 0) < end]
        for p, end in short:
            return f"partition {p} ends at offset {ends.get(p, 0):,}, but was written up to {end:,}"
        return None


class SinkPort(Protocol):
    """Takes the changes of epochs."""

    def write(self, rows: pa.Table, epoch: int, *, writer: str, digest: str | None) -> None:
        """Take an epoch's changes, durably; `digest` (if given) tells the same epoch given again from another one."""
        ...


class TopicSink:
    """Appends to a topic, as a producer whose sequence is the epoch."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.reach: Reach | None = None
        """How far it has written the topic."""

    def write(self, rows: pa.Table, epoch: int, *, writer: str, digest: str | None) -> None:
        """Append; with a digest the topic knows an epoch that it has."""
        if digest is None:
            ack = self.topic.append(rows)
        else:
            ack = self.topic.append(rows, producer=writer, sequence=epoch, digest=digest)
        before = self.reach.ends if self.reach is not None else {}
        ends = {partition: end for partition, (_, end) in ack.offsets.items()}
        self.reach = Reach(self.topic.name, self.topic.id, {**before, **ends})


class FilesSink:
    """One file per epoch that changes something: ``<sink>-<generation>-<epoch>.json``; written aside and renamed."""

    def __init__(self, folder: Path, form: str, name: str, generation: int, durably: Durably) -> None:
        self._folder, self._form, self._name, self._generation = folder, form, name, generation
        self._durably = durably

    def write(self, rows: pa.Table, epoch: int, *, writer: str, digest: str | None) -> None:
        """Write the file of this epoch, in the place of one that is there."""
        del writer, digest
        path = self._folder / f"{self._name}-{self._generation:03d}-{epoch:012d}.{self._form}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._durably(path, encoded(rows, self._form))
        except OSError as error:
            raise SourceError(
                f"the sink `{self._name}` cannot write to {self._folder}",
                detail=error.strerror or str(error),
                hint="make the folder writable; the flow goes on with the same changes",
            ) from None


def newest_generation(folder: Path, name: str) -> int | None:
    """The highest generation that the files of a sink have in a folder; None when there are none."""
    shape = re.compile(rf"{re.escape(name)}-(\d+)-\d+\.\w+", re.IGNORECASE)
    names = os.listdir(folder) if folder.is_dir() else []
    return max((int(found[1]) for n in names if (found := shape.fullmatch(n))), default=None)


class ConsoleSink:
    """One line per change on standard output."""

    def __init__(self, name: str, kind: str | None, out: TextIO | None = None) -> None:
        self._name, self._kind, self._out = name, kind, out
        """`kind` is the column that says what kind of change a row is; None where rows only come."""

    def write(self, rows: pa.Table, epoch: int, *, writer: str, digest: str | None) -> None:
        """Print the changes."""
        del writer, digest
        out = self._out or sys.stdout
        for row in python_rows(rows):
            kind = "+I" if self._kind is None else row.pop(self._kind)
            out.write(f"{self._name}[{epoch}] {kind} {orjson.dumps(row, default=in_json).decode()}\n")
        out.flush()


def encoded(rows: pa.Table, form: str) -> bytes:
    """Rows as the bytes of a file."""
    out = io.BytesIO()
    if form == "parquet":
        pa.parquet.write_table(rows, out)
    elif form == "csv":
        pa.csv.write_csv(_texts(rows), out)
    else:
        for row in python_rows(rows):
            out.write(orjson.dumps(row, default=in_json, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z))
    return out.getvalue()


def _texts(rows: pa.Table) -> pa.Table:
    """Rows in which intervals are the text that a source of CSV reads."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_duration(field.type):
            text = [None if v is None else interval_text(v) for v in python_values(rows.column(i))]
            rows = rows.set_column(i, field.name, pa.array(text, pa.string()))
    return rows
