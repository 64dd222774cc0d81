"""Directories of files as a source. Offset i is the i-th discovered file; a ledger keeps the order of discovery.

A file is read once: a path in the ledger (`connect/files/ledger.py`) is never read again, whatever happens to it
afterwards. A file that does not match the declaration of the source (not Parquet, other columns) has a ``problem``: it
is one error of its source, and its rows are not read.
"""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from millstream.clock import Micros
from millstream.connect.files import ledger as ledgers
from millstream.connect.files.ledger import FileEntry
from millstream.connect.files.problems import gone, header_problem, parquet_damage, parquet_problem
from millstream.connect.forms import FilePart, FileSet, Form
from millstream.connect.port import Offsets, SourceBase, SourceFacts, SourceSlice
from millstream.connect.registry import Offline, SourceContext
from millstream.errors import SourceMissing, SourceUnreadable
from millstream.model.connectors import Files
from millstream.model.types.schema import Schema

BYTES_PER_EPOCH = 256 * 2**20
_ROW_BYTES = {"json": 100, "csv": 60, "parquet": 12}


class FileSource(SourceBase):
    """The files of a directory, in the order of discovery."""

    def __init__(self, files: Files, schema: Schema, ledger: Path) -> None:
        self.files = files
        self._schema = schema
        self._ledger = ledger
        self.entries: list[FileEntry] = ledgers.load(ledger)
        self._known = {e.path for e in self.entries}
        self._closed = False
        self._discovering = threading.Lock()
        if not self.entries and not self._candidates():
            self._check_place()

    def head(self, now: Micros) -> Offsets:
        """Discover new files and write them to the ledger."""
        del now
        with self._discovering:
            self._discover()
            return {0: len(self.entries)}

    def _discover(self) -> None:
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
            lines = [ledgers.file_line(n, e) for n, e in enumerate(fresh, start=len(self.entries))]
            ledgers.append(self._ledger, lines)
            self.entries += fresh
            self._known.update(e.path for e in fresh)
        if self.files.bounded:
            self._closed = True

    def admit(self, start: Offsets, head: Offsets, limit: int | None) -> SourceSlice:
        """Whole files, up to the bytes (or estimated rows) of one epoch; at least one file."""
        first, end, size = start.get(0, 0), start.get(0, 0), 0
        budget = BYTES_PER_EPOCH if limit is None else limit * _ROW_BYTES[self.files.format]
        while end < head[0] and (end == first or size + self.entries[end].size <= budget):
            size += self.entries[end].size
            end += 1
        return SourceSlice({0: (first, end)})

    def rows(self, part: SourceSlice) -> int:
        """Estimated from the bytes."""
        return sum(e.size for e in self.entries[slice(*part.ranges.get(0, (0, 0)))]) // _ROW_BYTES[self.files.format]

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        """The files of a slice."""
        start, end = part.ranges.get(0, (0, 0))
        parts = [FilePart(n, e.path, e.size, e.problem) for n, e in enumerate(self.entries[start:end], start=start)]
        missing = next((p.path for p in parts if p.problem is None and not os.path.exists(p.path)), None)
        if missing is not None:
            raise gone(missing)
        return [FileSet(self.files.format, tuple(parts), self.files.header)] if parts else []

    def start(self) -> Offsets | None:
        """The ledger keeps the names of all files."""
        return {0: 0}

    def end(self) -> Offsets | None:
        """The discovered files."""
        return {0: len(self.entries)}

    def pending(self, at: Offsets, now: Micros) -> int | None:
        """None while files are pending: the number of their records is unknown."""
        return 0 if len(self.entries) <= at.get(0, 0) else None

    def describe(self) -> SourceFacts:
        """An offset is a file."""
        return SourceFacts("files")

    def finished(self, start: Offsets) -> bool:
        """A bounded directory ends with the files that existed at the start."""
        return self.files.bounded and self._closed and start.get(0, 0) >= len(self.entries)

    def _candidates(self) -> list[str]:
        path = self.files.path
        if os.path.isdir(path):
            try:
                candidates = [e.path for e in os.scandir(path) if e.is_file()]
            except PermissionError:
                raise SourceUnreadable(f"the folder {path} may not be read", hint="check its permissions") from None
        elif os.path.isfile(path):
            candidates = [path]
        else:
            candidates = [p for p in glob.glob(path) if os.path.isfile(p)]
        return sorted(os.path.abspath(p) for p in candidates if not os.path.basename(p).startswith((".", "_")))

    def _check_place(self) -> None:
        path = self.files.path
        if not os.path.exists(path) and not glob.has_magic(path):
            raise SourceMissing(
                f"there is no folder or file {path}",
                detail=f"looked from {os.getcwd()}",
                hint="create the folder first (it may be empty), or correct the path in ms.files(...)",
            )

    def examine(self, part: SourceSlice) -> bool:
        """Read the Parquet files of a slice to their ends, and record which cannot be read."""
        start, end = part.ranges.get(0, (0, 0))
        damaged = False
        for n in range(start, end) if self.files.format == "parquet" else ():
            entry = self.entries[n]
            problem = None if entry.problem is not None else parquet_damage(entry.path)
            if problem is not None:
                damaged = True
                with self._discovering:
                    ledgers.append(self._ledger, [ledgers.problem_line(n, problem)])
                    self.entries[n] = replace(entry, problem=problem)
        return damaged

    def _problem(self, path: str) -> str | None:
        """Return why a file cannot be read as declared; raises if its permissions prevent the check."""
        if not os.access(path, os.R_OK):
            raise SourceUnreadable(
                f"the file {path} may not be read", hint="check its permissions, or move it out of the folder"
            )
        if self.files.format == "parquet":
            if not path.isprintable():
                return "its name is not printable UTF-8 text: rename it"
            return parquet_problem(path, self._schema)
        if self.files.format == "csv" and self.files.header:
            return header_problem(path, self._schema)
        return None


class FollowedFiles(FileSource):
    """The files of a directory as another process has discovered them: its ledger is read and never written."""

    def __init__(self, files: Files, ledger: Path) -> None:
        self.files = files
        self.entries = []
        self._ledger = ledger
        self._read = 0
        self._closed = False
        self._discovering = threading.Lock()

    def _discover(self) -> None:
        """Read what was added to the ledger; an incomplete line is left for the next time."""
        if not self._ledger.exists():
            return
        with self._ledger.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            ledgers.read_line(self.entries, line)

    def examine(self, part: SourceSlice) -> bool:
        """Do nothing: the owner records damage."""
        return False


class FilesOffline:
    """What a repair can determine about a directory of files without the flow: its
    ledger, and whether the files exist.
    """

    def problems(self, place: Offline, at: Mapping[str, int]) -> Iterator[str]:
        """A ledger that cannot be read, or has fewer files than were read."""
        ledger = _ledger(place.root, place.source)
        entries = ledgers.looked_at(ledger)
        if entries is None:
            yield f"the ledger {ledger} cannot be read"
        elif len(entries) < at.get("0", 0):
            yield f"the ledger {ledger} has {len(entries)} files, but {at['0']} were read"

    def cannot_begin(self, place: Offline) -> str | None:
        """A file that no longer exists."""
        entries = ledgers.looked_at(_ledger(place.root, place.source)) or ()
        missing = next((e.path for e in entries if not os.path.exists(e.path)), None)
        return None if missing is None else f"the file {missing} of `{place.source}` is gone"


def has_ledger(root: Path, source: str) -> bool:
    """Whether a flow whose files are under `root` has read a directory of files under this name."""
    return _ledger(root, source).exists()


def open_files(context: SourceContext) -> FileSource:
    """Open a directory of files as a source."""
    assert isinstance(context.connector, Files)
    return FileSource(context.connector, context.schema, _ledger(context.root, context.name))


def follow_files(context: SourceContext) -> FileSource:
    """Open the same source next to the process that owns it."""
    assert isinstance(context.connector, Files)
    return FollowedFiles(context.connector, _ledger(context.root, context.name))


def _ledger(root: Path, source: str) -> Path:
    return root / "sources" / f"{source}.jsonl"
