"""`millstream run`: runs the flows of a file until they have caught up, have ended, or a stop is requested."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from millstream.cli.options import DEFAULT_HOME, home_option, master_option, memory_option, state_option
from millstream.cli.output import format_seconds, plural
from millstream.errors import EngineFailed

if TYPE_CHECKING:
    from millstream.cli.meter import Meter
    from millstream.cli.signals import Stop
    from millstream.home import Home
    from millstream.runtime.epoch.loop import EpochReport
    from millstream.runtime.supervision.run import Run

TICK_SECONDS = 0.2
QUIET_TICKS = 5
"""Without a terminal, print a progress line at most every this many ticks."""

MODES = ("passive", "active")
ENDED = ("finished", "failed", "crash loop", "stopped")
BROKEN = ("failed", "crash loop")


@click.command(short_help="Run the flows of a SQL or Python file.")
@click.argument("flow_file", metavar="FLOW.sql|FLOW.py", type=click.Path(path_type=Path))
@home_option()
@click.option("--until-caught-up", is_flag=True, help="Stop when everything that exists now has been read.")
@click.option("--flow", "name", metavar="NAME", help="Run only this flow of the file.")
@click.option(
    "--standby",
    type=click.Choice(MODES),
    help="Wait until the process that owns the home dies or freezes, then resume its flows; an active standby "
    "performs its epochs too, to take over faster.",
)
@click.option(
    "--take-over", is_flag=True, help="If the process that owns the home is frozen, end it and resume its flows."
)
@memory_option()
@master_option()
@state_option()
def command(
    flow_file: Path,
    home: Path,
    until_caught_up: bool,
    name: str | None,
    standby: str | None,
    take_over: bool,
    memory: str | None,
    spark_master: str | None,
    state: str | None,
) -> None:
    """Run the flows of a Python file, or the statements of a SQL file.

    A flow resumes where it stopped when it last ran in this home; nothing is lost or counted twice. When it fails, it
    is restarted a few times. Ctrl-C stops it after the current epoch. If a Python file has a dict TABLES, its tables
    are stored in the home first, for `enrich`. For a SQL file, definitions that already exist in the home stay
    unchanged; then all flows that SQL has defined there run.

    \b
    A complete flow file:
      import millstream as ms
      flow = ms.Flow("auctions")
      bids = flow.source("bids", ms.files("data/bids", format="json"),
                         schema="auction BIGINT, price BIGINT, ts TIMESTAMP", event_time="ts")
      bids.key_by("auction").window(ms.tumbling("10 seconds")).aggregate(n=ms.count()).view("hot_auctions")
    \b
    Examples:
      millstream run flow.py                       until Ctrl-C; `millstream query` works meanwhile
      millstream run flow.sql                      the same for SQL; `millstream sql` connects to it
      millstream run flow.py --until-caught-up     read the available records, then stop
      millstream run flow.py --home /data/home --flow auctions
      millstream run flow.py --standby active      in a second terminal: resumes when the first run dies
      millstream run flow.py --master spark://127.0.0.1:7077     on a cluster; see `millstream cluster`
      millstream run flow.py --master spark://host:7077 --state s3://bucket/prefix
    """  # noqa: D301 - click reads the control character \b
    if flow_file.suffix == ".sql":
        from millstream.cli.commands.run.run_sql import run_sql

        run_sql(
            flow_file,
            home,
            memory,
            spark_master,
            state,
            until_caught_up=until_caught_up,
            name=name,
            standby=standby,
            take_over=take_over,
        )
        return

    from millstream.cli.commands.run.ownership import TakeoverGap, owned
    from millstream.cli.flow_file import load
    from millstream.cli.meter import Meter
    from millstream.cli.signals import stop_on_signals

    loaded = load(flow_file, name)
    meters = {f.name: Meter() for f in loaded.flows}
    flows = ", ".join(f.name for f in loaded.flows)
    with (
        display() as show,
        stop_on_signals(lambda: show.note("stopping after the current epoch ...")) as stop,
        owned(
            loaded.flows, home, memory, spark_master, state, stop, show, standby=standby, take_over=take_over
        ) as owning,
    ):
        if owning is None:
            return
        opened, before = owning
        for table, data in loaded.tables.items():
            opened.put_table(table, data)
        show.note(f"{flows}: starting Spark ..." if before is None else f"{flows}: taking over ...")
        gaps = {f.name: TakeoverGap(f.name, before, show) for f in loaded.flows}
        runs = [opened.start(f, on_epoch=_both(meters[f.name].take, gaps[f.name].take)) for f in loaded.flows]
        follow(runs, meters, stop, show, until_caught_up=until_caught_up)
        done = summary(opened, runs, meters, home)
    for line in done:
        click.echo(line)


def _both(*listeners: Callable[[EpochReport], None]) -> Callable[[EpochReport], None]:
    def take(report: EpochReport) -> None:
        for listener in listeners:
            listener(report)

    return take


class Shows(Protocol):
    """The output for progress."""

    def note(self, text: str) -> None:
        """Show a one-time message."""

    def progress(self, lines: list[str]) -> None:
        """Show the current progress, replacing the previous one."""


def follow(runs: list[Run], meters: dict[str, Meter], stop: Stop, show: Shows, *, until_caught_up: bool) -> None:
    """Show the progress of the runs until all of them end. Raises the error that stopped one of them."""
    caught = [_catch_up(run) for run in runs] if until_caught_up else []
    try:
        while not stop.wait(TICK_SECONDS):
            if any(r.state in BROKEN for r in runs) or all(r.state in ENDED for r in runs):
                break
            if caught and not any(thread.is_alive() for thread in caught):
                break
            lines = [_line(run, meters[run.flow]) for run in runs if run.state not in ("starting", *BROKEN)]
            if lines:
                show.progress(lines)
    finally:
        for run in runs:
            run.stop()
    for run in runs:
        if run.error is not None and not (stop.requested and isinstance(run.error, EngineFailed)):
            raise run.error  # a signal to the whole process group ends Spark's Java process too


def _line(run: Run, meter: Meter) -> str:
    return f"{run.flow}: {run.status if run.state == 'restarting' else meter.read().line()}"


def _catch_up(run: Run) -> threading.Thread:
    """Wait in a separate thread, so that this one can draw and handle signals."""

    def wait() -> None:
        try:
            run.catch_up()
        except Exception:  # noqa: BLE001 - `follow` looks at run.error itself
            return

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def summary(home: Home, runs: list[Run], meters: dict[str, Meter], home_option: Path) -> list[str]:
    """The summary: the work done, the current rows, and what to type next."""
    states = {"finished": "finished: everything was read"}
    lines = []
    for run in runs:
        reading = meters[run.flow].read()
        took = f", p50 {format_seconds(reading.p50)} each" if reading.p50 is not None else ""
        done = f"{plural(reading.rows, 'row')} in {plural(reading.epochs, 'epoch')}{took}"
        apart = f"; {reading.late:,} late, {reading.errors:,} errors" if reading.late or reading.errors else ""
        lines.append(f"{run.flow}: {states.get(run.state, 'stopped')}, {done}{apart}")
    mine = [v for v in home.views() if v["flow"] in {r.flow for r in runs}]
    lines += [f"  view {view['view']}: {plural(view['rows'], 'row')}" for view in mine]
    if mine:
        where = "" if str(home_option) == DEFAULT_HOME else f" --home {shlex.quote(str(home_option))}"
        lines.append(f'query it: millstream query "SELECT * FROM {mine[0]["view"]} LIMIT 10"{where}')
    return lines


# ---------------------------------------------------------------- progress, on a terminal and elsewhere


@contextmanager
def display() -> Iterator[Shows]:
    """Show progress on standard error: lines that update themselves on a terminal, plain ones elsewhere."""
    if not sys.stderr.isatty():
        yield _Plain()
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    class Lively:
        """Lines that replace one another, with a spinner in front."""

        def __init__(self, live: Live) -> None:
            self.live = live
            self.spinner = Spinner("dots", style="cyan")

        def note(self, text: str) -> None:
            self.progress([text])

        def progress(self, lines: list[str]) -> None:
            grid = Table.grid(padding=(0, 1))
            grid.add_column(width=1)
            grid.add_column(no_wrap=True, overflow="ellipsis")
            grid.add_row(self.spinner, Text("\n".join(lines)))
            self.live.update(grid)

    with Live(console=Console(stderr=True, highlight=False), refresh_per_second=8, transient=True) as live:
        yield Lively(live)


class _Plain:
    def __init__(self) -> None:
        self._ticks = 0
        self._said: list[str] = []

    def note(self, text: str) -> None:
        click.echo(text, err=True)

    def progress(self, lines: list[str]) -> None:
        self._ticks += 1
        if (self._ticks - 1) % QUIET_TICKS == 0 and lines != self._said:
            self._said = lines
            for line in lines:
                click.echo(line, err=True)
