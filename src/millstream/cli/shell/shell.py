"""The SQL shell: reads statements, executes them, prints their results, and survives all errors."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from millstream import __version__
from millstream.cli.connection import Connection
from millstream.cli.error_report import report_millstream, report_unexpected
from millstream.cli.options import Settings
from millstream.cli.shell.backslash_commands import (
    SWITCHES,
    BackslashCommand,
    help_text,
    is_order,
    read_order,
    switched,
)
from millstream.cli.shell.output import AnswerPrinter, DisplayOptions
from millstream.cli.shell.waiting import Listening, patiently
from millstream.cli.shell.watch import is_watch, read_watch, watch
from millstream.errors import DefinitionError, MillstreamError, QueryError
from millstream.result import Result
from millstream.sql.parse.script import SqlScript, StatementText, as_script
from millstream.sql.parse.text import word

STARTING = "starting Spark ..."
_CHANGING = ("CREATE", "DROP")


class Runner:
    """Executes texts, statement by statement, and prints the results. The first error is raised."""

    def __init__(self, connection: Connection, output: AnswerPrinter) -> None:
        self.connection, self.output = connection, output

    def run(self, sql: str | SqlScript, name: str = "SQL") -> None:
        """Execute a text or script; `name` is the name of a text in error messages."""
        script = as_script(sql, name)
        try:
            for part in _parts(script):
                if isinstance(part, StatementText):
                    self.watch(part.sql)
                else:
                    self._execute(part)
        finally:
            if any(word(s.tokens[0]) in _CHANGING for s in script):
                self.connection.forget_names()

    def watch(self, sql: str) -> None:
        """Draw a view or query until Ctrl-C."""
        watch(read_watch(sql, self.connection.columns), self.ask)
        self.connection.anew()  # a query may have been left without its result

    def ask(self, sql: str) -> Result:
        """The rows of one query."""
        for answer in patiently(lambda: list(self.connection.execute(sql)), self._notice):
            if answer.result is not None:
                return answer.result
        raise QueryError("the query returned no rows")

    def _execute(self, script: SqlScript) -> None:
        answers = self.connection.execute(script)
        while True:
            since = time.perf_counter()
            answer = patiently(lambda: next(answers, None), self._notice)
            if answer is None:
                return
            self.output.answer(answer, time.perf_counter() - since)
            if answer.changes is not None and not self._listen(Listening(answer.changes)):
                return

    def _listen(self, listening: Listening) -> bool:
        """Print changes until there are no more; False when Ctrl-C ended it, and with it the rest of the text."""
        printer = self.output.listener()
        try:
            with listening:
                for changes in listening:
                    printer.take(changes)
        except KeyboardInterrupt:
            if self.output.look is None:
                raise
            click.echo("\nsubscription ended")
            if self.connection.hangs_up or not listening.ended:
                self.connection.anew()
            return False
        finally:
            printer.close()
        return True

    def _notice(self) -> str:
        return STARTING if self.connection.starting() else ""


def _parts(script: SqlScript) -> Iterator[SqlScript | StatementText]:
    """Split a script: as a whole; or, if it has a WATCH, by statement, with each WATCH separate."""
    if not any(is_watch(s.sql) for s in script):
        yield script
        return
    for statement in script:
        yield statement if is_watch(statement.sql) else script.only(statement)


class Shell:
    """The shell on a terminal."""

    def __init__(self, connection: Connection, settings: Settings, form: str = "table") -> None:
        self.look = DisplayOptions()
        self.connection, self.settings = connection, settings
        self.runner = Runner(connection, AnswerPrinter(form, self.look))

    def run(self, prompt: Callable[[], str | SqlScript]) -> None:
        """Read and execute until the user leaves."""
        click.echo(f"millstream {__version__}, home {self.connection.where}. \\? for help, \\q to leave.")
        while True:
            try:
                typed = prompt()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if not self.take(typed):
                return

    def take(self, typed: str | SqlScript) -> bool:
        """Execute an input; False when the user wants to leave. No error ends the shell."""
        try:
            if isinstance(typed, str) and is_order(typed):
                return self.order(read_order(typed))
            self.runner.run(typed)
        except KeyboardInterrupt:
            self._cancelled()
        except MillstreamError as error:
            if self.settings.debug:
                traceback.print_exception(error)
            report_millstream(error, self.settings)
        except Exception as error:  # noqa: BLE001 - printed, and the shell continues
            report_unexpected(error, self.settings)
        return True

    def order(self, order: BackslashCommand) -> bool:
        """Execute a backslash command; False when the user wants to leave."""
        if order.name == "q":
            return False
        if order.name == "?":
            click.echo(help_text())
        elif order.name == "i":
            self.runner.run(*read_file(Path(order.argument).expanduser()))
        elif order.name == "watch":
            view, _, every = order.argument.rpartition(" ")
            timed = bool(view) and every[:1].isdigit()
            self.runner.watch(f"WATCH {view} EVERY {_interval_text(every)}" if timed else f"WATCH {order.argument}")
        elif order.name in SWITCHES:
            name = "expanded" if order.name == "x" else order.name
            now = switched(order, getattr(self.look, name))
            setattr(self.look, name, now)
            click.echo(f"{order.name} is {'on' if now else 'off'}")
        for sql in order.statements:
            self.runner.run(sql)
        return True

    def _cancelled(self) -> None:
        """Leave what runs in the old session, and continue in a new one."""
        click.echo(click.style("\ncancelled", fg="yellow") + ": a change that had begun may still be applied", err=True)
        try:
            self.connection.anew()
        except MillstreamError as error:
            report_millstream(error, self.settings)


def _interval_text(every: str) -> str:
    return f"{every} seconds" if every.replace(".", "", 1).isdigit() else every


def read_file(path: Path) -> tuple[str, str]:
    """The text of an SQL file, and its name in error messages."""
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DefinitionError(f"the file {path} cannot be read", detail=why) from None


def on_terminal() -> bool:
    """Whether a user can type here."""
    return sys.stdin.isatty() and sys.stdout.isatty()
