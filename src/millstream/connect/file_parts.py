"""Parts of an epoch in a folder of files: tasks write them below a hidden folder, and the sink publishes them by name.

A part is written durably under a name that no other attempt uses:
``.staging/<sink>-<generation>-<epoch>-<token>-<task>-<attempt>-<n>.<format>``. It counts once the outbox has committed
its name. Publishing renames the parts in their order to ``<sink>-<generation>-<epoch>-<number>.<format>``, so that a
crash between two renames leaves published parts first and staged parts after them.
"""

from __future__ import annotations

import io
import os
import re
import stat
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from millstream import paths
from millstream.connect.port import SinkPart
from millstream.errors import SinkError
from millstream.model.types.interval import interval_text
from millstream.model.types.values import in_json, python_rows, python_values

STAGING = ".staging"
"""The folder for parts that are not published yet, below the folder of the sink."""

_NAME = re.compile(r"\.?(?P<sink>.+)-(?P<generation>\d{3,})-(?P<epoch>\d{12})-\d+(?:-\d+)+\.(?P<form>\w+?)(?:\.tmp)?")


@dataclass(frozen=True)
class FileParts:
    """Writes parts of a sink's files. Tasks on the executors have a copy of it."""

    folder: Path
    form: str
    sink: str
    generation: int
    durably: Callable[[Path, bytes], None]

    def write(self, table: pa.Table, name: str) -> SinkPart:
        """Write rows as a part that is not visible yet."""
        path = self.folder / STAGING / f"{self.sink}-{self.generation:03d}-{name}.{self.form}"
        data = encoded(table, self.form)
        try:
            try:
                self._put(path, data)
            except FileNotFoundError:  # another sink of the folder has just removed the empty staging folder
                self._put(path, data)
        except OSError as error:
            raise cannot_write(self.sink, self.folder, error) from None
        return SinkPart(str(path), table.num_rows, len(data), zlib.crc32(data))

    def _put(self, path: Path, data: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not path.parent.is_dir():
            path.parent.mkdir(exist_ok=True)
            with suppress(PermissionError):  # another user has just created it
                path.parent.chmod(stat.S_IMODE(self.folder.stat().st_mode))  # the driver, perhaps another user, renames
        self.durably(path, data)


def published(part: SinkPart, number: int) -> Path:
    """The path of a part after it is published as the part of this number of its epoch."""
    path = Path(part.name)
    found = _NAME.fullmatch(path.name)
    assert found is not None, part.name
    name = f"{found['sink']}-{found['generation']}-{found['epoch']}-{number:05d}.{found['form']}"
    return path.parent.parent / name


def lost(parts: Sequence[SinkPart], *, verify: bool) -> str | None:
    """What is wrong with the parts of an epoch that is not marked as delivered; None if they can be published. `verify`
    compares the content of staged parts with their checksums, otherwise only their sizes.

    Parts are published in order. A part that is neither staged nor published was taken by a reader if it was published
    before: then later parts have been published too, or are all still staged.
    """
    staged, there, gone = False, False, None
    for number, part in enumerate(parts):
        path = Path(part.name)
        if path.exists():
            staged = there = True
            if path.stat().st_size != part.bytes or (verify and zlib.crc32(path.read_bytes()) != part.crc):
                return f"{path} does not match its checksum"
        elif published(part, number).exists():
            there = True
        else:
            gone = gone or path
            if staged:
                return f"{path} is missing"
    return None if there or gone is None else f"{gone} is missing"


def publish(parts: Sequence[SinkPart]) -> list[Path]:
    """Publish parts in order; returns their paths. Those that have been published before are left as they are."""
    places = [published(part, number) for number, part in enumerate(parts)]
    for part, place in zip(parts, places, strict=True):
        try:
            paths.rename(Path(part.name), place)
        except FileNotFoundError:
            if Path(part.name).exists():
                raise  # the folder of the sink is gone
    for folder in {p.parent for p in places}:
        with suppress(OSError):  # it holds parts of another sink
            paths.delete_folder(folder / STAGING)
        paths.sync_directory(folder)
    return places


def forget(folder: Path, sink: str, generation: int, through: int | None) -> None:
    """Remove the staged parts of a sink up to an epoch, or all of them."""
    staging = folder / STAGING
    for name in os.listdir(staging) if staging.is_dir() else ():
        found = _NAME.fullmatch(name)
        if found is None or found["sink"] != sink or int(found["generation"]) != generation:
            continue
        if through is None or int(found["epoch"]) <= through:
            paths.delete_file(staging / name, missing_ok=True)


def names_of(folder: Path) -> list[str]:
    """The names of all files in the folder of a sink, published or not."""
    return [n for at in (folder, folder / STAGING) if at.is_dir() for n in os.listdir(at)]


def cannot_write(sink: str, folder: Path, error: OSError) -> SinkError:
    """The error for a folder that a sink cannot write to."""
    return SinkError(
        f"the sink `{sink}` cannot write to {folder}",
        detail=error.strerror or str(error),
        hint="make the folder writable; the flow resumes with the same changes",
    )


def encoded(rows: pa.Table, form: str) -> bytes:
    """Encode rows as the bytes of a file."""
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
    """Convert intervals to the text that a CSV source reads."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_duration(field.type):
            text = [None if v is None else interval_text(v) for v in python_values(rows.column(i))]
            rows = rows.set_column(i, field.name, pa.array(text, pa.string()))
    return rows
