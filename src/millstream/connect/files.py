"""Folders of files. Offset i is the i-th file that was discovered; the order of discovery is kept in a ledger.

The ledger is a file of JSON lines, one per discovered file, appended and fsynced before an epoch may name it:

    {"n":0,"path":"/data/bids/a.json","size":812,"mtime":1767225600000000}

A file is read once: a path that is in the ledger is never taken again, whatever happens to it afterwards. A file that
is not what the source says (no Parquet, other columns) has a ``problem``: it is one error of its source and not read.
A problem that shows only when the file is read is added as a line of its own, ``{"n":0,"problem":"..."}``.
"""

from __future__ import annotations

import csv
import glob
import os
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from millstream import paths
from millstream.connect.port import Offsets, SourceSlice
from millstream.connect.text_lines import is_plain, lines_of
from millstream.errors import HomeDamaged, SourceMissing, SourceUnreadable
from millstream.model.connectors import Files
from millstream.model.types.schema import Schema
from millstream.model.types.values import readable

BYTES_PER_EPOCH = 256 * 2**20
_HEADER_BYTES = 100_000
_REMEMBERED = 10_000
_ROW_BYTES = {"json": 100, "csv": 60, "parquet": 12}


@dataclass(frozen=True)
class FileEntry:
    """A discovered file."""

    path: str
    size: int
    mtime: int
    problem: str | None = None
    """Why it cannot be read."""


class FileSource:
    """The files of a folder, in the order they were discovered."""

    def __init__(self, files: Files, schema: Schema, ledger: Path) -> None:
        self.files = files
        self._schema = schema
        self._ledger = ledger
        self.entries: list[FileEntry] = _load(ledger)
        self._known = {e.path for e in self.entries}
        self._plain: dict[str, bool] = {}
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
            problem = self._problem(path)
            fresh.append(FileEntry(path, status.st_size, status.st_mtime_ns // 1000, problem))
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

    def is_plain(self, entry: FileEntry) -> bool:
        """Whether Spark may read a text file by itself (see `connect/text_lines.py`)."""
        if entry.path not in self._plain:
            if len(self._plain) >= _REMEMBERED:
                self._plain.clear()
            try:
                self._plain[entry.path] = is_plain(entry.path, self.files.format)
            except FileNotFoundError:
                raise _gone(entry.path) from None
        return self._plain[entry.path]

    def examine(self, part: SourceSlice) -> bool:
        """Read the Parquet files of a slice to their ends, and note which cannot be; whether there are any."""
        start, end = part.ranges.get(0, (0, 0))
        found = False
        for n in range(start, end) if self.files.format == "parquet" else ():
            entry = self.entries[n]
            problem = None if entry.problem is not None else _damage(entry.path)
            if problem is not None:
                found = True
                self._write(orjson.dumps({"n": n, "problem": problem}) + b"\n")
                self.entries[n] = replace(entry, problem=problem)
        return found

    def _problem(self, path: str) -> str | None:
        """Why a file cannot be read as the source says; an error where its permissions forbid to find out."""
        if not os.access(path, os.R_OK):
            raise SourceUnreadable(
                f"the file {path} may not be read", hint="check its permissions, or move it out of the folder"
            )
        if self.files.format == "parquet":
            if not path.isprintable():
                return "its name is not printable UTF-8 text: rename it"
            return _parquet_problem(path, self._schema)
        if self.files.format == "csv" and self.files.header:
            return _header_problem(path, self._schema)
        return None

    def _append(self, fresh: list[FileEntry]) -> None:
        self._write(b"".join(_line(n, e) for n, e in enumerate(fresh, start=len(self.entries))))
        self.entries += fresh
        self._known.update(e.path for e in fresh)

    def _write(self, lines: bytes) -> None:
        """Add to the ledger, durably."""
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


def _load(ledger: Path) -> list[FileEntry]:
    """Read the ledger; a torn last line (it was never promised to anyone) is cut off."""
    if not ledger.exists():
        return []
    data = ledger.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        paths.truncate(ledger, len(whole))
    entries: list[FileEntry] = []
    for number, line in enumerate(whole.splitlines()):
        try:
            entry = orjson.loads(line)
            if "path" not in entry:
                entries[entry["n"]] = replace(entries[entry["n"]], problem=str(entry["problem"]))
                continue
            if entry["n"] != len(entries):
                raise ValueError(number)
            path = os.fsdecode(bytes.fromhex(entry["name"])) if "name" in entry else entry["path"]
            entries.append(FileEntry(path, entry["size"], entry["mtime"], entry.get("problem")))
        except (ValueError, KeyError, TypeError, IndexError):
            raise HomeDamaged(
                f"line {number + 1} of the ledger {ledger} cannot be read",
                hint="`millstream repair` says what can be done",
            ) from None
    return entries


def _line(n: int, entry: FileEntry) -> bytes:
    """The line of a file in the ledger. A name that is not UTF-8 is kept as hexadecimal digits, too."""
    plain = readable(os.fsencode(entry.path))
    told: dict[str, Any] = {"n": n, "path": plain, "size": entry.size, "mtime": entry.mtime}
    if plain != entry.path:
        told["name"] = os.fsencode(entry.path).hex()
    if entry.problem is not None:
        told["problem"] = entry.problem
    return orjson.dumps(told) + b"\n"


def _gone(path: str) -> SourceMissing:
    return SourceMissing(
        f"a file that was to be read is gone: {path}",
        hint="put it back: files of a source must stay until they are read",
    )


def _parquet_problem(path: str, schema: Schema) -> str | None:
    """A Parquet file says what it holds: why it is a broken one, or one whose types cannot become ours."""
    try:
        found = pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"it is not a Parquet file: {_first_line(error)}"
    for field in schema:
        index = found.get_field_index(field.name)
        if index >= 0 and not _fits(found.field(index).type, field.type):
            return f"its column `{field.name}` is {found.field(index).type}, but the source says {field.type}"
    return None


def _damage(path: str) -> str | None:
    """Why a Parquet file cannot be read to its end."""
    try:
        with pq.ParquetFile(path) as file:
            for _ in file.iter_batches():
                pass
    except FileNotFoundError:
        raise _gone(path) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"it is damaged: {_first_line(error)}"
    return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def _header_problem(path: str, schema: Schema) -> str | None:
    """A CSV file with a header says which columns it has, in order."""
    try:
        data = next((line for line in lines_of(path) if line.strip()), None)
    except (OSError, EOFError, zlib.error) as error:
        return f"it cannot be read: {_first_line(error)}"
    if data is None:
        return None
    try:
        found = next(csv.reader([readable(data[:_HEADER_BYTES])]), [])
    except csv.Error:
        found = []
    if found == list(schema.names):
        return None
    shown = ", ".join(found)[:300]
    return f"its header does not name the columns of the source: it has {shown}; the source {', '.join(schema.names)}"


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
    if pa.types.is_duration(wanted):  # as other systems write it, a number of microseconds
        return bool(pa.types.is_int64(found))
    same = any(g(found) and g(wanted) for g in groups)
    if same and pa.types.is_integer(found):
        return bool(found.bit_width <= wanted.bit_width)
    return same
