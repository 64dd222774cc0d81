"""A crash at any step of an epoch, in any placement, loses nothing and repeats nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import HomeDamaged, HomeInUse, IncompatibleChange
from millstream.runtime.epoch.loop import FIRST_ROWS
from millstream.testing import Crash, Script
from millstream.testing.script import STEPS

pytestmark = pytest.mark.spark


def counting() -> ms.Flow:
    flow = ms.Flow("counting")
    bids = flow.source(
        "bids", ms.memory(), schema="auction BIGINT, price BIGINT, ts TIMESTAMP", event_time="ts", lateness="5 seconds"
    )
    keyed = bids.key_by("auction")
    keyed.window(ms.tumbling("10 seconds")).aggregate(n=ms.count(), s=ms.sum("price")).view("windows")
    keyed.aggregate(n=ms.count(), s=ms.sum("price")).view("totals")
    bids.where("price = 3").view("threes")
    return flow


def send(script: Script, batch: int) -> None:
    script.send("bids", *({"auction": i % 3, "price": i % 5, "ts": 1767225600 + 4 * batch + i % 4} for i in range(20)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("placement", ["inline", pytest.param("spread", marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_loses_and_repeats_nothing(
    spark: object, tmp_path: Path, placement: str, step: str
) -> None:
    with Script(counting(), tmp_path / "calm", placement=placement) as calm:
        for batch in range(4):
            send(calm, batch)
            calm.tick()
        expected = {view: calm.rows(view) for view in ("windows", "totals", "threes")}
    with Script(counting(), tmp_path / "crashed", placement=placement) as script:
        for batch in range(4):
            send(script, batch)
            script.crash(at=step)
            with pytest.raises(Crash):
                script.tick()
            script.resume(shards=1 + batch)
            script.tick()
        for view, rows in expected.items():
            script.expect_rows(view, *rows)
        progress = script.home.store.last("counting").progress  # type: ignore[union-attr]
        assert progress["rows"] == {"bids": 80}
        assert progress["applied"] == {"windows": 80, "totals": 80, "threes": 16}


def test_a_resumed_epoch_sees_the_same_slice_and_clock(spark: object, tmp_path: Path) -> None:
    with Script(counting(), tmp_path) as script:
        send(script, 0)
        script.crash(at="before commit")
        with pytest.raises(Crash):
            script.tick()
        send(script, 1)  # arrives while the flow is down: not part of the epoch that died
        script.advance("1 minute").resume()
        first, *_ = script.tick()
        assert first.rows == 20
        assert first.now == 1767225600_000_000


def test_placement_and_shards_may_change_between_epochs(spark: object, tmp_path: Path) -> None:
    places = [("spread", 2), ("inline", 2), ("spread", 5), ("gathered", 1), ("combined", 2)]
    with Script(counting(), tmp_path) as script:
        for batch, (placement, shards) in enumerate(places):
            script.crash().resume(placement=placement, shards=shards)
            send(script, batch)
            script.tick()
        script.expect_rows("totals", {"auction": 0, "n": 35}, {"auction": 1, "n": 35}, {"auction": 2, "n": 30})


@pytest.mark.slow
def test_the_first_epoch_after_a_start_takes_a_bounded_number_of_rows(spark: object, tmp_path: Path) -> None:
    most = FIRST_ROWS + 100_000
    flow = ms.Flow("many")
    rows = flow.source("rows", ms.generator(numbers, events=2 * most + FIRST_ROWS), schema="n BIGINT", max_rows=most)
    rows.aggregate(n=ms.count(), s=ms.sum("n")).view("total")
    with Script(flow, tmp_path, placement="combined") as script:
        first, second = script.tick(2)
        assert [first.rows, second.rows] == [FIRST_ROWS, most]
        script.crash().resume()
        assert [report.rows for report in script.tick()] == [FIRST_ROWS, 100_000]
        count = 2 * most + FIRST_ROWS
        script.expect_rows("total", {"n": count, "s": count * (count - 1) // 2})


def numbers(start: int, end: int) -> pa.Table:
    return pa.table({"n": np.arange(start, end)})


def test_a_damaged_state_file_stops_the_flow_by_name(spark: object, tmp_path: Path) -> None:
    script = Script(counting(), tmp_path)
    send(script, 0)
    script.tick()
    script.crash()
    run = next((tmp_path / "flows/counting/state/totals").glob("*.arrow"))
    data = bytearray(run.read_bytes())
    data[len(data) // 2] ^= 1
    run.write_bytes(data)
    script.resume()
    send(script, 1)
    with pytest.raises(HomeDamaged, match=run.name):
        script.tick()
    script.close()


def test_a_changed_view_is_refused_and_an_added_one_joins(spark: object, tmp_path: Path) -> None:
    with Script(counting(), tmp_path) as script:
        send(script, 0)
        script.tick()
    grown = counting()
    stream = ms.Stream(grown, grown.sources[0])
    stream.aggregate(n=ms.count()).view("everything")
    with Script(grown, tmp_path) as script:
        send(script, 0)
        send(script, 1)
        script.tick()
        script.expect_rows("everything", {"n": 20})
        script.expect_rows("totals", {"n": 14}, {"n": 14}, {"n": 12})
    changed = ms.Flow("counting")
    bids = changed.source("bids", ms.memory(), schema="auction BIGINT, price BIGINT, ts TIMESTAMP", event_time="ts")
    bids.key_by("price").aggregate(n=ms.count()).view("totals")
    with pytest.raises(IncompatibleChange, match="totals"):
        Script(changed, tmp_path)


def test_a_home_has_one_owner(spark: object, tmp_path: Path) -> None:
    with Script(counting(), tmp_path), pytest.raises(HomeInUse, match="in use by process"):
        ms.open(tmp_path)
