"""`millstream explain`: what a flow file would run, without running it."""

from __future__ import annotations

from pathlib import Path

import click
import orjson

from millstream.cli.options import format_option


@click.command(short_help="Show what a flow would do, without running it.")
@click.argument("flow_file", metavar="FLOW.py", type=click.Path(path_type=Path))
@click.option("--flow", "name", metavar="NAME", help="Explain only this flow of the file.")
@format_option("text", "json")
def command(flow_file: Path, name: str | None, form: str) -> None:
    """Show what a flow would do: its operators, what is computed before any state, what state is kept.

    Nothing runs, and neither Spark nor the data is needed. Mistakes in the flow are reported.

    \b
    Read it from top to bottom:
      source    where records come from, and which views share one pass over them
      scan      what is computed before any state: filters, columns, joins to stored tables
      exchange  how rows are brought together by key
      kernel    the operators, and how long their state is kept
      table     what can be queried, what identifies a row, how long rows stay
    \b
    Examples:
      millstream explain flow.py
      millstream explain flow.py --flow auctions --format json
    """  # noqa: D301 - click reads the control character \b
    from millstream.cli.flow_file import load
    from millstream.plan.explain.plan_tree import as_json, explain, text
    from millstream.plan.planner import plan

    trees = [explain(plan(flow)) for flow in load(flow_file, name).flows]
    if form == "json":
        click.echo(orjson.dumps([as_json(t) for t in trees], option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo("\n\n".join(text(t) for t in trees))
