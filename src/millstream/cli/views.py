"""`millstream views`: the views of a home, and how fresh they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from millstream.cli.options import format_option, home_option
from millstream.cli.output import FORMATS, print_rows, spoken_instant, spoken_seconds

COLUMNS = (
    *("view", "flow", "rows", "epoch", "changed_in_epoch", "watermark", "freshness_seconds"),
    *("applied", "late", "errors"),
)
SPOKEN = {"changed_in_epoch": "changed in", "freshness_seconds": "freshness"}


@click.command(short_help="List the views, and how fresh they are.")
@home_option()
@format_option(*FORMATS)
def command(home: Path, form: str) -> None:
    """List the views: rows, last epoch, watermark, freshness, late and wrong records.

    \b
    rows        how many rows the view has
    epoch       the last epoch of its flow; `changed in` is the last one that changed this view
    watermark   the event time up to which it is complete (UTC)
    freshness   how long ago the last epoch began
    applied     records taken in
    late        records that came too late; they are in VIEW$late
    errors      records that could not be read; they are in SOURCE$errors
    \b
    Examples:
      millstream views
      millstream views --home ./elsewhere --format json
    """  # noqa: D301 - click reads the control character \b
    from millstream.reader import Reader

    with Reader(home) as reader:
        views = reader.views()
    if form != "table":
        print_rows(COLUMNS, [[v[c] for c in COLUMNS] for v in views], form)
    elif not views:
        click.echo("no views yet: run a flow first, `millstream run FLOW.py`")
    else:
        print_rows([SPOKEN.get(c, c) for c in COLUMNS], [[_spoken(c, v[c]) for c in COLUMNS] for v in views], form)


def _spoken(column: str, value: Any) -> Any:
    if column == "watermark":
        return spoken_instant(value)
    return spoken_seconds(value) if column == "freshness_seconds" else value
