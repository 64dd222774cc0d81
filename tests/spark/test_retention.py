"""A view with a retention: rows leave it as the watermark moves, whatever kind of view it is, also over a crash."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import millstream as ms
from millstream.testing import Crash, Script
from millstream.testing.script import STEPS

pytestmark = pytest.mark.spark

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SIZE, LATENESS, RETENTION = 10, 5, 30
SECONDS = (1, 4, 12, 26, 30, 44, 65, 181, 184)
"""When the bids that are sent together happen: 65 puts the horizon at 30, where a window ends and a bid happened; no
window ends in the last step of the watermark, from 176 to 179.
"""


def kept() -> ms.Flow:
    flow = ms.Flow("kept")
    schema = "auction BIGINT, ts TIMESTAMP"
    bids = flow.source("bids", ms.memory(), schema=schema, event_time="ts", lateness=f"{LATENESS} seconds")
    windows = bids.key_by("auction").window(ms.tumbling(f"{SIZE} seconds")).aggregate(n=ms.count())
    windows.view("for_good")
    windows.view("windows", retention=f"{RETENTION} seconds")
    windows.select("auction", "n").view("windows_without_times", retention=f"{RETENTION} seconds")
    bids.view("bids_kept", retention=f"{RETENTION} seconds")
    bids.select("auction").view("bids_without_times", retention=f"{RETENTION} seconds")
    return flow


def at(second: int) -> datetime:
    return BEGIN + timedelta(seconds=second)


def send(script: Script, second: int) -> None:
    script.send("bids", *({"auction": auction, "ts": at(second)} for auction in (1, 1, 2)))


def horizon(script: Script) -> datetime:
    """Up to here rows are gone, by the watermark of the last epoch; before the first one there is nothing to go."""
    last = script.home.store.last("kept")
    assert last is not None
    passed = max(last.clock["watermarks"]["bids"], 0)
    return datetime.fromtimestamp(passed / 1_000_000, UTC) - timedelta(seconds=RETENTION)


def expect(script: Script, seconds: tuple[int, ...]) -> None:
    """The views hold what a batch over all bids would give, without the rows that are behind the horizon."""
    gone = horizon(script)
    counted = [
        {
            "window_end": at(start + SIZE),
            "auction": auction,
            "n": times * sum(start <= s < start + SIZE for s in seconds),
        }
        for start in {s - s % SIZE for s in seconds}
        for auction, times in ((1, 2), (2, 1))
    ]
    young = [row for row in counted if row["window_end"] > gone]
    bids = [{"auction": auction, "ts": at(s)} for s in seconds if at(s) > gone for auction in (1, 1, 2)]
    script.expect_rows("for_good", *counted)
    script.expect_rows("windows", *young)
    script.expect_rows("windows_without_times", *({"auction": r["auction"], "n": r["n"]} for r in young))
    script.expect_rows("bids_kept", *bids)
    script.expect_rows("bids_without_times", *({"auction": r["auction"]} for r in bids))


def test_rows_leave_a_view_as_the_watermark_passes_their_retention(spark: object, tmp_path: Path) -> None:
    with Script(kept(), tmp_path) as script:
        horizons = []
        for i, second in enumerate(SECONDS, start=1):
            send(script, second)
            script.tick()
            expect(script, SECONDS[:i])
            horizons.append(horizon(script))
        assert horizons == sorted(horizons)
        # an epoch goes by the watermark that earlier ones reached, so the bids of second 181 have the last word
        assert horizons[-1] == at(181 - LATENESS - RETENTION)
        script.expect_rows("windows", *({"window_end": at(190), "n": n} for n in (4, 2)))
        assert len(script.rows("for_good")) == 2 * len({s // SIZE for s in SECONDS})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", STEPS)
def test_rows_leave_once_and_for_all_over_crashes(spark: object, tmp_path: Path, step: str) -> None:
    seconds = (1, 30, 65, 181, 184)
    with Script(kept(), tmp_path) as script:
        for i, second in enumerate(seconds, start=1):
            send(script, second)
            script.crash(at=step)
            with pytest.raises(Crash):
                script.tick()
            script.resume()
            script.tick()
            expect(script, seconds[:i])
        assert horizon(script) == at(181 - LATENESS - RETENTION)


def test_a_row_that_comes_behind_the_horizon_does_not_bring_its_window_back(spark: object, tmp_path: Path) -> None:
    with Script(kept(), tmp_path) as script:
        for second in (3, 100, 101):
            send(script, second)
            script.tick()
        expect(script, (3, 100, 101))
        send(script, 4)
        script.tick()
        expect(script, (3, 100, 101))
        script.expect_rows("windows$late", *({"event_time": at(4)} for _ in range(3)))


def test_rows_stay_while_the_watermark_stands_still(spark: object, tmp_path: Path) -> None:
    with Script(kept(), tmp_path) as script:
        send(script, 3)
        script.tick()
        script.advance("1 day").tick()  # processing time alone makes no row old
        send(script, 4)
        script.tick()
        expect(script, (3, 4))
        assert len(script.rows("bids_kept")) == 6
