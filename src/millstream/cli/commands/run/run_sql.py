"""`millstream run FLOW.sql`: executes the statements of a file in a home, then runs the flows of all its views."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.commands.run.ownership import owned
from millstream.cli.commands.run.run import Shows, display, follow, summary
from millstream.cli.meter import Meter, MeterReading
from millstream.cli.output import print_result
from millstream.cli.shell.shell import read_file
from millstream.cli.shell.waiting import patiently
from millstream.cli.signals import stop_on_signals
from millstream.errors import DefinitionError, StatementRefused, Unsupported

if TYPE_CHECKING:
    from millstream.live.session import Session
    from millstream.runtime.supervision.run import Run

SUFFIX = ".sql"


class RunMeter(Meter):
    """A meter that shows what a run has reported since the last read."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._seen = 0

    def read(self) -> MeterReading:
        """The current values."""
        for report in [r for r in list(self._run.reports) if r.number > self._seen]:
            self._seen = report.number
            self.take(report)
        return super().read()


def run_sql(
    path: Path,
    home: Path,
    memory: str | None,
    master: str | None,
    state: str | None,
    *,
    until_caught_up: bool,
    name: str | None = None,
    standby: str | None = None,
    take_over: bool = False,
) -> None:
    """Execute the statements of a file in a home, and run what SQL has defined there until a stop is requested."""
    if name is not None:
        raise Unsupported(
            "--flow is for Python files", hint="PAUSE a flow that should not run: millstream sql -c 'PAUSE f'"
        )
    if standby is not None:
        raise Unsupported("a standby for flows made by SQL is not supported yet", hint="docs/limits.md lists what else")
    text, called = read_file(path)
    with (
        display() as show,
        stop_on_signals(lambda: show.note("stopping after the current epoch ...")) as stop,
        owned([], home, memory, master, state, stop, show, standby=None, take_over=take_over) as owning,
    ):
        if owning is None:
            return
        opened, _ = owning
        session = opened.session()
        perform(session, text, called, show)
        runs = list(session.deployment.runs.values())
        if not runs:
            raise DefinitionError(
                f"there is nothing to run in {home}",
                hint="CREATE VIEW ... AS SELECT ..., or RESUME a flow",
            )
        show.note(f"{', '.join(r.flow for r in runs)}: starting Spark ...")
        meters: dict[str, Meter] = {r.flow: RunMeter(r) for r in runs}
        follow(runs, meters, stop, show, until_caught_up=until_caught_up)
        done = summary(opened, runs, meters, home)
    for line in done:
        click.echo(line)


def perform(session: Session, text: str, name: str, show: Shows) -> None:
    """Execute statements; definitions that exist with the same text stay unchanged, and are not mentioned."""
    answers = session.execute(text, name=name)
    while (answer := patiently(lambda: next(answers, None))) is not None:
        if answer.changes is not None:
            raise StatementRefused(
                "SUBSCRIBE has no end, and is not allowed in a file to run", hint="see `millstream sql -c`"
            )
        if answer.message and not answer.unchanged:
            show.note(answer.message)
        if answer.text:
            click.echo(answer.text)
        if answer.result is not None:
            print_result(answer.result, "table")
