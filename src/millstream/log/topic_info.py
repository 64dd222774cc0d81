"""The settings of a topic: the content of its topic.json."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.errors import DefinitionError, HomeTooNew
from millstream.log.storage.disk import Disk
from millstream.log.storage.files import COPY, TEMP, damaged, read_small, write_kept
from millstream.model.types.schema import ddl_type

FORMAT = 1
NOTE, DROPPED = "topic.json", "topic.dropped"
PARTITION = re.compile(r"p\d{5}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

RECORD_BYTES = 1 << 20
SEGMENT_BYTES = 64 << 20
SEGMENT_ROWS = 4 << 20
LINGER = 0.005


def check_topic_name(name: str) -> None:
    """Refuse an invalid topic name."""
    if not NAME.fullmatch(name):
        raise DefinitionError(
            f"a topic cannot be called {name[:80]!r}",
            hint="a name has letters, digits and _, begins with no digit, and has at most 63 of them",
        )


@dataclass(frozen=True)
class About:
    """A topic's settings; they do not change."""

    name: str
    id: str
    schema: pa.Schema
    partitions: int
    key: str | None
    retain_time: int | None
    retain_bytes: int | None
    hard_cap: bool
    record_bytes: int
    segment_bytes: int
    segment_rows: int
    linger: float

    def check(self) -> None:
        """Refuse invalid settings."""
        check_topic_name(self.name)
        if not 1 <= self.partitions <= 10_000:
            raise DefinitionError(f"a topic cannot have {self.partitions} partitions", hint="use 1 to 10,000")
        for what, value in (
            ("retain_time", self.retain_time),
            ("retain_bytes", self.retain_bytes),
            ("record_bytes", self.record_bytes),
            ("segment_bytes", self.segment_bytes),
            ("segment_rows", self.segment_rows),
        ):
            if value is not None and value <= 0:
                raise DefinitionError(f"{what} must be above zero, not {value}")
        if self.linger < 0:
            raise DefinitionError(f"linger must not be below zero, but is {self.linger}")

    def to_json(self) -> dict[str, Any]:
        """Convert to plain data; the columns are for human readers, the schema for Millstream."""
        return {
            "format": FORMAT,
            "name": self.name,
            "id": self.id,
            "columns": {f.name: ddl_type(f.type) for f in self.schema},
            "schema": base64.b64encode(self.schema.serialize()).decode(),
            "partitions": self.partitions,
            "key": self.key,
            "retain_time": self.retain_time,
            "retain_bytes": self.retain_bytes,
            "hard_cap": self.hard_cap,
            "record_bytes": self.record_bytes,
            "segment_bytes": self.segment_bytes,
            "segment_rows": self.segment_rows,
            "linger": self.linger,
        }


def write_about(disk: Disk, folder: Path, about: About) -> None:
    """Write the settings; the topic exists from then on."""
    write_kept(disk, folder / NOTE, about.to_json())


def is_topic(disk: Disk, folder: Path) -> bool:
    """Whether a directory is a topic: also one that has lost its topic.json, but not one that is being created or
    removed.
    """
    names = disk.list(folder)
    if NOTE in names or DROPPED in names or not names:
        return NOTE in names
    if NOTE + COPY in names:
        return True
    return any(n != "lock" and not n.endswith(TEMP) for inner in names for n in _inside(disk, folder / inner))


def _inside(disk: Disk, folder: Path) -> list[str]:
    """The names in the directory of a partition, or of holds."""
    return disk.list(folder) if folder.name == "holds" or PARTITION.fullmatch(folder.name) else []


def read_about(disk: Disk, folder: Path, name: str = NOTE) -> About:
    """Read the settings, or (as `name`) their copy."""
    path = folder / name
    note = read_small(disk, path)
    if note is None:
        raise damaged(path, 0, f"it is missing, but the topic {folder.name} has records")
    if note.get("format", 0) > FORMAT:
        raise HomeTooNew(
            f"the topic {folder.name} was written by a newer version of Millstream",
            detail=f"its format is {note['format']}, this version reads up to {FORMAT}",
            hint="use the newer version",
        )
    if note.get("name") != folder.name:
        raise damaged(path, 0, f"it is of the topic {note.get('name')}")
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(note["schema"])))
    rest = {k: v for k, v in note.items() if k not in ("format", "columns", "schema")}
    return About(schema=schema, **rest)
