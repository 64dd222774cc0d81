"""`millstream flows`: the flows of a home, and how far they have come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from millstream.cli.options import format_option, home_option
from millstream.cli.output import FORMATS, print_rows, spoken_instant

COLUMNS = ("flow", "state", "epoch", "rows", "errors", "late", "watermark", "last_epoch_at")


@click.command(short_help="List the flows, and how far they have come.")
@home_option()
@format_option(*FORMATS)
def command(home: Path, form: str) -> None:
    """List the flows that have run in a home, and how far they have come.

    \b
    state       running, idle (nothing to do just now), finished (all was read), failed or stopped
    rows        records read since the first epoch;  errors and late: those that were set apart
    watermark   the event time up to which all its views are complete (UTC)
    \b
    Examples:
      millstream flows
      millstream flows --format json
    """  # noqa: D301 - click reads the control character \b
    from millstream.reader import Reader

    with Reader(home) as reader:
        flows = reader.flows()
    if form != "table":
        print_rows(COLUMNS, [[f[c] for c in COLUMNS] for f in flows], form)
    elif not flows:
        click.echo("no flows yet: run one first, `millstream run FLOW.py`")
    else:
        names = [c.replace("_", " ") for c in COLUMNS]
        print_rows(names, [[_spoken(c, f[c]) for c in COLUMNS] for f in flows], form)


def _spoken(column: str, value: Any) -> Any:
    return spoken_instant(value) if column in ("watermark", "last_epoch_at") else value
