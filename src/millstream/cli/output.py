"""Prints rows on standard output: a table for users, CSV and JSON for programs."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click
import orjson

from millstream.cli.error_report import print_warnings
from millstream.display import visible
from millstream.model.types.values import python_values
from millstream.result import Result, distinct, plain, shown, text_table

if TYPE_CHECKING:
    from rich.table import Table

FORMATS = ("table", "csv", "json")


def print_result(result: Result, form: str) -> None:
    """The answer to a query."""
    print_warnings(result.warnings)
    table = result.to_arrow()
    columns = [python_values(c) for c in table.columns]  # by position: two columns may have one name
    print_rows(result.columns, [list(row) for row in zip(*columns, strict=True)], form)


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str) -> None:
    """Rows in one of FORMATS."""
    if form == "json":
        click.echo(json_text(columns, rows))
    elif form == "csv":
        click.echo(csv_text(columns, rows), nl=False)
    elif sys.stdout.isatty():
        print_table(columns, rows)
    else:
        click.echo(text_table(list(columns), [list(r) for r in rows]))


def print_listing(
    records: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    form: str,
    *,
    format_value: Callable[[str, Any], Any],
    none: str,
) -> None:
    """Print the objects of a home, one per row: `columns` maps their names to headings for users.

    A program gets names and values unchanged. A user gets the values as `format_value` formats them, and the sentence
    `none` when there is nothing to list.
    """
    if form != "table":
        print_rows(list(columns), [[r[c] for c in columns] for r in records], form)
    elif not records:
        click.echo(none)
    else:
        print_rows(list(columns.values()), [[format_value(c, r[c]) for c in columns] for r in records], form)


def json_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """An array of row objects, one row per line."""
    distinct(columns)
    lines = [
        orjson.dumps(dict(zip(columns, (plain(v) for v in row), strict=True)), default=str).decode() for row in rows
    ]
    return "[\n  " + ",\n  ".join(lines) + "\n]" if lines else "[]"


def csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A header and one line per row; NULL is empty, a nested value is JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(plain(v)) for v in row])
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        return orjson.dumps(value, default=str).decode()
    return str(value).lower() if isinstance(value, bool) else value


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table in the terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(rich_table(columns, rows))
    console.print(f"[dim]{len(rows):,} row{'' if len(rows) == 1 else 's'}[/dim]")


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table for a terminal, with numbers to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for i, name in enumerate(columns):
        numbers = bool(rows) and all(isinstance(r[i], int | float | Decimal | None) for r in rows)
        table.add_column(Text(visible(name)), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(v)) for v in row))
    return table


# ---------------------------------------------------------------- values as people say them


def format_seconds(seconds: float | None) -> str:
    """How long, in the unit a person would choose.

    >>> [format_seconds(s) for s in (0.042, 1.25, 75, 7300, 200000)]
    ['42 ms', '1.2 s', '1 min 15 s', '2 h 1 min', '2 d 7 h']
    """
    if seconds is None:
        return ""
    if seconds < 0.1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def format_instant(value: datetime | str | None) -> str:
    """An instant in UTC, to the second; a text is one that came through JSON."""
    if value is None:
        return "-"
    when = datetime.fromisoformat(value) if isinstance(value, str) else value
    return f"{when:%Y-%m-%d %H:%M:%S}"


def plural(number: int, noun: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
