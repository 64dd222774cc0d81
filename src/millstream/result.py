"""Query results: a table that prints itself and converts to Arrow, pandas, polars or plain rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.deprecation import deprecated
from millstream.display import html_table, visible
from millstream.errors import QueryError, SchemaError, Unsupported
from millstream.model.types.interval import interval_text
from millstream.model.types.schema import ddl_type
from millstream.model.types.values import python_rows, python_values, representable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

SHOWN_ROWS = 20
"""The number of rows in the `repr` of a result."""
HTML_ROWS, HTML_COLUMNS, HTML_CHARACTERS = 50, 50, 300
"""The limits of a result in a notebook: rows, columns, and characters per value."""


class Result:
    """The result of a query: its rows, and the epoch of each flow that they reflect.

    It has a length, iterates over its rows as dicts, prints as a table, and renders itself in notebooks.
    Libraries that accept Arrow data (the PyCapsule interface) accept it directly.

    >>> result = Result(pa.table({"auction": [1007], "bids": [3]}), epochs={"auctions": 7})
    >>> print(result)
    auction  bids
    -------  ----
       1007     3
    (1 row)
    >>> result
    auction    bids
     BIGINT  BIGINT
    -------  ------
       1007       3
    (1 row, as of epoch 7 of auctions)
    >>> result.to_dicts()
    [{'auction': 1007, 'bids': 3}]
    """

    def __init__(
        self, table: pa.Table, warnings: tuple[str, ...] = (), epochs: Mapping[str, int] | None = None
    ) -> None:
        self._table = table
        self.warnings = warnings
        """Warnings about the rows: a view has failed, how old its rows are, and why."""
        self.epochs = dict(epochs or {})
        """The flows whose views were read, each with the epoch that the rows reflect."""

    def to_arrow(self) -> pa.Table:
        """Convert to a pyarrow Table."""
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """Convert to a pandas DataFrame. pandas is an extra: ``pip install "millstream[pandas]"``."""
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise Unsupported(
                "to_pandas() needs pandas, which is not installed",
                hint='pip install "millstream[pandas]"; to_arrow(), to_polars() and to_dicts() work without it',
            ) from error
        return representable(self._table).to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Convert to a polars DataFrame."""
        import polars as pl

        frame = pl.from_arrow(self._table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_dicts(self) -> list[dict[str, Any]]:
        """Convert to a list of dicts. A timestamp before the year 1 or after 9999, which Python cannot represent,
        becomes text.
        """
        distinct(self.columns)
        return python_rows(self._table)

    def arrow(self) -> pa.Table:
        """Deprecated alias of `to_arrow`."""
        deprecated("Result.arrow()", "Result.to_arrow()")
        return self.to_arrow()

    def pandas(self) -> pd.DataFrame:
        """Deprecated alias of `to_pandas`."""
        deprecated("Result.pandas()", "Result.to_pandas()")
        return self.to_pandas()

    def polars(self) -> pl.DataFrame:
        """Deprecated alias of `to_polars`."""
        deprecated("Result.polars()", "Result.to_polars()")
        return self.to_polars()

    def rows(self) -> list[dict[str, Any]]:
        """Deprecated alias of `to_dicts`."""
        deprecated("Result.rows()", "Result.to_dicts()")
        return self.to_dicts()

    @property
    def columns(self) -> list[str]:
        """The column names."""
        return list(self._table.column_names)

    @property
    def types(self) -> list[str]:
        """The SQL types of the columns."""
        return [_type_name(f.type) for f in self._table.schema]

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_dicts())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows to other libraries without copying, e.g. ``polars.DataFrame(result)``."""
        return self._table.__arrow_c_stream__(requested_schema)

    def __str__(self) -> str:
        """Format all rows as a plain table."""
        return text_table(self.columns, self._values(len(self)))

    def __repr__(self) -> str:
        """Format the first rows, with types and epochs."""
        rows = self._values(SHOWN_ROWS)
        more = f", the first {len(rows)} shown" if len(rows) < len(self) else ""
        as_of = f", {self._as_of()}" if self.epochs else ""
        count = f"({_rows(len(self))}{more}{as_of})"
        return text_table(self.columns, rows, types=self.types, count=count)

    def _repr_html_(self) -> str:
        """Render the first rows, with types and epochs, for notebooks."""
        columns = list(zip(self.columns, self.types, strict=True))
        values = self._values(HTML_ROWS)
        numbers = [_are_numbers(values, i) for i in range(min(len(columns), HTML_COLUMNS))]
        rows = ([None if v is None else _cut(shown(v)) for v in row[:HTML_COLUMNS]] for row in values)
        size = _rows(len(self)) + (f", the first {len(values)} shown" if len(values) < len(self) else "")
        if len(columns) > HTML_COLUMNS:
            size += f"; the first {HTML_COLUMNS} of {len(columns)} columns shown"
        notes = [size, *([self._as_of()] if self.epochs else []), *(f"warning: {w}" for w in self.warnings)]
        return html_table(columns[:HTML_COLUMNS], rows, numbers=numbers, notes=notes)

    def _values(self, most: int) -> list[list[Any]]:
        """Return the first rows as lists, because two columns may have the same name."""
        columns = [python_values(column) for column in self._table.slice(0, most).columns]
        return [list(row) for row in zip(*columns, strict=True)]

    def _as_of(self) -> str:
        return "as of " + ", ".join(f"epoch {n:,} of {flow}" for flow, n in sorted(self.epochs.items()))


def _type_name(kind: pa.DataType) -> str:
    try:
        return ddl_type(kind)
    except SchemaError:
        return str(kind)


def _rows(number: int) -> str:
    return f"{number} row{'' if number == 1 else 's'}"


def _cut(text: str) -> str:
    return text if len(text) <= HTML_CHARACTERS else f"{text[: HTML_CHARACTERS - 3]}..."


def _are_numbers(rows: Sequence[Sequence[Any]], column: int) -> bool:
    """Whether a column is right-aligned: it holds numbers, or only NULL."""
    return bool(rows) and all(isinstance(row[column], int | float | Decimal | None) for row in rows)


def plain(value: Any) -> Any:
    """Convert a value to JSON: times as ISO 8601, in UTC if they have a zone; decimals and intervals as text."""
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
    """Format a value for a table."""
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


def distinct(columns: Sequence[str]) -> None:
    """Refuse duplicate column names where each row becomes an object: the last column would hide the others."""
    twice = next((c for i, c in enumerate(columns) if c in columns[:i]), None)
    if twice is not None:
        raise QueryError(
            f"two columns are called `{twice}`",
            detail="a row that is an object has one value for a name",
            hint=f"give one of them another name: SELECT ... AS {twice}_2; or use the format table, csv or arrow",
        )


def text_table(columns: list[str], rows: list[list[Any]], *, types: Sequence[str] = (), count: str = "") -> str:
    """Format a plain table. Numbers are right-aligned, everything else left-aligned. `types` become a second header
    line.
    """
    headings = [[visible(c) for c in columns], *([list(types)] if types else [])]
    cells = [[shown(v) for v in row] for row in rows]
    right = [_are_numbers(rows, i) for i in range(len(columns))]
    widths = [max([1 if cells else 0, *(len(line[i]) for line in (*headings, *cells))]) for i in range(len(columns))]

    def line(values: Sequence[str]) -> str:
        parts = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True)]
        return "  ".join(parts).rstrip()

    lines = [*headings, ["-" * w for w in widths], *cells]
    return "\n".join([*map(line, lines), count or f"({_rows(len(rows))})"])
