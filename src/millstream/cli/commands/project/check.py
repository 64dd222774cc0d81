"""`millstream check`: finds all errors in SQL files (or Python flows) without running anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import orjson

from millstream.cli.exit_codes import ExitCode
from millstream.cli.options import format_option
from millstream.cli.output import plural
from millstream.errors import MillstreamError


@click.command(short_help="Find all mistakes in SQL files, without running them.")
@click.argument("files", metavar="FLOW.sql...", nargs=-1, required=True, type=click.Path(path_type=Path))
@format_option("text", "json")
def command(files: tuple[Path, ...], form: str) -> int:
    """Find all mistakes in SQL files, without running anything.

    Statements are read one after the other; a mistake does not end the check. Views are bound to the sources, tables
    and views that earlier statements define. State that grows without bound is a warning. Python is loaded where a
    file names it (CREATE FUNCTION). Files of Python flows can be checked too. The exit code is 2 when there is an
    error.

    \b
    Examples:
      millstream check flow.sql
      millstream check sources.sql views.sql      in this order, as if they were one file
      millstream check flow.sql --format json     for an editor or a build
    """  # noqa: D301 - click reads the control character \b
    from millstream.cli.commands.project.check_files import Checking

    report = Report()
    checking = Checking(report)
    for path in files:
        if path.suffix == ".py":
            check_python(path, report)
        else:
            checking.file(path)
    if form == "json":
        click.echo(orjson.dumps(report.as_json(), option=orjson.OPT_INDENT_2).decode())
    else:
        report.print()
    return ExitCode.USAGE if report.errors else ExitCode.OK


@dataclass
class Report:
    """The findings."""

    statements: int = 0
    flows: int = 0
    errors: list[MillstreamError] = field(default_factory=list)
    warnings: list[MillstreamError] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """``3 statements, 2 errors``."""
        parts = [plural(n, what) for n, what in ((self.statements, "statement"), (self.flows, "flow")) if n]
        parts = parts or [plural(0, "statement")]
        parts.append(plural(len(self.errors), "error") if self.errors else "no errors")
        if self.warnings:
            parts.append(plural(len(self.warnings), "warning"))
        return ", ".join(parts)

    def print(self) -> None:
        """Print the findings in the order of the text."""
        marked = [("error: ", "red", e) for e in self.errors] + [("warning: ", "yellow", w) for w in self.warnings]
        for label, colour, found in marked:
            click.echo(click.style(label, fg=colour, bold=True) + str(found) + "\n")
        click.echo(self.summary)

    def as_json(self) -> dict[str, Any]:
        """The findings for a program."""
        return {
            "statements": self.statements,
            "flows": self.flows,
            "errors": [_as_json(e) for e in self.errors],
            "warnings": [_as_json(w) for w in self.warnings],
        }


def _as_json(error: MillstreamError) -> dict[str, Any]:
    where = error.origin
    return {
        "code": error.code,
        "message": error.message,
        "file": where.file if where else None,
        "line": where.line if where else None,
        "column": where.column or None if where else None,
        "detail": error.detail,
        "hint": error.hint,
        "excerpt": where.excerpt or None if where else None,
    }


def check_python(path: Path, report: Report) -> None:
    """Load a file of Python flows and plan them."""
    from millstream.cli.flow_file import load
    from millstream.plan.planner import plan

    try:
        flows = load(path).flows
    except MillstreamError as error:
        report.errors.append(error)
        return
    for flow in flows:
        report.flows += 1
        try:
            plan(flow)
        except MillstreamError as error:
            report.errors.append(error)
