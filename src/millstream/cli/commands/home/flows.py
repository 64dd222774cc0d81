"""`millstream flows`: the flows of a home and their progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from millstream.cli.options import format_option, home_option
from millstream.cli.output import FORMATS, format_instant, print_listing

NAMES = ("flow", "state", "epoch", "rows", "errors", "late", "skipped", "watermark", "last_epoch_at")
COLUMNS = {name: name.replace("_", " ") for name in NAMES}
"""The columns with their headings."""


@click.command(short_help="List the flows with state and progress.")
@home_option()
@format_option(*FORMATS)
def command(home: Path, form: str) -> None:
    """List the flows that have run in a home, with state and progress.

    \b
    state       running, idle (nothing to do), restarting (failed: how often, when the next start is, why),
                finished (everything was read), failed and why, crash loop (failed too often) or stopped; a
                failure is remembered until the flow runs again
    rows        records read since the first epoch
    errors      records that were quarantined because they could not be read or computed
    late        records that were quarantined because they arrived too late
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
    print_listing(flows, COLUMNS, form, format_value=_format_value, none=nothing)


def _format_value(column: str, value: Any) -> Any:
    return format_instant(value) if column in ("watermark", "last_epoch_at") else value
