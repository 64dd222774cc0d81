"""Parses JSON lines with Arrow, several times as fast as Spark, and leaves doubtful lines to Spark. Lines with the same
keys in the same order are decoded by position (`json_places.py`).

Arrow refuses what Spark could read differently, except for a few cases that are easy to recognise: text that is not
UTF-8, several objects on a line, some spellings of infinity, numbers and nesting beyond Spark's limits. All of these
lines are **doubtful**: their text goes to Spark, whose parser decides (`json_reader.py`). Every line is judged on its
own, so it does not matter how a file is divided into blocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millstream.connect.text_lines import is_text
from millstream.engine.input.readers.json_places import copied, decoded
from millstream.engine.input.readers.json_times import converted

BLOCK = 2 << 20
"""Bytes of a block."""
_PIECE, _SMALL_PIECE = 1 << 18, 1 << 15
"""Bytes that Arrow parses at once, and after it refused a line: a further one in the block costs no more than these."""
_FEW_REFUSALS, _MOST_REFUSALS = 16, 0.005
"""A number and a share of lines that Arrow may refuse in a block. Each costs as much as some hundred lines cost Spark
alone, to which the rest is left then.
"""
_LONGEST = 50_000
"""Bytes of a line that Arrow may judge: Spark limits the length of names."""
_CAREFUL = 1_000
"""Bytes of a line from which on Spark's limits to numbers and nesting can matter."""

_NEWLINE, _RETURN, _OPEN, _CLOSE = b"\n\r{}"
_INFINITE = re.compile(rb"Inf(?!inity)")
"""A spelling that Arrow accepts and Spark does not."""
_DEEPEST = 900
_LONG_NUMBER = re.compile(rb"[0-9.eE+-]{900}")
_NEGATIVE_ZERO = re.compile(rb"[:\[, \t]-0")
"""May be the integer -0, which is 0.0 for Spark and -0.0 for Arrow."""
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_SEVERAL = re.compile(rb"\}[ \t]*\{")
_MOST_DIGITS = 38
"""Digits of a decimal number; Arrow refuses more."""
_ROW = re.compile(r" in row (\d+)$")
_TOKEN = re.compile(r"couldn't parse:(.*)$", re.DOTALL)


@dataclass(frozen=True)
class ParsedLines:
    """The lines of a block: rows with the place of their first byte in the block, and doubtful lines with theirs."""

    rows: pa.Table
    places: np.ndarray
    doubtful: list[tuple[int, bytes]]


def is_native(kind: pa.DataType | None) -> bool:
    """Whether Arrow reads values of a type as Spark does, or refuses them."""
    return kind is not None and (_is_time(kind) or pa.types.is_decimal128(kind) or _is_plain(kind))


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _is_plain(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_plain(field.type) for field in kind)
    kinds = (pa.types.is_signed_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
    return any(check(kind) for check in kinds)


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


class JsonParser:
    """Parses blocks of whole lines into the columns of a schema, all of whose types are native. It checks all columns
    and returns those that are wanted. A line without a value in a `required` column is doubtful.
    """

    def __init__(self, schema: pa.Schema, wanted: Sequence[str], required: str | None = None) -> None:
        self._schema = schema
        self._required = required
        self._wanted = list(wanted)
        self._read = pa.schema([pa.field(f.name, pa.string() if _is_time(f.type) else f.type) for f in schema])
        self._kinds = {field.name: field.type for field in self._read}
        self._with_floats = [field.name for field in schema if _has_floats(field.type)]
        self._options = pj.ParseOptions(explicit_schema=self._read, unexpected_field_behavior="ignore")

    def parse(self, data: bytes) -> ParsedLines:
        """The lines of a block. Lines without characters are skipped."""
        lines = _lines(data)
        clear = _is_clear(data, lines)
        rest, doubtful = lines[clear], [lines[~clear]]
        by_place, columns = decoded(data, rest, self._kinds)
        placed, rest = rest[by_place], rest[~by_place]
        rows, parsed = self._parsed(data, rest, doubtful, whole=len(rest) == len(lines))
        if len(placed):
            nulls = {f.name: pa.nulls(len(placed), f.type) for f in self._read if f.name not in columns}
            rows, parsed = _merged(rows, parsed, pa.table({**columns, **nulls}), placed)
        return self._typed(data, rows, parsed, doubtful)

    def _parsed(
        self, data: bytes, lines: np.ndarray, doubtful: list[np.ndarray], *, whole: bool
    ) -> tuple[pa.Table, np.ndarray]:
        """The rows that Arrow parses, and their lines. Those that it refuses are added to the doubtful ones. `whole`:
        the block has no other lines.
        """
        text: bytes | bytearray
        text, rest = (data, _numbered(lines)) if whole else _apart(data, lines)
        longest = 2 * int((lines[:, 1] - lines[:, 0]).max(initial=0))
        size = max(_PIECE, longest)
        batches, parsed, refusals = [], [rest[:0]], 0
        while len(rest):
            found, error = self._attempt(text, rest, size)
            count = sum(batch.num_rows for batch in found)
            batches += found
            parsed.append(rest[:count])
            rest = rest[count:]
            if error is None:
                break
            wrong = self._refused(error, text, rest, size)
            size = max(_SMALL_PIECE, longest)
            doubtful.append(lines[rest[wrong, 2]])
            text = _blanked(text, rest[wrong])
            rest = np.delete(rest, wrong, axis=0)
            refusals += 1
            if refusals > _FEW_REFUSALS + _MOST_REFUSALS * len(lines):
                doubtful.append(lines[rest[:, 2]])
                break
        return pa.Table.from_batches(batches, self._read), lines[np.concatenate(parsed)[:, 2]]

    def _attempt(
        self, text: bytes | bytearray, lines: np.ndarray, size: int
    ) -> tuple[list[pa.RecordBatch], str | None]:
        """The rows of lines in batches of `size` bytes, up to the first batch that Arrow refuses, and why it does."""
        found: list[pa.RecordBatch] = []
        part = pa.py_buffer(memoryview(text)[lines[0, 0] : lines[-1, 1]])
        try:
            options = pj.ReadOptions(use_threads=False, block_size=size)
            found.extend(pj.open_json(pa.BufferReader(part), options, self._options))
        except pa.ArrowInvalid as error:
            return found, str(error)
        return found, None

    def _refused(self, error: str, text: bytes | bytearray, lines: np.ndarray, size: int) -> np.ndarray:
        """The numbers of lines that made Arrow refuse the first batch of lines, or may have."""
        batch = lines[: max(1, int(np.searchsorted(lines[:, 1], lines[0, 0] + size, side="right")))]
        row, token = _ROW.search(error), _TOKEN.search(error)
        if row is not None and int(row[1]) < len(batch):
            return np.array([int(row[1])])
        found = np.arange(0) if token is None else _matching(re.compile(re.escape(token[1].encode())), text, batch)
        if len(found):
            return found
        first, last = 0, len(batch)
        while last - first > 1:
            middle = (first + last) // 2
            if self._attempt(text, batch[first:middle], size)[1] is None:
                first = middle
            else:
                last = middle
        return np.array([first])

    def _typed(self, data: bytes, rows: pa.Table, lines: np.ndarray, doubts: list[np.ndarray]) -> ParsedLines:
        """Rows with their times converted. Lines with values that must be left to Spark are doubtful too."""
        assert rows.num_rows == len(lines), "a line is one row"
        known = np.ones(len(lines), dtype=bool)
        columns = {name: rows[name] for name in rows.column_names}
        for field in self._schema:
            if _is_time(field.type):
                texts = rows[field.name].cast(pa.string()).combine_chunks()
                columns[field.name] = converted(texts, field.type)
                if columns[field.name].null_count != texts.null_count:
                    known &= _mask(columns[field.name].is_valid()) | _mask(texts.is_null())
            elif pa.types.is_decimal128(field.type):
                known &= _fits(columns[field.name])
        if self._required is not None and columns[self._required].null_count:
            known &= _mask(columns[self._required].is_valid())
        if any(_has_negative_zero(chunk) for name in self._with_floats for chunk in rows[name].chunks):
            known[_matching(_NEGATIVE_ZERO, data, lines)] = False
        rows = pa.table({name: columns[name] for name in self._wanted})
        if not known.all():
            doubts.append(lines[~known])
            rows, lines = copied(rows).filter(pa.array(known)), lines[known]
        doubtful = [(int(start), data[start:end]) for part in doubts for start, end in part]
        return ParsedLines(rows, lines[:, 0], sorted(doubtful))


def _merged(rows: pa.Table, lines: np.ndarray, placed: pa.Table, places: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """The rows that Arrow parsed and those that were decoded by place, with their lines, in order."""
    if not rows.num_rows:
        return placed.select(rows.column_names), places
    whole = pa.concat_tables([copied(placed.select(rows.column_names)), rows])
    all_lines = np.concatenate((places, lines))
    order = np.argsort(all_lines[:, 0], kind="stable")
    return whole.take(pa.array(order)), all_lines[order]


def _mask(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return np.asarray(whole.to_numpy(zero_copy_only=False))


def _lines(data: bytes) -> np.ndarray:
    """The first byte of each line, and the byte after its last one."""
    characters = np.frombuffer(data, np.uint8)
    breaks = np.flatnonzero(characters == _NEWLINE)
    if data and not data.endswith(b"\n"):
        breaks = np.append(breaks, len(data))
    starts = np.concatenate(([0], breaks[:-1] + 1)) if len(breaks) else breaks
    ends = breaks
    if b"\r" in data:
        ends = breaks - ((breaks > starts) & (characters[breaks - 1] == _RETURN))
    return np.stack((starts, ends), axis=1)[ends > starts]


def _is_clear(data: bytes, lines: np.ndarray) -> np.ndarray:
    """Whether Arrow may judge a line."""
    if not len(lines):
        return np.zeros(0, dtype=bool)
    characters = np.frombuffer(data, np.uint8)
    starts, ends = lines[:, 0], lines[:, 1]
    length = ends - starts
    clear = (characters[starts] == _OPEN) & (characters[ends - 1] == _CLOSE) & (length <= _LONGEST)
    if np.count_nonzero(characters == _CLOSE) != len(lines):
        clear[_matching(_SEVERAL, data, lines)] = False
    if b"I" in data and b"Inf" in data:  # the first is found much faster
        clear[_matching(_INFINITE, data, lines)] = False
    if b"\r" in data:
        clear[_matching(_LONE_RETURN, data, lines)] = False
    if not data.isascii() and not is_text(data):
        clear &= np.fromiter((is_text(data[s:e]) for s, e in lines), bool, len(lines))
    for i in np.flatnonzero(clear & (length > _CAREFUL)):
        line = data[starts[i] : ends[i]]
        clear[i] = line.count(b"{") + line.count(b"[") < _DEEPEST and not _LONG_NUMBER.search(line)
    return np.asarray(clear)


def _fits(decimals: pa.ChunkedArray) -> np.ndarray:
    """Whether decimal numbers have no more digits than their type: Arrow's parser does not check it."""
    kind = decimals.type
    if kind.precision == _MOST_DIGITS:
        return np.ones(len(decimals), dtype=bool)
    bound = pa.scalar(Decimal(10) ** (kind.precision - kind.scale), pa.decimal128(kind.precision + 1, kind.scale))
    return _mask(pc.fill_null(pc.less(pc.abs(decimals), bound), fill_value=True))


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_floats(field.type) for field in kind)
    return _has_floats(kind.value_type) if pa.types.is_list(kind) else bool(pa.types.is_floating(kind))


def _has_negative_zero(values: pa.Array) -> bool:
    if pa.types.is_struct(values.type):
        return any(_has_negative_zero(part) for part in values.flatten())
    if pa.types.is_list(values.type):
        return _has_negative_zero(values.flatten())
    if not pa.types.is_floating(values.type):
        return False
    numbers = values.fill_null(1.0).to_numpy(zero_copy_only=False)
    return bool(((numbers == 0) & np.signbit(numbers)).any())


def _numbered(lines: np.ndarray) -> np.ndarray:
    """Lines with their numbers in a third column."""
    return np.column_stack((lines, np.arange(len(lines))))


def _apart(data: bytes, lines: np.ndarray) -> tuple[bytes, np.ndarray]:
    """A text of some lines alone, and their places in it, with their numbers."""
    text = b"\n".join(data[start:end] for start, end in lines)
    lengths = lines[:, 1] - lines[:, 0]
    starts = np.cumsum(lengths + 1) - lengths - 1
    return text, _numbered(np.column_stack((starts, starts + lengths)))


def _blanked(text: bytes | bytearray, lines: np.ndarray) -> bytearray:
    """A text with blanks in place of some lines."""
    blanked = text if isinstance(text, bytearray) else bytearray(text)
    for start, end, _ in lines:
        blanked[start:end] = b" " * (end - start)
    return blanked


def _matching(pattern: re.Pattern[bytes], data: bytes | bytearray, lines: np.ndarray) -> np.ndarray:
    """The numbers of the lines that contain a match."""
    first, last = int(lines[0, 0]), int(lines[-1, 1])
    places = np.fromiter((m.start() for m in pattern.finditer(data, first, last)), np.int64)
    found = np.searchsorted(lines[:, 0], places, side="right") - 1
    return np.unique(found[places < lines[found, 1]])
