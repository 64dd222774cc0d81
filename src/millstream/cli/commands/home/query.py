"""`millstream query`: runs one query over the views of a home, as of one epoch."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from millstream.cli.options import format_option, home_option
from millstream.cli.output import FORMATS, print_result
from millstream.runtime.inspect.status import ERROR, FAILED_VIEWS


@click.command(short_help="Query the views, in Spark SQL.")
@click.argument("sql")
@home_option()
@format_option(*FORMATS)
@click.option(
    "--failed-views",
    type=click.Choice(FAILED_VIEWS),
    default=ERROR,
    show_default=True,
    help="What to do about a view that has failed: report an error, or show its last rows with a warning.",
)
def command(sql: str, home: Path, form: str, failed_views: str) -> None:
    """Query the views of a home, in Spark SQL.

    Works while a flow runs in the home (its process answers) and when none does. The result always shows one whole
    epoch. With - the query is read from standard input.

    \b
    Examples:
      millstream query "SELECT * FROM hot_auctions ORDER BY bids DESC LIMIT 10"
      millstream query "SELECT count(*) AS n FROM totals" --format json
      millstream query 'SELECT * FROM bids$errors' --home ./elsewhere     rejected records, and why
      millstream query - --format csv < query.sql > answer.csv
    """  # noqa: D301 - click reads the control character \b
    from millstream.reader import Reader

    text = sys.stdin.read() if sql == "-" else sql
    with Reader(home) as reader:
        print_result(reader.query(text, failed_views=failed_views), form)
