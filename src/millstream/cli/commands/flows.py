"""`millstream flows`: the flows of a home, and how far they have come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from millstream.cli.options import format_option, home_option
from millstream.cli.output import FORMATS, print_listing, spoken_instant

NAMES = ("flow", "state", "epoch", "rows", "errors", "late", "skipped", "watermark", "last_epoch_at")
COLUMNS = {name: name.replace("_", " ") for name in NAMES}
"""The columns with their headings."""


@click.command(short_help="List the flows, and how far they have come.")
@home_option()
@format_option(*FORMATS)
def command(home: Path, form: str) -> None:
    """List the flows that have run in a home, and how far they have come.

    \b
    state       running, idle (nothing to do just now), restarting (it failed: how often, when again, why),
                finished (all was read), failed and why, crash loop (it failed too often) or stopped; that a
                flow failed is remembered until it runs again
    rows        records read since the first epoch;  errors and late: those that were set apart
    skipped     offsets that a flow with at_most_once left out after a failure
    watermark   the event time up to which all its views are complete (UTC)
    \b
    Examples:
      millstream flows
      millstream flows --format json
    """  # noqa: D301 - click reads the control character \b
    from millstream.reader import Reader

    with Reader(home) as reader:
        flows = reader.flows()
    nothing = "no flows yet: run one first, `millstream run FLOW.py`"
    print_listing(flows, COLUMNS, form, spoken=_spoken, none=nothing)


def _spoken(column: str, value: Any) -> Any:
    return spoken_instant(value) if column in ("watermark", "last_epoch_at") else value
