"""Converts Arrow values to Python values, for every value that a column can hold.

Python's times range from the year 1 to the year 9999, while a TIMESTAMP or DATE column holds much more. Values out of
Python's range become text: a time as ISO 8601 with more digits in its year, ``+10000-01-01T00:00:00Z``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa

from millstream.model.types.interval import interval_text

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class FarTime(str):
    """A time or date out of Python's range, as text; code that only passes it on returns it unchanged."""

    __slots__ = ("value",)
    value: int

    @classmethod
    def of(cls, text: str, value: int) -> FarTime:
        """The text, and the number that Arrow stores."""
        time = cls(text)
        time.value = value
        return time


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError, pa.ArrowException):
        return [_python(scalar) for scalar in column]


def plain_values(series: Any) -> list[Any]:
    """The values of a Polars series. Polars itself panics at dates out of Python's range."""
    return python_values(series.to_arrow()) if "Date" in str(series.dtype) else list(series.to_list())


def in_json(value: Any) -> str:
    """A value without a JSON form, as text: what `json` and `orjson` call `default`."""
    return interval_text(value) if isinstance(value, timedelta) else str(value)


def python_rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a table as dicts."""
    columns = [python_values(c) for c in table.columns]
    names = table.schema.names
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def representable(table: pa.Table) -> pa.Table:
    """A table in which DATE columns out of Python's range are text, for libraries that convert through Python dates."""
    for i, field in enumerate(table.schema):
        if pa.types.is_date(field.type):
            values = python_values(table.column(i))
            if any(isinstance(v, str) for v in values):
                text = [None if v is None else str(v) for v in values]
                table = table.set_column(i, field.name, pa.array(text, pa.string()))
    return table


def _python(scalar: pa.Scalar) -> Any:  # noqa: PLR0911 - one for each kind of type
    if not scalar.is_valid:
        return None
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        pass
    kind = scalar.type
    if pa.types.is_timestamp(kind):
        seconds, rest = divmod(scalar.value, _PER_SECOND[kind.unit])
        return FarTime.of(_instant_text(seconds, rest, kind.unit) + ("Z" if kind.tz else ""), scalar.value)
    if pa.types.is_date(kind):
        days = scalar.value if pa.types.is_date32(kind) else scalar.value // 86_400_000
        return FarTime.of(_date_text(days), scalar.value)
    if pa.types.is_struct(kind):
        return {f.name: _python(scalar[i]) for i, f in enumerate(kind)}
    if pa.types.is_map(kind):
        return [(_python(pair["key"]), _python(pair["value"])) for pair in scalar.values]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_python(item) for item in scalar.values]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return readable(scalar.as_buffer().to_pybytes())
    return str(scalar)


def readable(data: bytes) -> str:
    r"""Bytes as text without loss: bytes that are not UTF-8, and the NUL character, become ``\xff`` and ``\x00``.

    >>> readable(b"a\xff\x00b")
    'a\\xff\\x00b'
    """
    return data.decode("utf-8", errors="backslashreplace").replace("\x00", "\\x00")


def _instant_text(seconds: int, rest: int, unit: str) -> str:
    days, second = divmod(seconds, 86_400)
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    part = f".{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"{_date_text(days)}T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}{part}"


def _date_text(days: int) -> str:
    """A day counted from 1970, in the ISO 8601 calendar: 400 years have 146,097 days."""
    shifted = days + 719_468  # days since 0000-03-01, so that a leap day is the last of its year
    era, day = divmod(shifted, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day_of_month = day - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    number = year + era * 400 + (month <= 2)
    year_text = f"{number:04d}" if 0 <= number <= 9999 else f"{number:+05d}"
    return f"{year_text}-{month:02d}-{day_of_month:02d}"
