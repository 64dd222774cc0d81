"""Flows over topics of the log: read exactly, written to exactly once, chained, rewound; without Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import IncompatibleChange, RecoveryFailed, SourceUnreadable
from millstream.home import Home
from millstream.model.types.schema import Schema
from millstream.testing.script import STEPS, Crash
from tests.local import LocalScript

BIDS = "auction BIGINT, price BIGINT, ts TIMESTAMP"
GUARANTEES = ("exactly_once", "at_least_once", "at_most_once")


def bid(auction: int, price: int, second: int) -> dict[str, Any]:
    return {"auction": auction, "price": price, "ts": f"2026-01-01T00:00:{second:02d}Z"}


def flow_of(guarantee: str = "exactly_once", *, start: Any = "beginning", bounded: bool = False) -> ms.Flow:
    flow = ms.Flow("auctions", guarantee=guarantee)
    bids = flow.source("bids", ms.log("bids", start=start, bounded=bounded), schema=BIDS, event_time="ts")
    bids.key_by("auction").aggregate(n=ms.count(), top=ms.max("price")).view("totals", changes_to=ms.log("changes"))
    bids.where("price > 100").select("auction", "price").sink("dear", ms.log("dear_bids"))
    return flow


def with_topic(path: Path, partitions: int = 2) -> Path:
    with ms.open(path) as home:
        home.topic("bids", schema=BIDS, partitions=partitions, key="auction")
    return path


def replayed(changes: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """What a list of changes comes to."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for change in changes:
        row = tuple(v for k, v in change.items() if k != "op")
        rows[row] += 1 if change["op"] in ("+I", "+U") else -1
    return +rows


def shown(script: LocalScript) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in script.rows("totals"))


def test_a_flow_reads_a_topic_and_writes_its_changes_to_another(tmp_path: Path) -> None:
    with LocalScript(flow_of(), with_topic(tmp_path / "home")) as script:
        topic = script.home.topic("bids")
        topic.append([bid(1, 50, 1), bid(2, 150, 2), bid(1, 200, 3)])
        script.tick()
        script.expect_rows("totals", {"auction": 1, "n": 2, "top": 200}, {"auction": 2, "n": 1, "top": 150})
        topic.append(bid(1, 10, 4))
        script.tick()
        assert replayed(script.written("changes")) == shown(script)
        assert [c["op"] for c in script.written("changes")].count("-U") == 1
        assert sorted(r["price"] for r in script.written("dear_bids")) == [150, 200]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_each_guarantee_gives_what_its_name_says(tmp_path: Path, guarantee: str, step: str) -> None:
    """A crash at every step of the second epoch: what views and topics have missed, and what they have twice."""
    with LocalScript(flow_of(guarantee), with_topic(tmp_path / "home", 1)) as script:
        script.home.topic("bids").append([bid(1, 101, 1), bid(2, 102, 2)])
        script.tick()
        script.home.topic("bids").append([bid(1, 103, 3), bid(3, 104, 4)])
        script.crash(at=step)
        with pytest.raises(Crash):
            script.tick()
        script.resume()
        script.home.topic("bids").append([bid(1, 105, 5)])
        script.tick()
        sent = Counter(r["price"] for r in script.written("dear_bids"))
        all_of = Counter([101, 102, 103, 104, 105])
        totals = {r["auction"]: r["n"] for r in script.rows("totals")}
        committed = step in ("after commit", "before close", "after close")
        delivered = step in ("before close", "after close")
        if guarantee == "exactly_once":
            assert sent == all_of
            assert totals == {1: 3, 2: 1, 3: 1}
            assert replayed(script.written("changes")) == shown(script)
        elif guarantee == "at_least_once":
            twice = Counter([103, 104]) if step == "before commit" else Counter()
            assert sent == all_of + twice
            assert totals == {1: 3, 2: 1, 3: 1}
        else:
            lost = Counter() if delivered else Counter([103, 104])
            assert sent == all_of - lost
            skipped = script.home.store.last("auctions").progress["skipped"]
            assert skipped == {"bids": 0 if committed else 2}
            assert totals == ({1: 1, 2: 1, 3: 1} if committed else {1: 1, 2: 1})  # state begins anew, other rows stay


def test_at_most_once_goes_on_as_it_was_when_it_was_stopped_well(tmp_path: Path) -> None:
    with LocalScript(flow_of("at_most_once"), with_topic(tmp_path / "home", 1)) as script:
        script.home.topic("bids").append([bid(1, 101, 1)])
        script.tick()
        script.stop()
        script.resume()
        script.home.topic("bids").append([bid(1, 102, 2)])
        script.tick()
        script.expect_rows("totals", {"auction": 1, "n": 2, "top": 102})
        assert not script.home.store.last("auctions").progress["skipped"]


def test_changes_that_were_put_down_but_not_delivered_are_damaged(tmp_path: Path) -> None:
    with LocalScript(flow_of(), with_topic(tmp_path / "home", 1)) as script:
        script.home.topic("bids").append([bid(1, 101, 1)])
        script.crash(at="after commit")
        with pytest.raises(Crash):
            script.tick()
        (path,) = (tmp_path / "home/flows/auctions/out").glob("*-dear.*")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(ms.MillstreamError, match="do not match their checksum") as caught:
            script.resume()
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("beginning", {1: 1, 2: 1, 3: 1}),
        ("end", {3: 1}),
        ({0: 1}, {2: 1, 3: 1}),
        ("2026-01-01T00:00:30Z", {2: 1, 3: 1}),
    ],
)
def test_a_flow_begins_where_it_was_told(tmp_path: Path, start: Any, expected: dict[int, int]) -> None:
    with LocalScript(flow_of(), with_topic(tmp_path / "first", 1)) as script:
        topic = script.home.topic("bids")
        topic.append(bid(1, 1, 1))
        script.advance("30 seconds")
        topic.append(bid(2, 1, 2))
        script.tick()
        script.crash()
        flow = flow_of(start=start)
        flow.name = "other"
        with pytest.raises(IncompatibleChange, match="belongs to the flow"):
            LocalScript(flow, tmp_path / "first")
    path = with_topic(tmp_path / "second", 1)
    clock = ms.ManualClock(1767225600_000000)
    with Home(path, clock=clock) as home:
        home.topic("bids").append(bid(1, 1, 1))
        clock.advance(30_000_000)
        home.topic("bids").append(bid(2, 1, 2))
    with LocalScript(flow_of(start=start), path) as script:
        script.home.topic("bids").append(bid(3, 1, 3))
        script.tick()
        assert {r["auction"]: r["n"] for r in script.rows("totals")} == expected


def test_a_pipeline_of_flows_and_its_replay(tmp_path: Path) -> None:
    """A second flow reads what the first wrote, with corrections; read again from the beginning it gives the same."""
    path = with_topic(tmp_path / "home", 2)
    first = flow_of()

    def second(name: str) -> ms.Flow:
        flow = ms.Flow(name)
        rows = flow.source("dear", ms.log("dear_bids"), schema="auction BIGINT, price BIGINT")
        rows.key_by("auction").aggregate(n=ms.count(), paid=ms.sum("price")).view(f"{name}_paid")
        return flow

    with LocalScript(first, path) as script:
        for i in range(20):
            script.home.topic("bids").append([bid(i % 3, 90 + i, i)])
            script.tick()
    with LocalScript(second("live"), path) as script:
        script.tick()
        live = Counter(tuple(r.values()) for r in script.rows("live_paid"))
    with LocalScript(second("again"), path) as script:
        script.tick()
        assert Counter(tuple(r.values()) for r in script.rows("again_paid")) == live
        assert {r["flow"]: r["lag"] for r in script.home.lag() if r["topic"] == "dear_bids"} == {"live": 0, "again": 0}


def test_lag_says_how_far_a_flow_is_behind(tmp_path: Path) -> None:
    with LocalScript(flow_of(), with_topic(tmp_path / "home", 1)) as script:
        script.home.topic("bids").append([bid(1, 1, 1), bid(1, 1, 2)])
        script.tick()
        script.home.topic("bids").append([bid(1, 1, 3)])
        (row,) = [r for r in script.home.lag() if r["topic"] == "bids"]
        assert (row["flow"], row["source"], row["position"], row["end"], row["lag"]) == ("auctions", "bids", 2, 3, 1)


def test_a_bounded_topic_ends(tmp_path: Path) -> None:
    path = with_topic(tmp_path / "home", 1)
    with ms.open(path) as home:
        home.topic("bids").append([bid(1, 1, 1), bid(2, 1, 2)])
    with LocalScript(flow_of(bounded=True), path) as script:
        script.home.topic("bids").append(bid(3, 1, 3))
        script.tick()
        assert script._loop is not None and script._loop.finished
        assert {r["auction"] for r in script.rows("totals")} == {1, 2}


def test_what_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    path = with_topic(tmp_path / "home", 1)
    flow = ms.Flow("wrong")
    flow.source("bids", ms.log("bids"), schema="auction STRING").view("v")
    with pytest.raises(SourceUnreadable, match="`auction` of the topic `bids` is int64"):
        LocalScript(flow, path)
    flow = ms.Flow("wrong")
    flow.source("bids", ms.log("bids"), schema="auktion BIGINT").view("v")
    with pytest.raises(SourceUnreadable, match="no column `auktion`"):
        LocalScript(flow, path)
    flow = ms.Flow("wrong")
    flow.source("bids", ms.log("bids"), schema=BIDS, event_time="ts").sink("v", ms.log("bids"))
    with pytest.raises(IncompatibleChange, match="which the flow `wrong` itself reads"):
        LocalScript(flow, path)


def test_a_topic_that_was_trimmed_under_a_flow_stops_it(tmp_path: Path) -> None:
    path = tmp_path / "home"
    with ms.open(path) as home:
        home.log.create("bids", Schema.parse(BIDS).to_arrow(), segment_rows=1)
    with LocalScript(flow_of(), path) as script:
        script.home.topic("bids").append(bid(1, 1, 1))
        script.tick()
        for second in (2, 3, 4):
            script.home.topic("bids").append(bid(1, 1, second))
        script.crash()
        with ms.open(path) as home:
            with pytest.raises(ms.MillstreamError, match=r"auctions\.bids"):
                home.topic("bids").trim({0: 3})
            home.topic("bids").trim({0: 3}, force=True)
            assert home.topic("bids").start() == {0: 3}
        with pytest.raises(RecoveryFailed, match="begins at offset 3, but `auctions` has read it only up to 1"):
            script.resume()


def test_a_checkpoint_keeps_what_it_needs_of_a_topic(tmp_path: Path) -> None:
    path = tmp_path / "home"
    with ms.open(path) as home:
        home.log.create("bids", Schema.parse(BIDS).to_arrow(), segment_rows=1)
    with LocalScript(flow_of(), path) as script:
        script.home.topic("bids").append(bid(1, 1, 1))
        script.tick()
        script.home.checkpoint("before")
        for second in range(2, 45):
            script.home.topic("bids").append(bid(1, 1, second))
            script.tick()
        assert script.home.topic("bids").holds()["checkpoint.before"] == {0: 1}
        assert script.home.topic("bids").holds()["auctions.bids"][0] > 1
        with pytest.raises(ms.MillstreamError, match=r"checkpoint\.before"):
            script.home.topic("bids").trim({0: 3})
        assert {r["flow"] for r in script.home.lag()} == {"auctions"}
