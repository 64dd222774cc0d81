"""Answers: a table that prints itself and becomes Arrow, pandas, polars or plain rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from unicodedata import category

import pyarrow as pa

from millstream.errors import QueryError
from millstream.model.types.interval import interval_text
from millstream.model.types.values import python_rows, python_values, representable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class Result:
    """The answer to a query.

    >>> print(Result(pa.table({"auction": [1007], "bids": [3]})))
    auction  bids
    -------  ----
       1007     3
    (1 row)
    """

    def __init__(self, table: pa.Table, warnings: tuple[str, ...] = ()) -> None:
        self._table = table
        self.warnings = warnings
        """What to know about the rows: that a view has failed, how old its rows are, and why."""

    def arrow(self) -> pa.Table:
        """As a pyarrow Table."""
        return self._table

    def pandas(self) -> pd.DataFrame:
        """As a pandas DataFrame."""
        return representable(self._table).to_pandas()

    def polars(self) -> pl.DataFrame:
        """As a polars DataFrame."""
        import polars as pl

        frame = pl.from_arrow(self._table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def rows(self) -> list[dict[str, Any]]:
        """As a list of dicts. A time that Python cannot hold, before the year 1 or after 9999, is text."""
        distinct(self.columns)
        return python_rows(self._table)

    @property
    def columns(self) -> list[str]:
        """The column names."""
        return list(self._table.column_names)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __str__(self) -> str:
        columns = [python_values(column) for column in self._table.columns]
        return text_table(self.columns, [list(row) for row in zip(*columns, strict=True)])

    __repr__ = __str__


def plain(value: Any) -> Any:
    """A value as JSON would have it: times as ISO 8601, in UTC if they have a zone; decimals and intervals as text."""
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return interval_text(value)
    if isinstance(value, Decimal | bytes):
        return str(value) if isinstance(value, Decimal) else value.hex()
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - NaN is not equal to itself
        return None
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


def shown(value: Any) -> str:
    """A value as a person reads it in a table."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        whole = value.astimezone(UTC) if value.tzinfo else value
        text = whole.replace(tzinfo=None).isoformat(sep=" ")
        return text.rstrip("0") if whole.microsecond else text
    if isinstance(value, timedelta):
        return interval_text(value)
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e15 else repr(value)
    return visible(str(value))


def visible(text: str) -> str:
    r"""Text in which characters that steer a terminal are written as escapes: data cannot forge rows or colours.

    >>> visible("a\tb")
    'a\\tb'
    """
    if text.isprintable():
        return text
    return "".join(ascii(c)[1:-1] if c in _DIRECTIONS or category(c) in _STEERING else c for c in text)


_STEERING = ("Cc", "Cs", "Zl", "Zp")
_DIRECTIONS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def distinct(columns: Sequence[str]) -> None:
    """Refuse columns that have one name, where each row is an object: the last of them would hide the others."""
    twice = next((c for i, c in enumerate(columns) if c in columns[:i]), None)
    if twice is not None:
        raise QueryError(
            f"two columns are called `{twice}`",
            detail="a row that is an object has one value for a name",
            hint=f"give one of them another name: SELECT ... AS {twice}_2; or ask for a table, CSV or Arrow",
        )


def text_table(columns: list[str], rows: list[list[Any]]) -> str:
    """A plain table: numbers to the right, everything else to the left."""
    columns = [visible(c) for c in columns]
    cells = [[shown(v) for v in row] for row in rows]
    right = [
        bool(rows) and all(isinstance(r[i], int | float | Decimal | None) for r in rows) for i in range(len(columns))
    ]
    widths = [max(len(c), *(len(r[i]) for r in cells), 1) if cells else len(c) for i, c in enumerate(columns)]

    def line(values: list[str]) -> str:
        parts = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True)]
        return "  ".join(parts).rstrip()

    count = f"({len(rows)} row{'' if len(rows) == 1 else 's'})"
    return "\n".join([line(columns), line(["-" * w for w in widths]), *(line(r) for r in cells), count])
