"""Decodes JSON lines that all have the same keys in the same order, by position, with numpy: no parser runs.

Machines write such lines: ``{"id":17,"name":"x","at":"2026-01-01T00:00:00Z"}``, without blanks, escapes or nested
values. The quotation marks of a block give the position of every key and value. Each line is checked byte by byte as
far as a parser would: its keys, the characters between values, the digits of numbers. A line that differs in any way is
left to Arrow (`json_parser.py`), and so is a line with a NULL, a fraction or a truth value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

_QUOTE, _COMMA, _OPEN, _CLOSE, _MINUS, _ZERO, _NEWLINE = b'",{}-0\n'
_PAD = bytes(32)
"""Bytes before and after a block, so that words may be read around every value."""
_BEFORE = 16
_KEY = re.compile(rb'[{,]"([^"\\]+)":(?:("[^"\\]*")|-?[0-9]+)(?=[,}])')
_MOST_DIGITS = 16
_BLANK = 0x20


@dataclass(frozen=True)
class _Key:
    name: bytes
    is_text: bool


def decoded(data: bytes, lines: np.ndarray, types: Mapping[str, pa.DataType]) -> tuple[np.ndarray, dict[str, pa.Array]]:
    """Which of the lines were decoded, and the columns of those, in order: BIGINT, INT and STRING values. A column that
    the lines do not have is missing.
    """
    nothing = np.zeros(len(lines), bool)
    keys = _keys(data, lines, types)
    if keys is None or b"\\" in data or _has_controls(data):
        return nothing, {}
    return _Block(data, lines, keys).columns(types)


def copied(rows: pa.Table) -> pa.Table:
    """Rows with texts of their own in place of views into a block: Arrow cannot take or filter views."""
    kinds = [pa.field(f.name, pa.string() if f.type == pa.string_view() else f.type) for f in rows.schema]
    return rows.cast(pa.schema(kinds))


def _has_controls(data: bytes) -> bool:
    characters = np.frombuffer(data, np.uint8)
    return np.count_nonzero(characters < _BLANK) != np.count_nonzero(characters == _NEWLINE)


def _keys(data: bytes, lines: np.ndarray, types: Mapping[str, pa.DataType]) -> list[_Key] | None:
    """The keys of the first line; None if it has other values than whole numbers and texts of the types."""
    if not len(lines):
        return None
    line = data[lines[0, 0] : lines[0, 1]]
    found = list(_KEY.finditer(line))
    if not found or sum(len(m[0]) for m in found) != len(line) - 1:
        return None
    keys = [_Key(m[1], m[2] is not None) for m in found]
    if len({k.name for k in keys}) < len(keys):
        return None
    for key in keys:
        kind = types.get(key.name.decode(errors="replace"))
        wanted = pa.types.is_string if key.is_text else pa.types.is_signed_integer
        if kind is not None and not wanted(kind):
            return None
    return keys


class _Block:
    """A block of lines and the places of the quotation marks in it."""

    def __init__(self, data: bytes, lines: np.ndarray, keys: list[_Key]) -> None:
        self._keys = keys
        self._text = _PAD[:_BEFORE] + data + _PAD
        self._characters = np.frombuffer(self._text, np.uint8)
        self._words = np.ndarray((len(self._text) - 7,), "<u8", self._text, strides=(1,))
        starts, ends = lines[:, 0] + _BEFORE, lines[:, 1] + _BEFORE
        quotes = np.flatnonzero(self._characters == _QUOTE)
        each = sum(4 if k.is_text else 2 for k in keys)
        first = np.searchsorted(quotes, starts)
        good = np.searchsorted(quotes, ends) - first == each
        if good.all() and len(quotes) == each * len(lines):
            places = quotes.reshape(len(lines), each)
        else:
            places = quotes[first[good][:, None] + np.arange(each)]
        self._good = good
        self._places = np.ascontiguousarray(places.T)
        self._starts, self._ends = starts[good], ends[good]

    def columns(self, types: Mapping[str, pa.DataType]) -> tuple[np.ndarray, dict[str, pa.Array]]:
        """Which lines were decoded, and their columns."""
        characters, places = self._characters, self._places
        right = (places[0] == self._starts + 1) & (characters[self._starts] == _OPEN)
        found: dict[str, pa.Array | tuple[np.ndarray, np.ndarray]] = {}
        at = 0
        for number, key in enumerate(self._keys):
            opened, closed = places[at], places[at + 1]
            at += 2
            right &= closed - opened == len(key.name) + 1
            right &= self._is(key.name + b'":', opened + 1)
            begin = closed + 2
            if key.is_text:
                right &= places[at] == begin
                begin, end = begin + 1, places[at + 1]
                after = end + 1
                at += 2
            else:
                end = after = places[at] - 1 if number + 1 < len(self._keys) else self._ends - 1
            last = number + 1 == len(self._keys)
            right &= characters[after] == (_CLOSE if last else _COMMA)
            right &= (after + 1 == self._ends) if last else (places[at] == after + 1)
            name = key.name.decode()
            if key.is_text:
                found[name] = (begin, end)
            else:
                numbers, digits = self._numbers(begin, end)
                right &= digits
                kind = types.get(name)
                if kind is not None:
                    if kind.bit_width < 64:
                        right &= np.abs(numbers) < 1 << (kind.bit_width - 1)
                    found[name] = numbers
        whole = bool(right.all())
        columns = {}
        for name, values in found.items():
            if name not in types:
                continue
            if isinstance(values, tuple):
                begin, end = values if whole else (values[0][right], values[1][right])
                columns[name] = self._texts(begin, end)
            else:
                columns[name] = pa.array(values if whole else values[right]).cast(types[name])
        decoded = self._good
        if not whole:
            decoded = decoded.copy()
            decoded[np.flatnonzero(self._good)[~right]] = False
        return decoded, columns

    def _is(self, text: bytes, places: np.ndarray) -> np.ndarray:
        """Whether a text is at each of some positions."""
        same = np.ones(len(places), bool)
        for at in range(0, len(text), 8):
            part = text[at : at + 8]
            word = np.uint64(int.from_bytes(part, "little"))
            mask = np.uint64((1 << (8 * len(part))) - 1)
            same &= (self._words[places + at] & mask) == word
        return same

    def _numbers(self, begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whole numbers, and whether each is one in the only spelling that JSON allows."""
        first = self._characters[begin]
        negative = first == _MINUS
        some = bool(negative.any())
        start = begin + negative if some else begin
        length = end - start
        right = (length > 0) & (length <= _MOST_DIGITS)
        lead = self._characters[start] if some else first
        right &= (lead != _ZERO) | ((length == 1) & ~negative)
        numbers, digits = self._eight(end, np.minimum(length, 8))
        right &= digits
        if int(length.max(initial=0)) > 8:
            high, more = self._eight(end - 8, np.clip(length - 8, 0, 8))
            numbers = numbers + high * np.uint64(100_000_000)
            right &= more
        signed = numbers.view(np.int64)
        return (np.where(negative, -signed, signed) if some else signed), right

    def _eight(self, end: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number in the last digits before a place, at most eight, and whether they are digits."""
        unused = (8 - length).astype(np.uint64) * np.uint64(8)
        words = self._words[end - 8]
        zeros = np.uint64(0x3030303030303030)
        # characters before the number become zeros
        words = np.where(unused == 64, zeros, (words >> (unused & np.uint64(63))) << (unused & np.uint64(63)))
        words |= np.where(unused == 0, np.uint64(0), zeros >> (np.uint64(64) - np.maximum(unused, np.uint64(8))))
        words ^= zeros
        digits = ((words + np.uint64(0x7676767676767676)) | words) & np.uint64(0x8080808080808080) == 0
        words = (words * np.uint64(10)) + (words >> np.uint64(8))
        low = (words & np.uint64(0x000000FF000000FF)) * np.uint64(0x000F424000000064)
        high = ((words >> np.uint64(16)) & np.uint64(0x000000FF000000FF)) * np.uint64(0x0000271000000001)
        return (low + high) >> np.uint64(32), digits

    def _texts(self, begin: np.ndarray, end: np.ndarray) -> pa.Array:
        """Texts between two places."""
        lengths = end - begin
        count = len(lengths)
        longest = int(lengths.max(initial=0))
        if count and longest and int(lengths.min()) == longest:
            windows = np.lib.stride_tricks.sliding_window_view(self._characters, longest)
            content = pa.py_buffer(np.ascontiguousarray(windows[begin]))
            offsets = np.arange(0, (count + 1) * longest, longest, dtype=np.int32)
            return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), content])
        return self._views(begin, lengths)

    def _views(self, begin: np.ndarray, lengths: np.ndarray) -> pa.Array:
        """Texts of several lengths: views into the block, without a copy."""
        views = np.zeros((len(lengths), 2), np.uint64)
        first = self._words[begin]
        second = self._words[begin + 8]
        low = _masked(first, np.minimum(lengths, 4))
        views[:, 0] = lengths.astype(np.uint64) | (low << np.uint64(32))
        short = lengths <= 12
        rest = (first >> np.uint64(32)) | (second << np.uint64(32))
        inline = _masked(rest, np.clip(lengths - 4, 0, 8))
        views[:, 1] = np.where(short, inline, begin.astype(np.uint64) << np.uint64(32))
        return pa.Array.from_buffers(
            pa.string_view(), len(lengths), [None, pa.py_buffer(views), pa.py_buffer(self._text)]
        )


def _masked(words: np.ndarray, length: np.ndarray) -> np.ndarray:
    """The first bytes of words."""
    bits = (8 - length).astype(np.uint64) * np.uint64(8)
    kept: np.ndarray = np.where(bits == 64, np.uint64(0), (words << (bits & np.uint64(63))) >> (bits & np.uint64(63)))
    return kept
