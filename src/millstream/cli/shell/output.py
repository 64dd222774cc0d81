"""Prints results: for users in the shell, for programs with --format."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

import click
import orjson

from millstream.cli.error_report import print_warnings
from millstream.cli.output import csv_text, format_seconds, json_text, plural, rich_table
from millstream.display import visible
from millstream.errors import StatementRefused
from millstream.model.reserved import SHOWN_EPOCH, free_name
from millstream.model.types.values import python_values
from millstream.result import plain, shown, text_table

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.live.answer import Answer, Changes
    from millstream.result import Result

FORMATS = ("table", "csv", "json", "arrow")
MOST_SHOWN = 10_000
"""The number of rows of a result that a terminal shows."""

MOST_DRAWN = 500
"""Rows that are fitted to the width of the terminal."""

_COLOURS = {"+": "green", "-": "red"}


@dataclass
class DisplayOptions:
    """The display options of the shell; its backslash commands change them."""

    timing: bool = True
    expanded: bool = False
    pager: bool = True


class AnswerPrinter:
    """Prints results on standard output. Messages go to standard error where programs read the rows."""

    def __init__(self, form: str = "table", look: DisplayOptions | None = None) -> None:
        self.form = form
        self.look = look
        """The options of the user in the shell; None outside the shell."""
        if form == "arrow" and sys.stdout.isatty():
            raise StatementRefused(
                "Arrow is not for a terminal", hint="send it to a file or a program: --format arrow > answer.arrows"
            )

    def answer(self, answer: Answer, seconds: float) -> None:
        """Print the result of a statement, except its changes."""
        took = f", {format_seconds(seconds)}" if self.look is not None and self.look.timing else ""
        if answer.result is not None:
            print_warnings(answer.result.warnings)
            self._rows(answer.result, took)
        if answer.text:
            click.echo(answer.text, err=self.form == "arrow")
        if answer.message:
            click.echo(f"{answer.message} ({took[2:]})" if took else answer.message, err=self.form != "table")

    def listener(self) -> ChangeOutput:
        """Return the printer of the changes of one subscription."""
        return _LISTENERS[self.form]()

    def _rows(self, result: Result, took: str) -> None:
        table = result.to_arrow()
        if self.form == "arrow":
            writer = ArrowOutput(table.schema)
            writer.write(table)
            writer.close()
            return
        more = table.num_rows - MOST_SHOWN if self.look is not None and self.form == "table" else 0
        columns = [python_values(c) for c in (table.slice(0, MOST_SHOWN) if more > 0 else table).columns]
        rows = [list(row) for row in zip(*columns, strict=True)]
        if self.form == "json":
            click.echo(json_text(result.columns, rows))
        elif self.form == "csv":
            click.echo(csv_text(result.columns, rows), nl=False)
        elif self.look is None and not sys.stdout.isatty():
            click.echo(text_table(result.columns, rows))
        else:
            count = f"({plural(table.num_rows, 'row')}{took})"
            if more > 0:
                count = f"{more:,} more rows are not shown; --format csv gives them all\n{count}"
            self._for_a_person(result.columns, rows, count)

    def _for_a_person(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], count: str) -> None:
        expanded = self.look is not None and self.look.expanded
        text = expanded_text(columns, rows) if expanded else table_text(columns, rows)
        lines = text.count("\n") + count.count("\n") + 2
        if self.look is not None and self.look.pager and lines > shutil.get_terminal_size().lines and _on_terminal():
            click.echo_via_pager(f"{text}\n{count}\n")
            click.echo(click.style(count, dim=True))
        else:
            click.echo(f"{text}\n{click.style(count, dim=True)}")


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Format a table as wide as the terminal, with colours if possible; a long one is plain, which is faster."""
    if len(rows) > MOST_DRAWN:
        return text_table(list(columns), [list(r) for r in rows]).rpartition("\n")[0]
    from rich.console import Console

    file = StringIO()
    console = Console(
        file=file, width=shutil.get_terminal_size().columns, force_terminal=sys.stdout.isatty(), highlight=False
    )
    console.print(rich_table(columns, rows))
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    return "\n".join(lines[1:] if lines and not lines[0] else lines).rstrip("\n")


def expanded_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """One line per value, row after row.

    >>> print(expanded_text(["auction", "n"], [[7, 3]]))
    -- row 1
    auction  7
    n        3
    """
    columns = [visible(c) for c in columns]
    width = max((len(c) for c in columns), default=0)
    lines = []
    for number, row in enumerate(rows, 1):
        lines.append(f"-- row {number:,}")
        lines += [f"{name.ljust(width)}  {shown(value)}".rstrip() for name, value in zip(columns, row, strict=True)]
    return "\n".join(lines)


# ---------------------------------------------------------------- changes, as they come


class ChangeOutput:
    """Prints changes, one subscription after the other."""

    def take(self, changes: Changes) -> None:
        """Print what one epoch changed."""
        if changes.table is None:
            return
        table = changes.table
        name = free_name(SHOWN_EPOCH, table.column_names)
        columns = [python_values(c) for c in table.columns]
        rows = [[changes.epoch, *row] for row in zip(*columns, strict=True)]
        self.rows([name, *table.column_names], rows)
        sys.stdout.flush()

    def rows(self, columns: list[str], rows: list[list[Any]]) -> None:
        """Print rows; epoch and op come first."""
        raise NotImplementedError

    def close(self) -> None:
        """End the output."""


class ChangeLines(ChangeOutput):
    """One line per change for the user: inserted rows are green, deleted ones are red."""

    def __init__(self) -> None:
        self._widths: list[int] = []

    def rows(self, columns: list[str], rows: list[list[Any]]) -> None:
        """One line per change, in columns; the heading comes once."""
        cells = [[shown(v) for v in row] for row in rows]
        first = not self._widths
        known = self._widths or [len(c) for c in columns]
        self._widths = [max(w, *(len(r[i]) for r in cells)) if cells else w for i, w in enumerate(known)]
        if first:
            click.secho(self._line(columns), bold=True)
        for row, cell in zip(rows, cells, strict=True):
            click.secho(self._line(cell), fg=_COLOURS.get(str(row[1])[:1]))

    def _line(self, cells: Sequence[str]) -> str:
        return "  ".join(c.ljust(w) for c, w in zip(cells, self._widths, strict=True)).rstrip()


class ChangeJson(ChangeOutput):
    """One line of JSON per change."""

    def rows(self, columns: list[str], rows: list[list[Any]]) -> None:
        """Each as an object with epoch, op and the columns of the view."""
        for row in rows:
            record: Mapping[str, Any] = dict(zip(columns, (plain(v) for v in row), strict=True))
            click.echo(orjson.dumps(record, default=str))


class ChangeCsv(ChangeOutput):
    """A heading, then one line per change."""

    def __init__(self) -> None:
        self._begun = False

    def rows(self, columns: list[str], rows: list[list[Any]]) -> None:
        """The heading comes once."""
        text = csv_text(columns, rows)
        click.echo(text.partition("\n")[2] if self._begun else text, nl=False)
        self._begun = True


class ChangeArrow(ChangeOutput):
    """A stream of record batches, with the epoch as the first column."""

    def __init__(self) -> None:
        self._writer: ArrowOutput | None = None

    def take(self, changes: Changes) -> None:
        """Write a batch."""
        import pyarrow as pa

        if changes.table is None:
            return
        table = changes.table
        name = free_name(SHOWN_EPOCH, table.column_names)
        table = table.add_column(0, name, pa.array([changes.epoch] * table.num_rows, pa.int64()))
        if self._writer is None:
            self._writer = ArrowOutput(table.schema)
        self._writer.write(table.cast(self._writer.schema))

    def close(self) -> None:
        """End the stream."""
        if self._writer is not None:
            self._writer.close()


class ArrowOutput:
    """An Arrow IPC stream on standard output."""

    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        self.schema = schema
        self._out = sys.stdout.buffer
        self._writer = pa.ipc.new_stream(self._out, schema)

    def write(self, table: pa.Table) -> None:
        """Write rows and release them at once."""
        self._writer.write_table(table)
        self._out.flush()

    def close(self) -> None:
        """End the stream; standard output stays open."""
        self._writer.close()
        self._out.flush()


_LISTENERS: Mapping[str, Callable[[], ChangeOutput]] = {
    "table": ChangeLines,
    "csv": ChangeCsv,
    "json": ChangeJson,
    "arrow": ChangeArrow,
}
