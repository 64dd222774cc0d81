"""Event time as it is told: idle sources, punctuation, records from the future, ends; in every placement and replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.clock import ALL_READ
from millstream.errors import SchemaError
from millstream.model.connectors import Memory
from millstream.testing import Crash, Script

pytestmark = pytest.mark.spark

PLACEMENTS = ("inline", "combined", "gathered", "spread")
BASE = 1767225600
TENS = ms.tumbling("10 seconds")


def flow_of(connector: Memory | None = None, **options: Any) -> ms.Flow:
    """Counts in windows of ten seconds that answer when they close."""
    flow = ms.Flow("f")
    schema = "k BIGINT, done BOOLEAN, ts TIMESTAMP"
    bids = flow.source("bids", connector or ms.memory(), schema=schema, event_time="ts", **options)
    bids.key_by("k").window(TENS, trigger=ms.on_close()).aggregate(n=ms.count()).view("v")
    return flow


def united(first: dict[str, Any], second: dict[str, Any]) -> ms.Flow:
    flow = ms.Flow("f")
    schema = "k BIGINT, ts TIMESTAMP"
    one = flow.source("one", ms.memory(), schema=schema, event_time="ts", **first)
    two = flow.source("two", ms.memory(), schema=schema, event_time="ts", **second)
    one.union(two).window(TENS, trigger=ms.on_close()).aggregate(n=ms.count()).view("v")
    return flow


def send(script: Script, source: str, *seconds: float, partition: int = 0, done: bool = False) -> None:
    rows = ({"k": 1, "done": done, "ts": BASE + s} for s in seconds)
    script.send(source, *rows, partition=partition)
    script.tick()


def closed(script: Script) -> dict[int, int]:
    """The windows that have answered: the second they begin with, and their count."""
    return {round(r["window_start"].timestamp()) - BASE: r["n"] for r in script.rows("v")}


def mark(script: Script, source: str = "bids") -> float:
    """The watermark that the next epoch will work by, in seconds."""
    return (progress(script)["reached"][source] - BASE * 1_000_000) / 1_000_000


def progress(script: Script) -> Any:
    last = script.home.store.last("f")
    assert last is not None
    return last.progress


# ---------------------------------------------------------------- idle sources


def test_the_windows_of_a_quiet_stream_close_with_the_clock(spark: object, tmp_path: Path) -> None:
    with Script(flow_of(lateness="5 seconds", idle_timeout="30 seconds"), tmp_path) as script:
        send(script, "bids", 3, 12)
        script.advance("29 seconds")
        assert script.tick() == [] and closed(script) == {}
        script.advance("1 second")  # 12 - 5 + 30
        (report,) = script.tick()
        assert report.rows == 0 and report.watermark == (BASE + 37) * 1_000_000
        assert closed(script) == {0: 1, 10: 1}
        script.advance("1 hour")
        assert script.tick() == []  # nothing is open, so there is nothing to do
        send(script, "bids", 36.5, 41)
        assert [r["event_time"].timestamp() - BASE for r in script.rows("v$late")] == []  # its window is open
        send(script, "bids", 29)
        assert [r["event_time"].timestamp() - BASE for r in script.rows("v$late")] == [29]
        script.advance("30 seconds")
        script.tick()
        assert closed(script) == {0: 1, 10: 1, 30: 1, 40: 1}


def test_without_an_idle_timeout_a_quiet_stream_stays_open(spark: object, tmp_path: Path) -> None:
    with Script(flow_of(), tmp_path) as script:
        send(script, "bids", 3)
        script.advance("10 days")
        assert script.tick() == [] and closed(script) == {}


def test_a_silent_partition_holds_until_the_idle_timeout_and_counts_again_when_it_speaks(
    spark: object, tmp_path: Path
) -> None:
    with Script(flow_of(ms.memory(partitions=2), idle_timeout="30 seconds"), tmp_path) as script:
        send(script, "bids", 1, partition=1)
        script.advance("20 seconds")
        send(script, "bids", 25)
        assert mark(script) == 1
        assert [(r["partition"], r["holds"], r["idle"]) for r in script.home.watermarks()] == [
            (0, False, False),
            (1, True, False),
        ]
        script.advance("10 seconds")
        script.tick()
        assert closed(script) == {0: 1}
        assert mark(script) == 25
        assert [(r["partition"], r["holds"], r["idle"]) for r in script.home.watermarks()] == [
            (0, True, False),
            (1, False, True),
        ]
        send(script, "bids", 21, partition=1)
        send(script, "bids", 45)
        assert mark(script) == 25  # partition 1 is at 21 and counts again; what was said stays
        send(script, "bids", 31, partition=1)
        assert mark(script) == 31 and closed(script) == {0: 1, 20: 2}


def test_records_that_came_while_the_flow_was_down_are_not_late(spark: object, tmp_path: Path) -> None:
    with Script(flow_of(idle_timeout="30 seconds"), tmp_path) as script:
        send(script, "bids", 3)
        script.crash().advance("1 hour")
        script.send("bids", {"k": 1, "ts": BASE + 4}, {"k": 1, "ts": BASE + 3600})
        script.resume().tick()
        assert closed(script) == {0: 2} and script.rows("v$late") == []


def test_an_idle_source_does_not_hold_another(spark: object, tmp_path: Path) -> None:
    with Script(united({"idle_timeout": "30 seconds"}, {}), tmp_path) as script:
        send(script, "one", 5)
        send(script, "two", 50)
        assert closed(script) == {}
        script.advance("30 seconds")
        script.tick()
        assert closed(script) == {0: 1}  # one has come to 35
        script.advance("30 seconds")
        script.tick()
        assert closed(script) == {0: 1}  # two is at 50, and has no idle timeout
        assert [r["source"] for r in script.home.watermarks() if r["holds"]] == ["two"]


@pytest.mark.parametrize("idle", ["30 seconds", None])
def test_a_source_that_never_spoke_holds_for_the_idle_timeout_at_most(
    spark: object, tmp_path: Path, idle: str | None
) -> None:
    with Script(united({"idle_timeout": idle}, {}), tmp_path) as script:
        send(script, "two", 5, 25)
        script.advance("29 seconds")
        assert script.tick() == []
        script.advance("1 second")
        script.tick()
        assert closed(script) == ({0: 1} if idle else {})
        if idle:
            send(script, "one", 3, 26)
            assert [r["event_time"].timestamp() - BASE for r in script.rows("v$late")] == [3]
            send(script, "two", 45)
            assert mark(script, "one") == 26 and closed(script) == {0: 1}


# ---------------------------------------------------------------- punctuation


@pytest.mark.sampled(2)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_only_punctuation_moves_the_watermark(spark: object, tmp_path: Path, placement: str) -> None:
    source = ms.memory(partitions=2)
    with Script(flow_of(source, punctuation="done AND k = 1"), tmp_path, placement=placement) as script:
        send(script, "bids", 3, 55)
        send(script, "bids", 4, 8, partition=1)
        assert progress(script)["watermarks"]["newest"] == {"bids": {}}
        send(script, "bids", 12, done=True)
        send(script, "bids", 70)
        assert closed(script) == {}  # partition 1 has promised nothing yet
        send(script, "bids", 11, 22, partition=1, done=True)
        assert mark(script) == 12 and closed(script) == {0: 3}
        send(script, "bids", 9)
        assert [r["event_time"].timestamp() - BASE for r in script.rows("v$late")] == [9]
        script.send("bids", {"k": 1, "done": True, "ts": BASE + 3600}, {"k": 2, "done": True, "ts": BASE + 90})
        script.send("bids", {"k": 1, "done": True, "ts": "soon"}, {"k": 1, "done": None, "ts": BASE + 95})
        script.tick()
        assert mark(script) == 12  # from the future, not the condition, not a time, not true
        send(script, "bids", 20, done=True)
        assert mark(script) == 20 and closed(script) == {0: 3, 10: 2}
        newest = progress(script)["watermarks"]["newest"]["bids"]
        assert newest == {"0": (BASE + 20) * 1_000_000, "1": (BASE + 22) * 1_000_000}
        assert {r["lateness"] for r in script.home.watermarks()} == {None}


def test_punctuation_in_files(spark: object, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    flow = ms.Flow("f")
    bids = flow.source(
        "bids",
        ms.files(str(folder), format="json"),
        schema="kind STRING, ts TIMESTAMP",
        event_time="ts",
        punctuation=ms.col("kind") == "mark",
    )
    bids.where("kind <> 'mark'").window(TENS, trigger=ms.on_close()).aggregate(n=ms.count()).view("v")
    bids.flat_map(x="array(1, 2)").view("twice")

    def write(name: str, *rows: tuple[str, int]) -> None:
        lines = [json.dumps({"kind": kind, "ts": f"2026-01-01T00:00:{s:02d}Z"}) for kind, s in rows]
        (folder / name).write_text("\n".join(lines))

    with Script(flow, tmp_path / "home", placement="combined") as script:
        write("1.json", ("bid", 3), ("mark", 5), ("bid", 31))
        script.tick()
        assert mark(script) == 5
        write("2.json", ("bid", 7), ("mark", 12))
        script.tick()
        script.tick()
        assert mark(script) == 12 and closed(script) == {0: 2}


def test_punctuation_that_only_spark_can_tell_to_be_no_condition_is_refused_at_the_start(
    spark: object, tmp_path: Path
) -> None:
    with pytest.raises(SchemaError):
        Script(flow_of(punctuation="map_values(map('a', k))[0]"), tmp_path)


# ---------------------------------------------------------------- the future, the end


@pytest.mark.sampled(2)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_records_from_the_future_do_not_move_the_watermark(spark: object, tmp_path: Path, placement: str) -> None:
    options = {"lateness": "5 seconds", "future_bound": "1 minute"}
    with Script(flow_of(**options), tmp_path, placement=placement) as script:
        send(script, "bids", 3, 61, 10_000)
        assert mark(script) == -2
        send(script, "bids", 60)
        assert mark(script) == 55 and closed(script) == {0: 1}
        assert [r["reason"] for r in script.rows("bids$errors")] == ["event time too far in the future"] * 2
        script.advance("2 minutes")
        send(script, "bids", 61)
        assert mark(script) == 56  # the clock has come, so it is no longer from the future


def test_a_memory_source_that_has_ended_closes_its_windows(spark: object, tmp_path: Path) -> None:
    source = ms.memory(partitions=2)
    with Script(flow_of(source), tmp_path) as script:
        send(script, "bids", 3)
        send(script, "bids", 14, partition=1)
        source.end()
        script.tick()
        assert closed(script) == {0: 1, 10: 1}
        assert progress(script)["reached"] == {"bids": ALL_READ}
        assert script._loop is not None and script._loop.finished
        assert {(r["ended"], r["holds"]) for r in script.home.watermarks()} == {(True, False)}


# ---------------------------------------------------------------- replays


@pytest.mark.parametrize("step", ["before work", "before commit", "after commit"])
def test_an_epoch_that_the_clock_brought_about_is_repeated_with_the_same_clock(
    spark: object, tmp_path: Path, step: str
) -> None:
    with Script(flow_of(lateness="5 seconds", idle_timeout="30 seconds"), tmp_path) as script:
        send(script, "bids", 3, 12, 22)
        number = script.reports[-1].number + 1
        script.advance("30 seconds").crash(at=step)  # 22 - 5 + 30
        with pytest.raises(Crash):
            script.tick()
        script.advance("1 hour")
        script.send("bids", {"k": 1, "ts": BASE + 48})
        script.resume().tick()
        repeated = next(e for e in script.home.store.epochs("f", 10) if e.number == number)
        assert repeated.clock["watermarks"] == {"bids": (BASE + 47) * 1_000_000}
        assert closed(script) == {0: 1, 10: 1, 20: 1} and script.rows("v$late") == []


# ---------------------------------------------------------------- shares of the data


def early(**options: Any) -> ms.Flow:
    flow = ms.Flow("f")
    bids = flow.source("bids", ms.memory(partitions=2), schema="k BIGINT, ts TIMESTAMP", event_time="ts", **options)
    trigger = ms.after_fraction(0.75)
    bids.key_by("k").window(TENS, trigger=trigger).aggregate(n=ms.count()).view("v")
    return flow


def shares(script: Script) -> list[float | None]:
    """The watermark for the fraction 0.75 in every epoch, in seconds."""
    epochs = sorted(script.home.store.epochs("f", 100), key=lambda e: e.number)
    found = [e.clock["fractions"]["bids"]["0.75"] for e in epochs]
    return [None if at < 0 else round((at - BASE * 1_000_000) / 1_000_000, 1) for at in found]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_watermark_for_a_fraction_follows_the_disorder_of_the_records(
    spark: object, tmp_path: Path, placement: str
) -> None:
    with Script(early(lateness="1 hour"), tmp_path, placement=placement) as script:
        send(script, "bids", 1, 5, partition=1)
        send(script, "bids", 2, 9)  # now both are known; an epoch works by what was known before it
        send(script, "bids", 20, 3, 4, 5, partition=1)  # 3 and 4 are behind the 5 that was known
        send(script, "bids", 12)
        assert shares(script) == [None, None, 5, 9, 12]  # 7 of 9 records were not behind at all
        assert closed(script) == {0: 7}  # long before the watermark, which is an hour behind
        send(script, "bids", 13, 5, 6, 7)  # 8 of 13 now: three quarters came within about two seconds
        send(script, "bids", 30)
        send(script, "bids", 31)
        assert shares(script) == [None, None, 5, 9, 12, 12, 12, 17.9]  # 13 less two seconds would be going back
        known = progress(script)["watermarks"]
        assert sum(known["disorder"]["bids"].values()) == 15
        assert known["newest"]["bids"] == {"0": (BASE + 31) * 1_000_000, "1": (BASE + 20) * 1_000_000}
        assert all(c["fractions"]["bids"]["0.75"] >= c["watermarks"]["bids"] for c in clocks(script))
        script.crash().resume()
        assert progress(script)["watermarks"] == known


def clocks(script: Script) -> list[Any]:
    return [e.clock for e in script.home.store.epochs("f", 100)]


def test_an_epoch_with_fractions_is_repeated_with_the_same_ones(spark: object, tmp_path: Path) -> None:
    with Script(early(lateness="1 hour", idle_timeout="30 seconds"), tmp_path) as script:
        send(script, "bids", 1, 5)
        send(script, "bids", 4, partition=1)
        script.advance("30 seconds").crash(at="before commit")
        with pytest.raises(Crash):
            script.tick()
        script.advance("1 hour").resume().tick(1)
        assert closed(script) == {0: 3}
        assert shares(script) == [None, None, 35]


def test_flows_that_ask_for_no_fraction_count_no_disorder(spark: object, tmp_path: Path) -> None:
    with Script(flow_of(), tmp_path) as script:
        send(script, "bids", 3, 2)
        send(script, "bids", 1)
        assert progress(script)["watermarks"]["disorder"] == {}
        assert all("fractions" not in clock for clock in clocks(script))


# ---------------------------------------------------------------- readers


def test_readers_elsewhere_are_told_who_holds(spark: object, tmp_path: Path) -> None:
    with Script(flow_of(ms.memory(partitions=2)), tmp_path) as script:
        send(script, "bids", 3)
        with ms.connect(tmp_path) as reader:
            rows = reader.watermarks()
        assert [(r["partition"], r["holds"]) for r in rows] == [(0, False), (1, True)]
        assert rows[1]["since"] == "2026-01-01T00:00:00Z" and rows[0]["newest"] == "2026-01-01T00:00:03Z"
    with ms.connect(tmp_path) as reader:  # now from the files
        assert [r["holds"] for r in reader.watermarks()] == [False, True]
