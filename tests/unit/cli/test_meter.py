"""What the meter makes of epochs, and the screens drawn from it."""

import time
from datetime import UTC, datetime

import pytest
from rich.console import Console

from millstream.cli.demo.flow import PANELS, house
from millstream.cli.demo.screen import draw
from millstream.cli.meter import Meter
from millstream.cli.output import format_seconds
from millstream.clock import ALL_READ
from millstream.plan.planner import plan
from millstream.runtime.epoch.loop import EpochReport


def report(number: int, *, rows: int = 100, seconds: float = 0.05, watermark: int | None = None) -> EpochReport:
    now = time.time_ns() // 1000
    mark = now - 2_000_000 if watermark is None else watermark
    return EpochReport(number, rows, seconds, {}, 1, 2, mark, now, None)


def test_a_meter_counts_rows_epochs_and_what_was_set_apart() -> None:
    meter = Meter()
    for number in range(1, 11):
        meter.take(report(number, seconds=number / 100))
    reading = meter.read()
    assert (reading.epochs, reading.epoch, reading.rows, reading.late, reading.errors) == (
        10,
        10,
        1000,
        10,
        20,
    )
    assert (reading.last, reading.p50, reading.p99) == (0.1, 0.06, 0.1)
    assert reading.behind is not None
    assert reading.behind >= 2


def test_a_meter_that_saw_nothing_says_so() -> None:
    assert Meter().read().line() == "waiting for the first rows"


def test_all_read_is_not_a_time() -> None:
    meter = Meter()
    meter.take(report(1, watermark=ALL_READ))
    assert "all read" in meter.read().line()
    assert meter.read().watermark is None


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.0421, "42 ms"), (0.24, "0.2 s"), (75, "1 min 15 s"), (7300, "2 h 1 min")]
)
def test_durations_are_told_in_a_person_s_unit(seconds: float, said: str) -> None:
    assert format_seconds(seconds) == said


@pytest.mark.parametrize(("width", "height"), [(120, 40), (80, 24), (60, 30), (40, 12), (200, 60)])
def test_the_demo_s_screen_fits_the_terminal(width: int, height: int) -> None:
    values = {"id": 1007, "text": "books", "minute": datetime(2026, 1, 1, tzinfo=UTC), "bar": 7, "number": 7}
    rows = {p.view: [[values.get(kind, 430) for _, kind in p.columns]] * 50 for p in PANELS}
    meter = Meter()
    meter.take(report(1))
    console = Console(width=width, height=height, force_terminal=False, record=True)
    with console.capture() as captured:
        console.print(draw(rows, meter.read(), "0:10", width, height))
    lines = captured.get().splitlines()
    assert len(lines) <= height
    assert max(len(line) for line in lines) <= width
    assert "Hot auctions" in captured.get()


def test_the_house_has_a_view_for_every_panel() -> None:
    planned = plan(house(1000, 0))
    assert {v.name for v in planned.views} == {p.view for p in PANELS}
    assert len(planned.sources) == 3
