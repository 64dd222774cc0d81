"""Times and dates in text, converted in bulk: only the spellings that Spark and Arrow read in the same way.

    2026-01-01T00:00:01Z    2026-01-01 00:00:01.25+01:00    2026-01-01    2026-01-01T00:00:01 (in UTC, as the session)

A text of another form gives no value. Its line is then doubtful, and Spark converts it (`json_parser.py`).
"""

from __future__ import annotations

from contextlib import suppress
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DATE, _SECONDS = 10, 19
"""The length of a date, and of a time up to its seconds."""
_OFFSET = len("+01:00")
_MOST_DIGITS = 6
"""Digits of a fraction of a second; Spark drops further ones, Arrow refuses them."""


def converted(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as times or dates of a type. A text that is not one of the common spellings becomes NULL."""
    if _is_uniform(texts, kind):
        with suppress(pa.ArrowInvalid):
            return texts.cast(kind)
    known = texts if texts.null_count == len(texts) else _only(texts, _well_formed(texts, kind))
    for _ in range(2):
        try:
            return _cast(known, kind)
        except pa.ArrowInvalid:  # the shape is right, a number is not, as in a 31st of February
            known = _only(known, _is_possible(known, kind))
    return pa.nulls(len(texts), kind)


def _is_uniform(texts: pa.Array, kind: pa.DataType) -> bool:
    """Whether all texts are instants of one length in UTC, such as ``2026-01-01T00:00:01.250Z``: by far the most common
    case, and several times as fast to check.
    """
    if not pa.types.is_timestamp(kind) or kind.tz is None or texts.null_count or not len(texts):
        return False
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32, len(texts) + 1, texts.offset * 4)
    length = int(ends[1] - ends[0])
    if length - len("Z") - _SECONDS not in (0, *range(2, 2 + _MOST_DIGITS)) or (np.diff(ends) != length).any():
        return False
    rows = np.frombuffer(data, np.uint8, length * len(texts), int(ends[0])).reshape(-1, length)
    marks = {4: b"-", 7: b"-", 10: b"T", 13: b":", 16: b":", length - 1: b"Z"}
    if length > _SECONDS + 1:
        marks[_SECONDS] = b"."
    return all((rows[:, place] == mark[0]).all() for place, mark in marks.items())


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return texts.cast(kind)
    zoned = _zone_length(_Characters(texts), kind) > 0
    if zoned.all():
        return texts.cast(kind)
    local = _only(texts, ~zoned).cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    return pc.coalesce(local, _only(texts, zoned).cast(kind)) if zoned.any() else local


def _is_possible(texts: pa.Array, kind: pa.DataType) -> np.ndarray:
    """Whether the numbers in well-formed texts are those of a date and a time."""
    of = _Characters(texts)
    year, month, day = of.number(0, 4), of.number(5, 2), of.number(8, 2)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    days = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])[np.clip(month, 0, 12)] + (leap & (month == 2))
    possible = (year >= 0) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= days)
    if pa.types.is_date(kind):
        return np.asarray(possible)
    for place, most in ((11, 23), (14, 59), (17, 59)):
        possible &= (of.number(place, 2) >= 0) & (of.number(place, 2) <= most)
    zone = _zone_length(of, kind)
    for place in range(_SECONDS + 1, _SECONDS + 1 + _MOST_DIGITS):
        possible &= (place >= of.length - zone) | (of.number(place, 1) >= 0)
    hours, minutes = of.number(-5, 2), of.number(-2, 2)
    offset = (hours >= 0) & (minutes >= 0) & (hours * 60 + minutes <= 18 * 60) & (minutes < 60)
    return np.asarray(possible & ((zone != _OFFSET) | offset))


def _only(texts: pa.Array, kept: np.ndarray) -> pa.Array:
    """Texts with NULL in place of those that are not kept."""
    return texts if kept.all() else pc.if_else(pa.array(kept), texts, pa.scalar(None, texts.type))


class _Characters:
    """Characters of texts by place, without making a Python object of any."""

    def __init__(self, texts: pa.Array) -> None:
        _, offsets, data = texts.buffers()
        ends = np.frombuffer(offsets, np.int32, len(texts) + 1, texts.offset * 4)
        self.data = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        self.first, self.end = ends[:-1], ends[1:]
        self.length = self.end - self.first

    def at(self, place: int, characters: bytes) -> np.ndarray:
        """Whether one of some characters is at a place; negative places count from the end."""
        index = (self.first if place >= 0 else self.end) + place
        found = self.data[np.clip(index, 0, len(self.data) - 1)]
        same = reduce(np.logical_or, (found == c for c in characters))
        return np.asarray(same & (self.length > (place if place >= 0 else -place - 1)))

    def number(self, place: int, digits: int) -> np.ndarray:
        """The number at a place; negative if a character of it is no digit."""
        index = (self.first if place >= 0 else self.end) + place
        total = np.zeros(len(self.first), np.int64)
        for i in range(digits):
            digit = self.data[np.clip(index + i, 0, len(self.data) - 1)].astype(np.int64) - b"0"[0]
            total = np.where((digit < 0) | (digit > 9) | (total < 0), -1, total * 10 + digit)
        return total


def _zone_length(of: _Characters, kind: pa.DataType) -> np.ndarray:
    """The length of the zone at the end of well-formed texts: that of ``Z``, of an offset, or 0."""
    if kind.tz is None:
        return np.zeros(len(of.first), np.int64)
    return np.where(of.at(-1, b"Z"), 1, np.where(of.at(-6, b"+-") & of.at(-3, b":"), _OFFSET, 0))


def _well_formed(texts: pa.Array, kind: pa.DataType) -> np.ndarray:
    """Whether the shape of a text allows Arrow only one meaning, which is Spark's."""
    of = _Characters(texts)
    if pa.types.is_date(kind):
        return np.asarray((of.length == _DATE) & of.at(4, b"-") & of.at(7, b"-"))
    fraction = of.length - _zone_length(of, kind) - _SECONDS
    whole = fraction == 0
    parts = of.at(_SECONDS, b".") & (fraction >= 2) & (fraction <= 1 + _MOST_DIGITS)
    shape = of.at(4, b"-") & of.at(7, b"-") & of.at(10, b"T ") & of.at(13, b":") & of.at(16, b":")
    return np.asarray(shape & (whole | parts))
