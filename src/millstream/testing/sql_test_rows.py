"""Compares the rows that a test expects with the actual rows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError
from millstream.model.types.duckdb_values import arrow_table
from millstream.model.types.interval import interval_micros_of, micros_of
from millstream.model.types.schema import Schema
from millstream.model.types.unknown_column import unknown_column
from millstream.result import plain, shown
from millstream.sql.parse.statement_values import Insert
from millstream.sql.query.duckdb_sql import duck_sql

NULL = "NULL"


@dataclass(frozen=True)
class Expected:
    """Expected rows. Columns that are not named are not compared. No columns: no rows at all."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def cells_of(line: str) -> tuple[str, ...]:
    r"""Split a line into the values between the bars; ``\|`` is a bar inside a value.

    >>> cells_of(r" 1 | a\|b ")
    ('1', 'a|b')
    """
    return tuple(c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line))


def literal_rows(statement: Insert, schema: Schema) -> list[dict[str, Any]]:
    """Compute the rows of an INSERT. A value that does not fit its column stays unchanged."""
    import duckdb

    names = schema.names
    spelled = {n.lower(): n for n in names}
    columns = [spelled.get(c.lower(), c) for c in statement.columns] or list(names)
    unknown = next((c for c in columns if c not in names), None)
    if unknown is not None:
        raise unknown_column(unknown, names)
    rows: list[dict[str, Any]] = []
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for number, row in enumerate(statement.rows, 1):
            if len(row) != len(columns):
                raise SchemaError(
                    f"row {number} has {len(row)} values for {len(columns)} columns: {', '.join(columns)}"
                )
            values = dict(zip(columns, row, strict=True))
            computed = {c: v for c, v in values.items() if isinstance(v, exp.Expr)}
            for column in (c for value in computed.values() for c in value.find_all(exp.Column)):
                raise SchemaError(f"`{column.name}` in VALUES", hint="a string is written in single quotes: 'text'")
            if computed:
                literals = ", ".join(f'{duck_sql(v)} AS "{i}"' for i, v in enumerate(computed.values()))
                try:
                    computed_values = arrow_table(connection.sql(f"SELECT {literals}")).to_pylist()[0]
                except duckdb.Error as error:
                    raise DefinitionError(
                        f"the values of row {number} cannot be computed", detail=str(error).splitlines()[0]
                    ) from None
                values.update(zip(computed, computed_values.values(), strict=True))
            rows.append({c: _number(v, schema.field(c).type) for c, v in values.items()})
    return rows


def _number(value: Any, kind: pa.DataType | None) -> Any:
    """Convert a number with a decimal point, which SQL parses as DECIMAL, to the type of its column."""
    exact = kind is not None and pa.types.is_decimal(kind)
    return float(value) if isinstance(value, Decimal) and not exact else value


def difference(expected: Expected, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, ordered: bool) -> str:
    """Describe how rows differ from the expected ones; empty when they do not."""
    places = {c.lower(): i for i, c in enumerate(columns)}
    for column in expected.columns:
        if column.lower() not in places:
            error = unknown_column(column, columns)
            return f"{error.message}; {error.detail}"
    names = expected.columns or tuple(columns)
    actual_rows = [[row[places[c.lower()]] for c in names] for row in rows]
    left = list(range(len(actual_rows)))
    lines: list[tuple[str, Sequence[str]]] = []
    for number, expected_row in enumerate(expected.rows):
        candidates = [number] if ordered else left
        same = next((i for i in candidates if i in left and _same_row(expected_row, actual_rows[i])), None)
        if same is None:
            lines.append(("-", expected_row))
        else:
            left.remove(same)
            lines.append((" ", expected_row))
    lines += [("+", [written(v) for v in actual_rows[i]]) for i in left]
    if all(mark == " " for mark, _ in lines):
        return ""
    return "\n".join([*_aligned([(" ", names), *lines]), "(- expected, and not there; + there, and not expected)"])


def _aligned(lines: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    widths = [max(len(row[i]) for _, row in lines) for i in range(len(lines[0][1]))]
    return [f"{mark} | {' | '.join(c.ljust(w) for c, w in zip(row, widths, strict=True))} |" for mark, row in lines]


def _same_row(expected_row: Sequence[str], actual_row: Sequence[Any]) -> bool:
    return all(same(text, value) for text, value in zip(expected_row, actual_row, strict=True))


def same(text: str, value: Any) -> bool:
    """Whether a value equals its text in a test.

    >>> same("1.50", 1.5), same("NULL", None), same("2026-01-01 00:00:10", datetime(2026, 1, 1, 0, 0, 10))
    (True, True, True)
    """
    if value is None or text == NULL:
        return value is None and text == NULL
    try:
        return _equal(text, value)
    except (ValueError, ArithmeticError):  # the text is not a value of this type
        return False


def _equal(text: str, value: Any) -> bool:
    match value:
        case bool():
            return text.lower() == str(value).lower()
        case int() | Decimal():
            return Decimal(text) == value
        case float():
            number = float(text)
            return math.isclose(number, value, rel_tol=1e-9) or (math.isnan(number) and math.isnan(value))
        case datetime():
            return _utc(datetime.fromisoformat(text)) == _utc(value)
        case timedelta():
            return interval_micros_of(text) == micros_of(value)
        case date():
            return text == value.isoformat()
        case str():
            return value in (text, text[1:-1] if len(text) > 1 and text[0] == text[-1] == "'" else text)
    return bool(orjson.loads(text) == plain(value))


def written(value: Any) -> str:
    """Format a value as a test would write it."""
    if value is None:
        return NULL
    if isinstance(value, str):
        quoted = not value or value != value.strip() or value == NULL
        return (f"'{value}'" if quoted else value).replace("|", "\\|")
    if isinstance(value, list | dict):
        return orjson.dumps(plain(value)).decode()
    return repr(value) if isinstance(value, float) else shown(value)


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
