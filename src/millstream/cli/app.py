"""The `millstream` command: finds the commands, and turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import click

from millstream.cli.error_report import report_millstream, report_unexpected, report_usage
from millstream.cli.options import Settings
from millstream.errors import MillstreamError

COMMANDS = (
    *("demo", "init", "sql", "run", "check", "test", "query", "views", "flows", "watermarks"),
    *("log", "explain", "doctor", "checkpoint", "repair"),
)
"""In the order in which a newcomer meets them; each is `command` in the module of its name."""

UNEXPECTED = 70
"""The exit code of a fault of ours (EX_SOFTWARE)."""

INTERRUPTED = 130


class Commands(click.Group):
    """A group that loads a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of the help page."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, if there is one."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"millstream.cli.commands.{cmd_name}").command
        return found

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run, and end the process with a message and an exit code, never with a traceback."""
        run: Callable[..., Any] = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        settings = extra.setdefault("obj", Settings())
        sys.exit(guarded(settings, lambda: run(*args, standalone_mode=False, **extra)))


def guarded(settings: Settings, work: Callable[[], Any]) -> int:
    """The exit code of a piece of work; what went wrong is told on standard error."""
    try:
        code = work()
    except click.Abort:
        return INTERRUPTED
    except click.UsageError as error:
        report_usage(error)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except MillstreamError as error:
        if settings.debug:
            raise
        report_millstream(error, settings)
        return error.exit_code
    except Exception as error:
        if settings.debug:
            raise
        report_unexpected(error, settings)
        return UNEXPECTED
    return code if isinstance(code, int) else 0


def _show_version(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from millstream import __version__

        click.echo(f"millstream {__version__}")
        ctx.exit()


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, envvar="MILLSTREAM_DEBUG", help="Show tracebacks instead of messages.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
@click.pass_obj
def cli(settings: Settings, debug: bool) -> None:
    """Continuous queries over streams, in SQL and Python, on Spark.

    A flow says what you want to know; Millstream keeps the answer up to date while events arrive.

    \b
    Begin here:
      millstream demo                      an auction house, live in your terminal
      millstream doctor                    is this machine ready?
      millstream init auctions             a folder with a first flow in SQL, and its tests
    \b
    Then write a flow, in SQL or in Python, and ask:
      millstream sql                       the shell: define views, ask them, watch them change
      millstream check flow.sql            is it right? runs nothing (explain flow.py says what a flow would do)
      millstream run flow.sql              run it; Ctrl-C stops it, the next start goes on from there
      millstream views                     which views are there, how fresh are they
      millstream query "SELECT * FROM hot_auctions LIMIT 10"

    Everything a flow keeps is in one directory, its home: --home DIR, or the variable MILLSTREAM_HOME, or
    ./millstream-home.
    """  # noqa: D301 - click reads the control character \b
    settings.debug = debug
