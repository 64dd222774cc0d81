"""Folders of files. Offset i is the i-th file that was discovered; the order of discovery is kept in a ledger.

The ledger is a file of JSON lines, one per discovered file, appended and fsynced before an epoch may name it:

    {"n":0,"path":"/data/bids/a.json","size":812,"mtime":1767225600000000}

A file is read once: a path that is in the ledger is never taken again, whatever happens to it afterwards.
"""

from __future__ import annotations

import csv
import glob
import os
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from millstream import paths
from millstream.connect.port import Offsets, SourceSlice
from millstream.errors import HomeDamaged, SourceMissing, SourceUnreadable
from millstream.model.connector import Files
from millstream.model.schema import Schema

BYTES_PER_EPOCH = 256 * 2**20
_ROW_BYTES = {"json": 100, "csv": 60, "parquet": 12}


@dataclass(frozen=True)
class FileEntry:
    """A discovered file."""

    path: str
    size: int
    mtime: int


class FileSource:
    """The files of a folder, in the order they were discovered."""

    def __init__(self, files: Files, schema: Schema, ledger: Path) -> None:
        self.files = files
        self._schema = schema
        self._ledger = ledger
        self.entries: list[FileEntry] = _load(ledger)
        self._known = {e.path for e in self.entries}
        self._closed = False
        if not self.entries and not self._candidates():
            self._check_place()

    def head(self, now: int) -> Offsets:
        """Look for new files and write them into the ledger."""
        del now
        fresh: list[FileEntry] = []
        for path in () if self._closed else self._candidates():
            if path in self._known:
                continue
            try:
                status = os.stat(path)
            except FileNotFoundError:
                continue
            self._check_file(path)
            fresh.append(FileEntry(path, status.st_size, status.st_mtime_ns // 1000))
        if fresh:
            fresh.sort(key=lambda e: (e.mtime, e.path))
            self._append(fresh)
        if self.files.bounded:
            self._closed = True
        return {0: len(self.entries)}

    def admit(self, start: Offsets, head: Offsets, limit: int | None) -> SourceSlice:
        """Whole files, until the bytes (or the rows, as estimated) of one epoch are reached; at least one file."""
        first, end, size = start.get(0, 0), start.get(0, 0), 0
        budget = BYTES_PER_EPOCH if limit is None else limit * _ROW_BYTES[self.files.format]
        while end < head[0] and (end == first or size + self.entries[end].size <= budget):
            size += self.entries[end].size
            end += 1
        return SourceSlice({0: (first, end)})

    def rows(self, part: SourceSlice) -> int:
        """Estimated from the bytes."""
        return sum(e.size for e in self.of(part)) // _ROW_BYTES[self.files.format]

    def of(self, part: SourceSlice) -> list[FileEntry]:
        """The files of a slice."""
        start, end = part.ranges.get(0, (0, 0))
        return self.entries[start:end]

    def finished(self, start: Offsets) -> bool:
        """A bounded folder ends with the files that were there at the start."""
        return self.files.bounded and self._closed and start.get(0, 0) >= len(self.entries)

    def _candidates(self) -> list[str]:
        path = self.files.path
        if os.path.isdir(path):
            try:
                found = [e.path for e in os.scandir(path) if e.is_file()]
            except PermissionError:
                raise SourceUnreadable(f"the folder {path} may not be read", hint="check its permissions") from None
        elif os.path.isfile(path):
            found = [path]
        else:
            found = [p for p in glob.glob(path) if os.path.isfile(p)]
        return sorted(os.path.abspath(p) for p in found if not os.path.basename(p).startswith((".", "_")))

    def _check_place(self) -> None:
        path = self.files.path
        if not os.path.exists(path) and not glob.has_magic(path):
            raise SourceMissing(
                f"there is no folder or file {path}",
                detail=f"looked from {os.getcwd()}",
                hint="make the folder first (it may be empty), or correct the path in ms.files(...)",
            )

    def _check_file(self, path: str) -> None:
        if os.fsencode(path).decode(errors="replace") != path:
            raise SourceUnreadable(f"the name of the file {path!r} is not UTF-8 text", hint="rename it")
        if not os.access(path, os.R_OK):
            raise SourceUnreadable(
                f"the file {path} may not be read", hint="check its permissions, or move it out of the folder"
            )
        if self.files.format == "parquet":
            _check_parquet(path, self._schema)
        elif self.files.format == "csv" and self.files.header:
            _check_header(path, self._schema)

    def _append(self, fresh: list[FileEntry]) -> None:
        lines = b"".join(
            orjson.dumps({"n": n, "path": e.path, "size": e.size, "mtime": e.mtime}) + b"\n"
            for n, e in enumerate(fresh, start=len(self.entries))
        )
        new = not self._ledger.exists()
        self._ledger.parent.mkdir(parents=True, exist_ok=True)
        with self._ledger.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
        if new:
            directory = os.open(self._ledger.parent, os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
        self.entries += fresh
        self._known.update(e.path for e in fresh)


def _load(ledger: Path) -> list[FileEntry]:
    """Read the ledger; a torn last line (it was never promised to anyone) is cut off."""
    if not ledger.exists():
        return []
    data = ledger.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        paths.truncate(ledger, len(whole))
    entries = []
    for number, line in enumerate(whole.splitlines()):
        try:
            entry = orjson.loads(line)
            if entry["n"] != number:
                raise ValueError(number)
            entries.append(FileEntry(entry["path"], entry["size"], entry["mtime"]))
        except (ValueError, KeyError, TypeError):
            raise HomeDamaged(
                f"line {number + 1} of the ledger {ledger} cannot be read",
                hint="`millstream repair` says what can be done",
            ) from None
    return entries


def _check_parquet(path: str, schema: Schema) -> None:
    """A Parquet file says what it holds: refuse a broken one, or one whose types cannot become ours, by name."""
    try:
        found = pq.read_schema(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceUnreadable(
            f"{path} is not a Parquet file",
            detail=str(error).splitlines()[0],
            hint="move it out of the folder; a file must be written elsewhere and renamed into it when it is whole",
        ) from None
    for field in schema:
        index = found.get_field_index(field.name)
        if index >= 0 and not _fits(found.field(index).type, field.type):
            raise SourceUnreadable(
                f"the column `{field.name}` of {path} is {found.field(index).type}, but the source says {field.type}",
                hint="correct the schema of the source, or move the file out of the folder",
            )


def _check_header(path: str, schema: Schema) -> None:
    """A CSV file with a header says which columns it has, in order."""
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        found = next(csv.reader(file), None)
    if found is not None and found != list(schema.names):
        raise SourceUnreadable(
            f"the header of {path} does not name the columns of the source",
            detail=f"it has {', '.join(found)}; the source has {', '.join(schema.names)}",
            hint="correct the schema of the source, or move the file out of the folder",
        )


def _fits(found: pa.DataType, wanted: pa.DataType | None) -> bool:
    if wanted is None or found == wanted:
        return True
    groups = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        lambda t: (
            pa.types.is_string(t)
            or pa.types.is_large_string(t)
            or pa.types.is_string_view(t)
            or pa.types.is_dictionary(t)
        ),
        pa.types.is_timestamp,
        pa.types.is_nested,
        lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t),
    )
    same = any(g(found) and g(wanted) for g in groups)
    if same and pa.types.is_integer(found):
        return bool(found.bit_width <= wanted.bit_width)
    return same
