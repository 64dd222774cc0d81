"""`millstream config`: the effective settings, and the source of each."""

from __future__ import annotations

from pathlib import Path

import click

from millstream.cli.error_report import print_warnings
from millstream.cli.options import format_option, home_option
from millstream.cli.output import FORMATS, print_rows
from millstream.settings import SETTINGS, files, find, unknown_variables

COLUMNS = ("setting", "value", "from", "variable", "meaning")


@click.command(short_help="Show the settings, and where each comes from.")
@home_option(text="Show the settings for this home.")
@format_option(*FORMATS)
@click.pass_context
def command(ctx: click.Context, home: Path, form: str) -> None:
    """Show the settings that are in effect, and where each comes from.

    The first of these that is set applies: an option or Python argument, an environment variable, the file
    millstream.toml in the current directory, the file millstream.toml in the home, the default. Secrets are not
    shown. A key or value in a file that cannot be used is an error.

    \b
    Examples:
      millstream config
      millstream config --home ./elsewhere --format json
      MILLSTREAM_QUERY_TIMEOUT=5 millstream config
    """  # noqa: D301 - click reads the control character \b
    rows = []
    for setting in SETTINGS:
        found = find(setting, home=home)
        value, origin = found.shown(), found.origin
        given = ctx.get_parameter_source("home") is click.core.ParameterSource.COMMANDLINE
        if setting.name == "home" and given:
            value, origin = str(home), "option --home"
        rows.append([setting.name, value, origin, setting.variable, setting.meaning])
    print_rows(COLUMNS if form != "table" else COLUMNS[:3], rows if form != "table" else [r[:3] for r in rows], form)
    if form == "table":
        for path in files(home):
            click.echo(f"{path}: {'read' if path.is_file() else 'not there'}")
    print_warnings(unknown_variables())
