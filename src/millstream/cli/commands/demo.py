"""`millstream demo`: a live auction house. Starts Spark and the flow, draws the screen, and prints a summary."""

from __future__ import annotations

import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from millstream import paths
from millstream.cli.options import DurationType, home_option
from millstream.cli.output import format_instant, format_seconds, plural
from millstream.model.types.duration import Duration

if TYPE_CHECKING:
    from millstream.cli.meter import Meter, MeterReading
    from millstream.cli.signals import Stop
    from millstream.home import Home
    from millstream.runtime.supervision.run import Run

TICK_SECONDS = 0.1
FRAME_SECONDS = 1.0
"""How often rows and figures are queried: a screen that changes once a second is readable."""

TOP = 5
FEWEST = 8
"""The minimum number of rows per query; a tall screen needs more."""

CLOSING = "closing the auction house after the current epoch ..."


@click.command(short_help="Watch an auction house, live in your terminal.")
@click.option(
    "--for",
    "duration",
    type=DurationType(),
    metavar="DURATION",
    help="End after this time, e.g. 20s or 2min.  [default: at Ctrl-C]",
)
@click.option("--rate", type=click.IntRange(1, 1_000_000), default=2_000, show_default=True, help="Events per second.")
@home_option(temporary=True, text="Keep the home in this directory.  [default: a temporary one]")
def command(duration: Duration | None, rate: int, home: Path | None) -> None:
    """Run an auction house and watch its views change, live in your terminal.

    Persons join, auctions open, bids arrive (the events of the Nexmark benchmark, generated). Five views are kept
    up to date, exactly once, and drawn once a second together with the rate, the watermark, the freshness and the
    duration of an epoch. Needs Java 17 and nothing else.

    \b
    Examples:
      millstream demo                        until Ctrl-C
      millstream demo --for 20s              ends by itself, with a summary
      millstream demo --rate 20000           ten times as busy
      millstream demo --home ./demo-home     keep it; query it from another terminal meanwhile:
      millstream query "SELECT * FROM seller_sales ORDER BY worth DESC LIMIT 5" --home ./demo-home
    """  # noqa: D301 - click reads the control character \b
    from millstream.cli.meter import Meter
    from millstream.cli.signals import stop_on_signals
    from millstream.engine.spark import session
    from millstream.home import Home

    meter, home_option = Meter(), home
    with _place(home) as path, Home(path) as opened:
        try:
            with stop_on_signals() as stop:
                run = _open_house(opened, rate, meter, stop)
                if run is not None:
                    seconds = None if duration is None else duration.micros / 1_000_000
                    took = _watch(opened, run, meter, stop, seconds)
                    _summary(opened, meter.read(), took, home_option)
        finally:
            session.stop()


@contextmanager
def _place(home: Path | None) -> Iterator[Path]:
    """The home directory: the specified one, or a temporary one."""
    if home is not None:
        yield home
        return
    path = Path(tempfile.mkdtemp(prefix="millstream-demo-"))
    try:
        yield path
    finally:
        with suppress(OSError):
            paths.delete_tree(path, within=path.parent)


@contextmanager
def _busy(text: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner next to a text during slow work; plain lines without a terminal.

    The yielded function changes the text.
    """
    if not sys.stdout.isatty():
        click.echo(text)
        yield click.echo
        return
    from rich.console import Console

    with Console(highlight=False).status(text, spinner="dots", spinner_style="cyan") as status:
        yield status.update


def _open_house(home: Home, rate: int, meter: Meter, stop: Stop) -> Run | None:
    """Start Spark, then the flow, and wait for its first epoch; None when a stop is requested in the meantime."""
    from millstream.cli.demo.flow import prepared
    from millstream.engine.spark import session

    with _busy("starting Spark ...") as say:
        starting = Apart(lambda: session.start(home.spark_log))  # in the main thread Spark would take over Ctrl-C
        while starting.busy and not stop.wait(TICK_SECONDS):
            pass
        if stop.requested:
            say("stopping as soon as Spark has started ...")
        starting.result()
    if stop.requested:
        return None
    with _busy("opening the auction house ..."):
        run = home.start(prepared(home, rate), on_epoch=meter.take)
        while not stop.wait(TICK_SECONDS) and run.error is None and not meter.read().rows:
            pass
    return run


class Apart:
    """Work in another thread, so that this one can handle signals; `result` waits and raises what it raised."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether it is still running."""
        return self._thread.is_alive()

    def result(self) -> None:
        """Wait for the end."""
        while self.busy:
            self._thread.join(TICK_SECONDS)
        if self._failed is not None:
            raise self._failed

    def _main(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._failed = error


def _watch(home: Home, run: Run, meter: Meter, stop: Stop, seconds: float | None) -> float:
    """Draw until the time is up, the run has failed or a stop is requested; returns the elapsed time."""
    begun = time.monotonic()
    if sys.stdout.isatty():
        _draw(home, meter, _frames(run, stop, seconds), seconds)
    else:
        for elapsed in _frames(run, stop, seconds):
            click.echo(f"{elapsed:5.1f} s  {_line(meter.read())}")
    took = time.monotonic() - begun
    with _busy(CLOSING):
        run.stop()
    if run.error is not None:
        raise run.error
    return took


def _frames(run: Run, stop: Stop, seconds: float | None) -> Iterator[float]:
    """Yield the seconds since the start whenever it is time to draw, until the end."""
    begun = time.monotonic()
    end = begun + (seconds if seconds is not None else float("inf"))
    while not stop.requested and run.error is None and (now := time.monotonic()) < end:
        yield now - begun
        following = min(now + FRAME_SECONDS, end)
        while time.monotonic() < following and run.error is None:
            if stop.wait(min(TICK_SECONDS, max(0.0, following - time.monotonic()))):
                break


def _draw(home: Home, meter: Meter, frames: Iterator[float], seconds: float | None) -> None:
    from rich.console import Console
    from rich.live import Live

    from millstream.cli.demo.screen import draw

    console = Console(highlight=False)
    total = "" if seconds is None else f" of {_clock(seconds)}"
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for elapsed in frames:
            rows = _rows(home, max(FEWEST, console.height))
            screen = draw(rows, meter.read(), _clock(elapsed) + total, console.width, console.height)
            live.update(screen, refresh=True)


def _rows(home: Home, count: int) -> dict[str, list[list[Any]]]:
    from millstream.cli.demo.flow import PANELS

    return {p.view: [list(r.values()) for r in home.query(p.query(count))] for p in PANELS}


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _line(reading: MeterReading) -> str:
    return " · ".join(
        (
            f"{reading.rate:,.0f} events/s",
            plural(reading.rows, "event"),
            f"watermark {format_instant(reading.watermark)}",
            f"freshness {format_seconds(reading.freshness)}",
            f"epoch {format_seconds(reading.last)} (p50 {format_seconds(reading.p50)})",
            plural(reading.epochs, "epoch"),
            f"{reading.late:,} late",
            plural(reading.errors, "error"),
        )
    )


def _summary(home: Home, reading: MeterReading, took: float, home_option: Path | None) -> None:
    """The summary: the figures of the run, the rows of the views, and what to type next."""
    from millstream.cli.demo.flow import PANELS
    from millstream.cli.demo.screen import cell_text
    from millstream.result import text_table

    click.echo(
        f"The auction house was open for {format_seconds(took)}: {plural(reading.rows, 'event')} in "
        f"{plural(reading.epochs, 'epoch')}."
    )
    click.echo(
        f"An epoch took {format_seconds(reading.p50)} (p50), {format_seconds(reading.p99)} (p99); "
        f"{reading.late:,} late, {plural(reading.errors, 'error')}."
    )
    held = {v["view"]: v["rows"] for v in home.views()}
    top = {} if sys.stdout.isatty() else _rows(home, TOP)  # a terminal has just shown them
    for panel in PANELS:
        rows = top.get(panel.view, [])
        click.echo(
            ("\n" if rows else "") + f"  {panel.view:<16} {plural(held[panel.view], 'row'):>12}   {panel.title.lower()}"
        )
        if rows:
            cells = [[cell_text(v, kind) for v, (_, kind) in zip(row, panel.columns, strict=True)] for row in rows]
            for line in text_table([heading for heading, _ in panel.columns], cells).splitlines()[:-1]:
                click.echo(f"    {line}")
    click.echo()
    if home_option is None:
        click.echo("Its home was temporary and is gone. To keep it, and query it from another terminal:")
        click.echo("  millstream demo --home ./demo-home")
        where = "./demo-home"
    else:
        click.echo("Query it, or open it again where it stopped:")
        where = shlex.quote(str(home_option))
        click.echo(f"  millstream demo --home {where}")
    click.echo(f'  millstream query "SELECT * FROM seller_sales ORDER BY worth DESC LIMIT 5" --home {where}')
    click.echo("Then write your own flow: millstream run --help")
