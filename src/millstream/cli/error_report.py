"""Prints warnings and errors: what happened, where, why, what to do; full reports go to a file."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import click

from millstream.cli.options import Settings
from millstream.errors import MillstreamError, RunError, plain


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings about a result or a setting on standard error."""
    for warning in warnings:
        click.echo(click.style("warning: ", fg="yellow", bold=True) + warning, err=True)


def report_millstream(error: MillstreamError, settings: Settings) -> None:
    """Print an error that Millstream foresaw."""
    detail = error.detail
    if type(error) is RunError and error.__cause__ is not None:  # an unforeseen fault in a flow's thread
        named = f"the full report is in {write_report(error, settings)}"
        detail = f"{detail}\n{named}" if detail else named
    _say(error.message, at=str(error.origin) if error.origin else None, detail=detail, hint=error.hint)


def report_usage(error: click.UsageError) -> None:
    """Print a usage error of a command."""
    command = error.ctx.command_path if error.ctx else "millstream"
    message = error.format_message().rstrip(".")
    _say(message[:1].lower() + message[1:], hint=f"see `{command} --help`")


def report_unexpected(error: Exception, settings: Settings) -> None:
    """Print an internal fault: one line, and the location of the full report."""
    text = plain(next(iter(str(error).strip().splitlines()), ""))
    problem = f"{type(error).__name__}: {text}" if type(error).__module__ == "builtins" else text
    where = write_report(error, settings)
    _say(
        f"unexpected {problem}" if type(error).__module__ == "builtins" else f"unexpected fault: {problem}",
        detail=f"the full report is in {where}",
        hint="this is a bug in Millstream; please report it",
    )


def write_report(error: BaseException, settings: Settings) -> Path:
    """Append the traceback to the home's log, or to a file in the temporary directory; returns which."""
    report = f"\n{datetime.now(UTC).isoformat()} ---- error ----\n" + "".join(traceback.format_exception(error))
    if settings.home is not None and (settings.home / "millstream.json").exists():
        path = settings.home.absolute() / "logs" / "millstream.log"
        try:
            path.parent.mkdir(exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(report)
        except OSError:
            pass
        else:
            return path
    with tempfile.NamedTemporaryFile("w", prefix="millstream-", suffix=".log", delete=False, encoding="utf-8") as other:
        other.write(report)
    return Path(other.name)


def _say(message: str, *, at: str | None = None, detail: str | None = None, hint: str | None = None) -> None:
    click.echo(click.style("error: ", fg="red", bold=True) + message, err=True)
    if at:
        click.echo(f"  at {at}", err=True)
    for line in (detail or "").splitlines():
        click.echo(f"  {line}", err=True)
    if hint:
        click.echo("  " + click.style("hint: ", fg="cyan") + hint, err=True)
