"""The `millstream` command: finds the commands, and converts errors to messages and exit codes."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import click

from millstream.cli.error_report import print_warnings, report_millstream, report_unexpected, report_usage
from millstream.cli.exit_codes import ExitCode
from millstream.cli.options import Settings
from millstream.errors import MillstreamError
from millstream.settings import DEBUG, SettingDeprecated, find, old_variables

COMMANDS = {
    "demo": "demo",
    "init": "project.init",
    "sql": "sql",
    "run": "run.run",
    "check": "project.check",
    "test": "project.test",
    "query": "home.query",
    "views": "home.views",
    "flows": "home.flows",
    "watermarks": "home.watermarks",
    "log": "log.log",
    "explain": "project.explain",
    "doctor": "machine.doctor",
    "config": "config",
    "checkpoint": "home.checkpoint",
    "repair": "home.repair",
    "cluster": "machine.cluster",
}
"""In the order in which a new user needs them. Each is `command` in this module of `cli/commands/`."""


class Commands(click.Group):
    """A group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of the help page."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, if there is one."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"millstream.cli.commands.{COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run, and end the process with a message and an exit code, never with a traceback."""
        run: Callable[..., Any] = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        settings = extra.setdefault("obj", Settings())
        sys.exit(guarded(settings, lambda: run(*args, standalone_mode=False, **extra)))


def guarded(settings: Settings, work: Callable[[], Any]) -> int:
    """Run a function and return its exit code; errors are printed on standard error."""
    try:
        code = work()
    except click.Abort:
        return ExitCode.INTERRUPTED
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
        return ExitCode.UNEXPECTED
    return code if isinstance(code, int) else 0


def _show_version(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from millstream import __version__

        click.echo(f"millstream {__version__}")
        ctx.exit()


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show tracebacks instead of messages.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Continuous queries over streams, in SQL and Python, on Spark.

    A flow describes a result; Millstream keeps the result up to date while events arrive.

    \b
    Start here:
      millstream demo                      an auction house, live in your terminal
      millstream doctor                    is this machine ready?
      millstream init auctions             a folder with a first flow in SQL, and its tests
    \b
    Then write a flow, in SQL or in Python, and query it:
      millstream sql                       the shell: define views, query them, watch them change
      millstream check flow.sql            find mistakes without running anything
      millstream run flow.sql              run it; Ctrl-C stops it, the next start resumes
      millstream views                     list the views, and how fresh they are
      millstream query "SELECT * FROM hot_auctions LIMIT 10"

    Everything that a flow keeps is in one directory, its home. Options take precedence over environment variables
    (MILLSTREAM_HOME, ...), and these over the file millstream.toml; `millstream config` shows the settings.
    Exit codes: 0 done, 1 a check failed, 2 usage, 3 source or sink, 4 home, 5 flow, 6 query, 7 log, 70 an internal
    fault, 130 interrupted.
    """  # noqa: D301 - click reads the control character \b
    settings = ctx.ensure_object(Settings)
    settings.debug = find(DEBUG, debug or None).value
    print_warnings(old_variables())
    warnings.filterwarnings("ignore", category=SettingDeprecated)  # already printed
