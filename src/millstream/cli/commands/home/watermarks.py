"""`millstream watermarks`: the progress of the sources in event time, and which partition holds a flow back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from millstream.cli.options import format_option, home_option
from millstream.cli.output import FORMATS, format_instant, print_listing

NAMES = (
    *("flow", "source", "partition", "newest", "watermark", "lateness", "heard_at"),
    *("idle", "ended", "holds", "since"),
)
COLUMNS = {name: name.replace("_", " ") for name in NAMES}
"""The columns with their headings."""

TIMES = ("newest", "watermark", "heard_at", "since")


@click.command(short_help="Show watermarks, and what holds a flow back.")
@home_option()
@format_option(*FORMATS)
def command(home: Path, form: str) -> None:
    """Show the watermark of every partition of every source, and which one holds its flow back.

    \b
    newest      the newest event time of its records; with punctuation, the newest one promised (UTC)
    watermark   the newest event time less the lateness of the source
    heard at    when a record of it was last read
    idle        silent for the idle_timeout of the source, so it holds nothing back
    ended       read to its end
    holds       it holds the flow back, and has not moved since the time in `since`
    \b
    A flow that does not run is shown as it was in its last epoch.
    \b
    Examples:
      millstream watermarks
      millstream watermarks --home ./elsewhere --format json
    """  # noqa: D301 - click reads the control character \b
    from millstream.reader import Reader

    with Reader(home) as reader:
        rows = reader.watermarks()
    nothing = "no sources yet: run a flow first, `millstream run FLOW.py`"
    print_listing(rows, COLUMNS, form, format_value=_format_value, none=nothing)
    if form == "table" and rows:
        click.echo()
        for sentence in holder_sentences(rows):
            click.echo(sentence)


def holder_sentences(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One sentence per flow: which partition holds it back, and since when."""
    for flow, partitions in groupby(rows, lambda r: r["flow"]):
        mine = list(partitions)
        holder = next((r for r in mine if r["holds"]), None)
        if holder is not None:
            newest = holder["newest"]
            what = f"its newest event time is {format_instant(newest)}" if newest else "it has had no event time yet"
            since = f" since {format_instant(holder['since'])}" if holder["since"] else ""
            yield f"{flow} is held back by partition {holder['partition']} of {holder['source']}{since}: {what}."
        elif all(r["ended"] for r in mine):
            yield f"{flow} is not held back: everything was read."
        else:
            yield f"{flow} is not held back: it follows the clock."


def _format_value(column: str, value: Any) -> Any:
    if column in TIMES:
        return format_instant(value)
    if isinstance(value, bool):
        return "yes" if value else "-"
    return "-" if value is None else value
