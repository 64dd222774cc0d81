"""The task that reads byte ranges of JSON lines (`json_reader.py` is Spark's side). It runs in the driver or on an
executor and needs no Spark.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np
import pyarrow as pa

from millstream.connect.forms import ByteRange
from millstream.connect.port import UNPARSABLE
from millstream.connect.text_lines import BOM, is_json_for_spark, shortened
from millstream.engine.input.readers.json_parser import BLOCK, JsonParser, ParsedLines
from millstream.engine.input.readers.json_texts import has_texts, with_exact_texts
from millstream.errors import SourceMissing
from millstream.model.types.values import readable

TASK_BYTES = 64 << 20
"""About as many bytes as one task reads."""
LEAST_BYTES = 1 << 20
"""A task for fewer bytes does not pay."""

_SYSTEM = pa.schema(
    [("$text", pa.string()), ("$wrong", pa.int32()), ("$part", pa.int32()), ("$pos", pa.int64())],
)
_DETAILS = pa.schema([("$raw", pa.string()), ("$file", pa.string()), ("$line", pa.int64())])
_BREAK = re.compile(rb"\r\n|\n|\r")
_BETWEEN_BREAKS = re.compile(rb"[^\r\n]+")


def shares(ranges: Sequence[ByteRange], tasks: int) -> list[list[ByteRange]]:
    """Ranges cut and dealt out so that all tasks read about the same number of bytes. A multiple of `tasks`, which run
    at once.
    """
    size = sum(r.end - r.start for r in ranges)
    count = max(1, min(tasks * ceil(size / (tasks * TASK_BYTES)), ceil(size / LEAST_BYTES)))
    each = ceil(size / count)
    dealt: list[list[ByteRange]] = [[]]
    room = each
    for part in ranges:
        at = part.start
        while at < part.end:
            if not room:
                dealt.append([])
                room = each
            end = min(part.end, at + room)
            dealt[-1].append(ByteRange(part.path, at, end, part.partition, part.base))
            room -= end - at
            at = end
    return dealt


@dataclass(frozen=True)
class DoubtfulLine:
    """A line that is left to Spark: its range, its first byte in the file, its text for Spark (None if it cannot be
    read), and the original line.
    """

    part: ByteRange
    at: int
    text: str | None
    raw: str


@dataclass(frozen=True)
class JsonRanges:
    """Ranges of JSON lines and what is wanted of them. A range holds the lines that begin in it."""

    columns: pa.Schema
    """The columns of the source."""
    wanted: tuple[str, ...]
    """The columns that are returned."""
    ranges: Sequence[ByteRange]
    details: bool = False
    """Whether rows carry the place and the text that error tables show."""
    by_line: bool = True
    """Whether that place is the number of the line, and not its first byte."""
    required: str | None = None
    """A column without which a line is doubtful: an event without a time is an error."""
    only_parsed: bool = False
    """Whether doubtful lines are recorded only, and rows have no columns for them."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the batches, if doubtful lines are among them: ``$text`` is such a line, in which all columns
        are NULL.
        """
        return pa.schema([*self._parsed, *_SYSTEM, *(_DETAILS if self.details else ())])

    def batches(self, record: Callable[[DoubtfulLine], None] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of all ranges, in order. `record` gets every doubtful line."""
        parser = JsonParser(self.columns, self.wanted, self.required)
        for part in self.ranges:
            try:
                for at, data in _blocks(part):
                    parsed = parser.parse(data)
                    doubtful = [d for place, line in parsed.doubtful for d in self._judged(part, at + place, line)]
                    if record is not None:
                        for line in doubtful:
                            record(line)
                    rows = (
                        self._placed(parsed, part, at) if self.only_parsed else self._rows(parsed, doubtful, part, at)
                    )
                    yield from rows.combine_chunks().to_batches()  # each batch has its cost
            except FileNotFoundError:
                raise SourceMissing(f"a file to be read is missing: {part.path}") from None

    def of_doubtful(self, doubtful: Sequence[DoubtfulLine]) -> pa.Table:
        """The rows of doubtful lines alone, by position."""
        nothing = self._parsed.empty_table()
        by_path: dict[ByteRange, list[DoubtfulLine]] = defaultdict(list)
        for line in doubtful:
            by_path[line.part].append(line)
        parsed = ParsedLines(nothing, np.zeros(0, np.int64), [])
        tables = [self._rows(parsed, lines, part, 0) for part, lines in by_path.items()]
        return pa.concat_tables([self.schema.empty_table(), *tables])

    def _placed(self, parsed: ParsedLines, part: ByteRange, at: int) -> pa.Table:
        """The parsed rows of a block that begins at a byte of its file. Texts may be views into the block."""
        columns = {name: parsed.rows[name] for name in self.wanted}
        columns["$part"] = pa.repeat(pa.scalar(part.partition, pa.int32()), len(parsed.places))
        columns["$pos"] = pa.array(part.base + at + parsed.places, pa.int64())
        return pa.table(columns)

    def _rows(self, parsed: ParsedLines, doubtful: Sequence[DoubtfulLine], part: ByteRange, at: int) -> pa.Table:
        """The rows of a block that begins at a byte of its file, in order."""
        rows, places = parsed.rows.cast(self._parsed), at + parsed.places
        columns = {name: rows[name] for name in self.wanted}
        columns["$text"] = columns["$raw"] = pa.nulls(len(places), pa.string())
        columns["$wrong"] = pa.repeat(pa.scalar(0, pa.int32()), len(places))
        if doubtful:
            places = np.concatenate((places, np.array([d.at for d in doubtful], np.int64)))
            order = np.argsort(places, kind="stable")
            places = places[order]
            more = {"$text": [d.text for d in doubtful], "$raw": [d.raw for d in doubtful]}
            wrong = {"$wrong": [0 if d.text is not None else UNPARSABLE for d in doubtful]}
            for name, column in columns.items():
                added = pa.array((more | wrong).get(name, [None] * len(doubtful)), column.type)
                parts = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
                columns[name] = pa.chunked_array([*parts, added], column.type).take(pa.array(order))
        columns["$part"] = pa.repeat(pa.scalar(part.partition, pa.int32()), len(places))
        columns["$pos"] = pa.array(part.base + places, pa.int64())
        if self.details:
            columns["$file"] = pa.repeat(readable(os.fsencode(part.path)), len(places))
            columns["$line"] = pa.array(line_numbers(part.path, places) if self.by_line else places, pa.int64())
        return pa.table([columns[f.name] for f in self.schema], schema=self.schema)

    @cached_property
    def _parsed(self) -> pa.Schema:
        return pa.schema([self.columns.field(n) for n in self.wanted])

    def _judged(self, part: ByteRange, at: int, line: bytes) -> Iterator[DoubtfulLine]:
        """A doubtful line, or several if carriage returns separate them."""
        if at == 0 and line.startswith(BOM):
            at, line = len(BOM), line[len(BOM) :]
        for found in _BETWEEN_BREAKS.finditer(line):
            if not found[0].strip():
                continue
            text = found[0].decode() if is_json_for_spark(found[0]) else None
            if text is not None and self._has_texts:
                text = with_exact_texts(text, self.columns)
            yield DoubtfulLine(part, at + found.start(), text, shortened(found[0]))

    @cached_property
    def _has_texts(self) -> bool:
        return any(has_texts(field.type) for field in self.columns)


def _breaks(data: bytes) -> np.ndarray:
    """Where lines end."""
    if b"\r" in data:
        return np.fromiter((m.start() for m in _BREAK.finditer(data)), np.int64)
    return np.flatnonzero(np.frombuffer(data, np.uint8) == b"\n"[0])


def line_numbers(path: str, places: np.ndarray) -> np.ndarray:
    """The numbers of the lines that begin at some places of a file, from 0."""
    numbers = np.zeros(len(places), np.int64)
    last = int(places.max()) if len(places) else 0
    before, at = 0, 0
    with open(path, "rb") as file:
        while at <= last and (data := file.read(BLOCK)):
            if data.endswith(b"\r"):  # the line feed may be next
                data += file.read(1)
            breaks = _breaks(data)
            here = (places >= at) & (places < at + len(data))
            numbers[here] = before + np.searchsorted(breaks, places[here] - at)
            before, at = before + len(breaks), at + len(data)
    return numbers


def _blocks(part: ByteRange) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a range, in blocks, with the first byte of each."""
    with open(part.path, "rb") as file:
        at = part.start
        if at:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < part.end and (data := file.read(min(BLOCK, part.end - at))):
            if not data.endswith(b"\n"):
                data += file.readline()
            yield at, data
            at += len(data)
