"""The sinks: a topic of the log, a directory of files, or the terminal. One object per sink of a flow.

An epoch is passed to `write` once, or again after a crash. The topic's producer and sequence, or the name of the file,
prevent duplicates. A terminal may show an epoch twice.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import orjson
import pyarrow as pa

from millstream import paths
from millstream.connect import file_parts
from millstream.connect.file_parts import FileParts
from millstream.connect.port import SinkBase, SinkPart
from millstream.connect.registry import Durably, SinkContext
from millstream.errors import HomeDamaged, IncompatibleChange
from millstream.log.topic import Topic
from millstream.model.connector import Sink
from millstream.model.connectors import Files, LogTopic
from millstream.model.guarantees import SinkGuarantee
from millstream.model.types.values import in_json, python_rows


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
        """What a topic of this name lacks of what was written to it; None when it has everything."""
        if topic.id != self.id:
            return "it is another topic of the same name"
        ends = topic.end()
        short = [(p, end) for p, end in self.ends.items() if ends.get(p, 0) < end]
        for p, end in short:
            return f"partition {p} ends at offset {ends.get(p, 0):,}, but was written up to {end:,}"
        return None


class TopicSink(SinkBase):
    """Appends to a topic, as a producer whose sequence is the epoch."""

    guarantee = SinkGuarantee.TRANSACTIONAL

    def __init__(self, name: str, topic: Topic, writer: str) -> None:
        self.name, self.topic, self.writer = name, topic, writer
        self.reach: Reach | None = None
        """How far it has written the topic."""

    def open(self, schema: pa.Schema, identity: tuple[str, ...] | None) -> None:
        """Refuse a topic with other columns."""
        there = self.topic.schema
        if there.names != schema.names or there.types != schema.types:
            raise IncompatibleChange(
                f"`{self.name}` does not fit the topic `{self.topic.name}`",
                detail=f"it writes ({_columns(schema)}), the topic holds ({_columns(there)})",
                hint="write to another topic",
            )

    def last_epoch(self, writer: str) -> int | None:
        """The last epoch that every partition has. A partition without rows in the last epochs makes this a lower
        bound, which is harmless: a partition accepts an epoch once.
        """
        return min(self.topic.last_sequence(writer).values(), default=-1)

    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        """Append; with a digest the topic recognises an epoch that it has."""
        if digest is None:
            ack = self.topic.append(changes)
        else:
            ack = self.topic.append(changes, producer=self.writer, sequence=epoch, digest=digest)
        before = self.reach.ends if self.reach is not None else {}
        ends = {partition: end for partition, (_, end) in ack.offsets.items()}
        self.reach = Reach(self.topic.name, self.topic.id, {**before, **ends})

    def confirm(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        """Offer the epoch to the topic again: it compares the content with what it has."""
        self.write(epoch, changes, digest=digest)

    def position(self) -> Mapping[str, Any] | None:
        """Topic, its id, and the offsets."""
        return None if self.reach is None else self.reach.to_json()

    def resume(self, position: Mapping[str, Any]) -> None:
        """Refuse a topic that lacks what was written. What was written to another topic does not matter."""
        reach = Reach.from_json(position)
        if self.topic.name != reach.topic:
            return
        missing = reach.missing_in(self.topic)
        if missing is not None:
            raise HomeDamaged(
                f"the topic `{reach.topic}` lacks changes that the sink `{self.name}` has written to it",
                detail=f"{missing}; it was removed, or replaced by an older one",
                hint="restore the topic from a copy; `millstream repair` says what can be done without one",
            )
        self.reach = reach


def open_topic(context: SinkContext) -> TopicSink:
    """Open a topic as a sink, creating it if it does not exist."""
    assert isinstance(context.sink, LogTopic)
    name = context.sink.topic
    if name in context.read_topics:
        raise IncompatibleChange(
            f"`{context.name}` writes to the topic `{name}`, which the flow `{context.flow}` itself reads",
            detail="it would read its own output forever",
            hint="write to another topic, or read it in another flow",
        )
    topic = context.log.topic(name) if context.log.exists(name) else context.log.create(name, context.schema)
    return TopicSink(context.name, topic, context.writer)


class FilesSink(SinkBase):
    """One file per epoch with changes: ``<sink>-<generation>-<epoch>.json``, written under another name and renamed. An
    epoch that tasks have written has several, ``<sink>-<generation>-<epoch>-<number>.json`` (`connect/file_parts.py`).
    """

    guarantee = SinkGuarantee.IDEMPOTENT

    def __init__(self, folder: Path, form: str, name: str, generation: int, durably: Durably) -> None:
        self._folder, self._form, self._name, self._generation = folder, form, name, generation
        self._durably = durably
        self._replaces = True
        """Whether the next epoch may have been written before, with other parts."""

    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        """Write the file of this epoch, replacing an existing one."""
        path = self._folder / f"{self._epoch(epoch)}.{self._form}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._durably(path, file_parts.encoded(changes, self._form))
            self._replaced(epoch, [path], digest)
        except OSError as error:
            raise file_parts.cannot_write(self._name, self._folder, error) from None

    def parts_writer(self) -> FileParts:
        """See `SinkWithParts`."""
        return FileParts(self._folder, self._form, self._name, self._generation, self._durably)

    def lost_parts(self, parts: Sequence[SinkPart], *, verify: bool) -> str | None:
        """See `SinkWithParts`."""
        return file_parts.lost(parts, verify=verify)

    def publish(self, epoch: int, parts: Sequence[SinkPart], *, digest: str | None = None) -> None:
        """Rename the parts to the names of their epoch."""
        try:
            self._replaced(epoch, file_parts.publish(parts), digest)
        except OSError as error:
            raise file_parts.cannot_write(self._name, self._folder, error) from None

    def forget_parts(self, through: int | None) -> None:
        """See `SinkWithParts`."""
        with suppress(OSError):  # they do no harm
            file_parts.forget(self._folder, self._name, self._generation, through)

    def close(self) -> None:
        """Remove the folder for parts if nothing is in it."""
        with suppress(OSError):
            paths.delete_folder(self._folder / file_parts.STAGING)

    def _epoch(self, epoch: int) -> str:
        return f"{self._name}-{self._generation:03d}-{epoch:012d}"

    def _replaced(self, epoch: int, written: Sequence[Path], digest: str | None) -> None:
        """Remove other files of an epoch that was written again. With a digest the outbox knows what was written;
        without one, an epoch that failed before its commit is run again after the next start, perhaps in other parts.
        """
        if digest is None and self._replaces:
            shape = re.compile(rf"{re.escape(self._epoch(epoch))}(-\d+)?\.{self._form}")
            keep = {p.name for p in written}
            for name in os.listdir(self._folder):
                if shape.fullmatch(name) and name not in keep:
                    paths.delete_file(self._folder / name, missing_ok=True)
        self._replaces = False


def open_files(context: SinkContext) -> FilesSink:
    """Open a directory as a sink."""
    assert isinstance(context.sink, Files)
    folder = Path(context.sink.path).absolute()
    return FilesSink(folder, context.sink.format, context.name, context.generation, context.durably)


def newest_generation(sink: Sink, name: str) -> int | None:
    """The highest generation of the files of a sink in its directory; None when there are none."""
    assert isinstance(sink, Files)
    shape = re.compile(rf"{re.escape(name)}-(\d+)-\d+(-\d+)*\.\w+", re.IGNORECASE)
    names = file_parts.names_of(Path(sink.path).absolute())
    return max((int(match[1]) for n in names if (match := shape.fullmatch(n))), default=None)


class ConsoleSink(SinkBase):
    """One line per change on standard output."""

    guarantee = SinkGuarantee.AT_LEAST_ONCE

    def __init__(self, name: str, kind: str | None, out: TextIO | None = None) -> None:
        self._name, self._out = name, out
        self._kind = kind
        """The column that holds the kind of a change; None for append-only output."""

    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        """Print the changes."""
        del digest
        out = self._out or sys.stdout
        for row in python_rows(changes):
            kind = "+I" if self._kind is None else row.pop(self._kind)
            out.write(f"{self._name}[{epoch}] {kind} {orjson.dumps(row, default=in_json).decode()}\n")
        out.flush()


def open_console(context: SinkContext) -> ConsoleSink:
    """Open the terminal as a sink."""
    return ConsoleSink(context.name, context.kind_column)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
