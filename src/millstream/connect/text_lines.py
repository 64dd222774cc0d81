"""Reads text files line by line where Spark's own readers would lose data.

Spark's JSON reader drops what follows an object on its line, turns an array into several rows and half a surrogate pair
into a question mark; its CSV reader replaces what is not UTF-8 and guesses where an open quote ends. Both skip empty
lines, so that they cannot report the line of a record. A file in which none of this can happen is **plain**, and Spark
reads it. `is_plain` decides by counting bytes, which is cheap compared to parsing. All other files are split and
checked here; Spark then only converts lines that are known to be complete.
"""

from __future__ import annotations

import bz2
import gzip
import re
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import IO, cast

import orjson
import pyarrow as pa

from millstream.connect.port import DAMAGED, UNPARSABLE
from millstream.model.types.values import readable

LINES = pa.schema([("$text", pa.string()), ("$line", pa.int64()), ("$wrong", pa.int32()), ("$raw", pa.string())])
"""A line: its text and number from 0, or what is wrong with it and its bytes."""

MOST_RAW = 1 << 20
"""Bytes of a bad line that are kept."""

_CHUNK = 1 << 24
_BATCH_LINES, _BATCH_BYTES = 50_000, 1 << 25
BOM = b"\xef\xbb\xbf"
_BREAK = re.compile(rb"\r\n|\n|\r")
_EMPTY_LINE = re.compile(rb"(?:^|\n)[ \t\r]*\n")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_OVERLONG = re.compile(rb"[\xc0\xc1]")
_SPECIAL = re.compile(r"[*?\[\]{}\\]")
"""Characters that Spark takes for a pattern in the name of a file."""
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")
_PACKED = {".gz": gzip.open, ".bz2": bz2.open}


def is_uncompressed(path: str) -> bool:
    """Whether the bytes of a file are its text."""
    return not path.endswith((*_PACKED, *_COMPRESSED))


def is_json_for_spark(line: bytes) -> bool:
    """Whether Spark's parser may decide about a line of JSON: nothing follows an object, and no character is lost."""
    return is_text(line) and (_plain_json(line + b"\n") or not _wrong_json(line))


@lru_cache(maxsize=10_000)
def is_plain(path: str, form: str, size: int) -> bool:
    """Whether Spark's reader of a format reads this file without losing or changing anything. A file of another size is
    another file.
    """
    del size
    if path.endswith(tuple(_PACKED)) or _SPECIAL.search(path) or not path.isprintable():
        return False
    if path.endswith(_COMPRESSED):
        return True  # only Spark can open it
    plain = _plain_json if form == "json" else _plain_csv
    with open(path, "rb") as file:
        rest = b""
        first = True
        while chunk := file.read(_CHUNK):
            data = rest + chunk
            end = data.rfind(b"\n") + 1
            whole, rest = data[:end], data[end:]
            if (first and data.startswith(BOM)) or not plain(whole):
                return False
            if len(rest) > 4 * _CHUNK:
                return False  # a line of more than 64 MiB
            first = False
        return plain(rest + b"\n") if rest else True


def _plain_json(data: bytes) -> bool:
    """Whether each line has one closing brace, at its end: then nothing can follow an object."""
    lines = data.count(b"\n")
    returns = data.count(b"\r")
    ended = data.count(b"}\n") + (data.count(b"}\r\n") if returns else 0)
    return (
        data.count(b"}") == lines == ended
        and (not returns or returns == data.count(b"\r\n"))
        and not _SURROGATE.search(data)
        and not _OVERLONG.search(data)
    )


def _plain_csv(data: bytes) -> bool:
    """Whether there are no quotes, empty lines, NUL characters or bytes that are not UTF-8."""
    if any(mark in data for mark in (b'"', b"\x00")) or _EMPTY_LINE.search(data):
        return False
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        return False
    return data.isascii() or is_text(data)


def lines(path: str, form: str, *, header: bool) -> Iterator[pa.RecordBatch]:
    """The lines of a file in batches of LINES. Empty lines and the header of a CSV file are skipped, but counted. A
    compressed file that cannot be read to its end yields what could be read, and one line that reports the damage.
    """
    batch = _Batch()
    check = _wrong_json if form == "json" else _wrong_csv
    skip = header and form == "csv"
    number = -1
    try:
        for number, line in enumerate(lines_of(path)):
            if not line.strip():
                continue
            if skip:
                skip = False
                continue
            batch.add(number, line, check(line))
            if batch.full:
                yield batch.record_batch()
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        batch.failed(number + 1, f"the file cannot be read to its end: {str(error) or type(error).__name__}")
    if len(batch):
        yield batch.record_batch()


def range_lines(path: str, form: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The lines of a range of a file, which begins and ends with whole lines, in batches of LINES. The number of a line
    is its first byte.
    """
    batch = _Batch()
    check = _wrong_json if form == "json" else _wrong_csv
    with open(path, "rb") as file:
        file.seek(start)
        at = start
        while at < end and (line := file.readline(end - at)):
            text = line.rstrip(b"\r\n")
            if text.strip():
                batch.add(at, text, check(text))
            at += len(line)
            if batch.full:
                yield batch.record_batch()
    if len(batch):
        yield batch.record_batch()


class _Batch:
    def __init__(self) -> None:
        self._rows: list[tuple[str | None, int, int, str | None]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def full(self) -> bool:
        return len(self._rows) >= _BATCH_LINES or self._bytes >= _BATCH_BYTES

    def add(self, number: int, line: bytes, wrong: bool) -> None:
        if wrong:
            self._rows.append((None, number, UNPARSABLE, shortened(line)))
        else:
            self._rows.append((line.decode(), number, 0, None))
        self._bytes += len(line)

    def failed(self, number: int, why: str) -> None:
        self._rows.append((None, number, DAMAGED, why))

    def record_batch(self) -> pa.RecordBatch:
        columns = list(zip(*self._rows, strict=True))
        self._rows, self._bytes = [], 0
        return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, LINES, strict=True)], schema=LINES)


def shortened(line: bytes) -> str:
    """The bytes of a bad line as text; a very long one is truncated."""
    if len(line) <= MOST_RAW:
        return readable(line)
    return f"{readable(line[:MOST_RAW])} ... ({len(line):,} bytes)"


def lines_of(path: str) -> Iterator[bytes]:
    """The lines of a file: they end with a line feed, a carriage return, or both."""
    opener = next((o for ending, o in _PACKED.items() if path.endswith(ending)), open)
    with cast(IO[bytes], opener(path, "rb")) as file:  # type: ignore[operator]
        rest, first = b"", True
        while chunk := file.read(_CHUNK):
            data = rest + chunk
            if first and data.startswith(BOM):
                data = data[len(BOM) :]
            first = False
            if b"\r" not in data:
                *whole, rest = data.split(b"\n")
            elif data.endswith(b"\r"):  # the line feed may be in the next chunk
                *whole, rest = _BREAK.split(data[:-1])
                rest += b"\r"
            else:
                *whole, rest = _BREAK.split(data)
            yield from whole
        if rest:
            yield from (part for part in _BREAK.split(rest.removesuffix(b"\r")))


def _wrong_json(line: bytes) -> bool:
    try:
        return not isinstance(orjson.loads(line), dict)
    except ValueError:
        return True


def _wrong_csv(line: bytes) -> bool:
    """Whether a line is not text, or has an unclosed quote. A quote inside quotes is doubled."""
    return b"\x00" in line or line.count(b'"') % 2 == 1 or not is_text(line)


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
