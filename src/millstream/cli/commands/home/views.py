"""`millstream views`: the views of a home, and how fresh they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from millstream.cli.options import format_option, home_option
from millstream.cli.output import FORMATS, format_instant, format_seconds, print_listing

NAMES = (
    *("view", "flow", "rows", "epoch", "changed_in_epoch", "watermark", "freshness_seconds"),
    *("offered", "applied", "late", "errors", "filtered", "pending", "state"),
)
SPOKEN = {"changed_in_epoch": "changed in", "freshness_seconds": "freshness"}
COLUMNS = {name: SPOKEN.get(name, name) for name in NAMES}
"""The columns with their headings."""


@click.command(short_help="List the views with size and freshness.")
@home_option()
@format_option(*FORMATS)
def command(home: Path, form: str) -> None:
    """List the views: rows, last epoch, watermark, freshness, late and rejected records.

    \b
    rows        how many rows the view has
    epoch       the last epoch of its flow; `changed in` is the last one that changed this view
    watermark   the event time up to which it is complete (UTC)
    freshness   how long ago the last epoch began
    offered     records of its sources: those that were read, and those that are pending
    applied     records that were applied to the view
    late        records that arrived too late; they are in VIEW$late
    errors      records that could not be read, and rows that failed; in SOURCE$errors and VIEW$errors
    filtered    records that its conditions dropped
    pending     records that wait in the sources; - while the flow does not run
    state       that of its flow: running, idle, ..., stopped; failed and why, also after the process has ended
    \b
    Examples:
      millstream views
      millstream views --home ./elsewhere --format json
    """  # noqa: D301 - click reads the control character \b
    from millstream.reader import Reader

    with Reader(home) as reader:
        views = reader.views()
    nothing = "no views yet: run a flow first, `millstream run FLOW.py`"
    print_listing(views, COLUMNS, form, format_value=_format_value, none=nothing)


def _format_value(column: str, value: Any) -> Any:
    if column == "watermark":
        return format_instant(value)
    if column == "freshness_seconds":
        return format_seconds(value)
    return "-" if value is None and column in ("offered", "filtered", "pending") else value
