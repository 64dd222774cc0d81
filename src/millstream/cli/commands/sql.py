"""`millstream sql`: the SQL shell; or the statements of -c, -f or standard input, for programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from millstream.cli.options import Settings, format_option, home_option, master_option, memory_option, state_option


@click.command(short_help="Open the SQL shell, or run statements.")
@home_option()
@click.option("-c", "commands", metavar="SQL", multiple=True, help="Run this, then exit; may be repeated.")
@click.option(
    "-f",
    "files",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Run the statements of a file, then exit; may be repeated; files run before -c.",
)
@format_option("table", "csv", "json", "arrow")
@memory_option()
@master_option()
@state_option()
@click.pass_obj
def command(
    settings: Settings,
    home: Path,
    commands: tuple[str, ...],
    files: tuple[Path, ...],
    form: str,
    memory: str | None,
    spark_master: str | None,
    state: str | None,
) -> None:
    """Open the SQL shell: define views, query them, watch them change. Or run statements and leave.

    If a process owns the home, it runs the statements. If none does, the shell opens the home itself, and the flows of
    its views run as long as the shell does. In the shell, \\? lists the commands. Without a terminal, and with -c or
    -f, the first error ends it with an exit code.

    \b
    Examples:
      millstream sql                                              the shell
      millstream sql -c "SELECT * FROM hot_auctions LIMIT 10"
      millstream sql -f views.sql -c "SHOW VIEWS"
      millstream sql -c "SUBSCRIBE TO hot_auctions" --format json one line per change
      millstream sql --master spark://127.0.0.1:7077              on a cluster; see `millstream cluster`
      millstream sql --format arrow < query.sql > answer.arrows
    """  # noqa: D301 - click reads the control character \b
    from millstream.cli.connection import connected
    from millstream.cli.shell.output import AnswerPrinter
    from millstream.cli.shell.shell import Runner, Shell, on_terminal, read_file

    scripts = [read_file(f) for f in files] + [(c, "-c") for c in commands]
    interactive = not scripts and on_terminal()
    if not scripts and not interactive:
        scripts = [(sys.stdin.read(), "stdin")]
    output = AnswerPrinter(form)
    with connected(home, memory, spark_master, state) as connection:
        if interactive:
            from millstream.cli.shell.prompt import make_prompt

            Shell(connection, settings, form).run(make_prompt(connection))
            return
        runner = Runner(connection, output)
        try:
            for text, name in scripts:
                runner.run(text, name)
        except BrokenPipeError:  # the reader of the output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
