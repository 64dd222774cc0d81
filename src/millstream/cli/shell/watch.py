"""WATCH: the rows of a view or a query, redrawn on the terminal as they change."""

from __future__ import annotations

import re
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.cli.output import plural
from millstream.errors import DefinitionError, StatementRefused
from millstream.model.connectors import check_name
from millstream.model.types.duration import Duration
from millstream.model.types.values import python_values
from millstream.result import Result

USUAL = Duration.of("1 second")
_WATCH = re.compile(
    r"\s*WATCH\b(?P<what>.*?)(?:\bEVERY\s+(?:INTERVAL\s+)?(?P<every>'?[\d.]+'?\s*\w+'?))?\s*;?\s*\Z", re.I | re.S
)
_QUERY = re.compile(r"\(?\s*(SELECT|WITH|VALUES)\b", re.I)
_NEWEST = ("window_end", "window_start", "window_time")
"""Columns that order the rows of a view from newest to oldest."""


@dataclass(frozen=True)
class WatchCommand:
    """The query to watch, and how often."""

    title: str
    sql: str
    every: Duration = USUAL


def is_watch(sql: str) -> bool:
    """Whether a statement begins with WATCH."""
    return re.match(r"\s*WATCH\b", sql, re.I) is not None


def read_watch(sql: str, columns: Callable[[str], tuple[str, ...]]) -> WatchCommand:
    """Parse ``WATCH view [EVERY 1 SECOND]`` or ``WATCH SELECT ... [EVERY 1 SECOND]``; `columns` returns those of a
    view.
    """
    found = _WATCH.match(sql)
    what = found["what"].strip() if found else ""
    if found is None or not what:
        raise DefinitionError("WATCH needs a view or a SELECT", hint="WATCH hot_auctions EVERY 1 SECOND")
    every = Duration.positive(found["every"].replace("'", ""), what="interval") if found["every"] else USUAL
    if _QUERY.match(what):
        return WatchCommand(" ".join(what.split()), what, every)
    name = what.strip("`")
    if "$" not in name:
        check_name(name, "view")
    newest = [f"`{c}` DESC" for c in columns(name) if c in _NEWEST][:1]
    rest = [f"`{c}`" for c in columns(name) if c not in _NEWEST]
    order = f" ORDER BY {', '.join(newest + rest)}" if newest + rest else ""
    return WatchCommand(name, f"SELECT * FROM `{name}`{order}", every)


def watch(command: WatchCommand, ask: Callable[[str], Result]) -> None:
    """Draw until Ctrl-C."""
    if not sys.stdout.isatty():
        raise StatementRefused(
            "WATCH needs a terminal", hint=f"SUBSCRIBE TO {command.title} returns changes as they happen"
        )
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    first = drawn(command, ask(command.sql))
    pause = threading.Event()
    console = Console(highlight=False)
    with Live(Text.from_ansi(first), console=console, auto_refresh=False, vertical_overflow="crop") as live:
        try:
            while True:
                pause.wait(command.every.micros / 1e6)
                live.update(Text.from_ansi(drawn(command, ask(command.sql))), refresh=True)
        except KeyboardInterrupt:
            return


def drawn(command: WatchCommand, result: Result) -> str:
    """The screen: a title, as many rows as fit, and the total number."""
    from millstream.cli.shell.output import table_text

    width, height = shutil.get_terminal_size()
    room = max(3, height - 7)
    columns = [python_values(c) for c in result.to_arrow().slice(0, room).columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    more = f", {len(rows)} of them shown" if len(rows) < len(result) else ""
    now = datetime.now(UTC)
    how = f"   every {command.every}, {now:%H:%M:%S} UTC; Ctrl-C ends"
    title = (
        command.title
        if len(command.title) + len(how) < width
        else command.title[: max(8, width - len(how) - 5)] + " ..."
    )
    return f"{title}{how}\n\n{table_text(result.columns, rows)}\n({plural(len(result), 'row')}{more})"
