"""Every record is applied, late, an error, filtered or pending: the counts say where, and they add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.connect.files.source import FileSource
from millstream.connect.generator import GeneratorSource
from millstream.plan.planner import plan
from millstream.runtime.epoch.progress import Progress
from millstream.runtime.inspect.accounting import account_rows
from millstream.store.port import EpochRow
from millstream.testing import Crash
from millstream.testing.script import STEPS
from tests.accounting import assert_balanced
from tests.local import LocalScript

BASE = 1_767_225_600
SCHEMA = "auction BIGINT, price BIGINT, ts TIMESTAMP"


def flow(*, more: bool = False) -> ms.Flow:
    made = ms.Flow("auctions")
    bids = made.source("bids", ms.memory(partitions=2), schema=SCHEMA, event_time="ts", lateness="2 seconds")
    bids.where("price > 2").key_by("auction").window(ms.tumbling("10 seconds")).aggregate(n=ms.count()).view("dear")
    bids.key_by("auction").aggregate(n=ms.count()).view("totals")
    bids.window(ms.session("3 seconds")).aggregate(n=ms.count()).view("visits")
    bids.where("auction = 1").view("ones")
    if more:
        bids.where("price = 0").aggregate(n=ms.count()).view("free")
    return made


def bid(second: int, auction: int = 0, price: Any = 1) -> dict[str, Any]:
    return {"auction": auction, "price": price, "ts": BASE + second}


def account(script: LocalScript) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in script.home.accounting()}


def send_all(script: LocalScript) -> None:
    """Ten bids in time, of which one is wrong; then three far too late, one of which is cheap."""
    script.send("bids", *(bid(i, i % 3, i % 5) for i in range(9)), {**bid(3), "price": "much"})
    script.tick()
    script.send("bids", bid(60, price=5), bid(61, price=0), partition=1)
    script.send("bids", bid(60, price=4))
    script.tick()
    script.send("bids", bid(1, 1, 4), bid(2, 2, 3), bid(3, 0, 0))
    script.tick()


def test_every_record_is_somewhere(tmp_path: Path) -> None:
    with LocalScript(flow(), tmp_path) as script:
        send_all(script)
        assert_balanced(script.home)
        rows = account(script)
        source = rows["bids"]
        assert (source["offered"], source["read"], source["errors"], source["pending"]) == (16, 16, 1, 0)
        dear = rows["dear"]
        assert (dear["offered"], dear["applied"], dear["late"]) == (16, 5, 2)
        assert len(script.rows("dear$late")) == 2
        assert dear["filtered"] == 8
        assert (rows["totals"]["applied"], rows["totals"]["late"], rows["totals"]["filtered"]) == (15, 0, 0)
        assert rows["visits"]["late"] == len(script.rows("visits$late")) > 0


def test_what_a_condition_leaves_out_is_counted_once_per_view(tmp_path: Path) -> None:
    with LocalScript(flow(), tmp_path) as script:
        send_all(script)
        filtered: dict[str, int] = {}
        for report in script.reports:
            for view, rows in report.output.filtered.items():
                filtered[view] = filtered.get(view, 0) + rows
        assert filtered == {"dear": 8, "totals": 0, "visits": 0, "ones": 11}


def test_two_feeds_of_one_scan_count_both(tmp_path: Path) -> None:
    made = ms.Flow("twice")
    bids = made.source("bids", ms.memory(), schema=SCHEMA, event_time="ts")
    bids.where("price > 2").union(bids.where("price < 1")).aggregate(n=ms.count()).view("ends")
    with LocalScript(made, tmp_path) as script:
        script.send("bids", *(bid(i, price=i) for i in range(5)))
        (report, *_) = script.tick()
        assert report.output.applied == {"ends": 3} and report.output.filtered == {"ends": 7}
        script.expect_rows("ends", {"n": 3})
        assert_balanced(script.home)


def test_records_that_wait_are_pending(tmp_path: Path) -> None:
    with LocalScript(flow(), tmp_path) as script:
        script.send("bids", bid(0), bid(1))
        script.tick()
        script.send("bids", bid(2), bid(3), bid(4), partition=1)
        source = account(script)["bids"]
        assert (source["offered"], source["read"], source["pending"]) == (5, 2, 3)
        shown = {v["view"]: v for v in script.home.views()}["totals"]
        assert (shown["offered"], shown["applied"], shown["pending"]) == (5, 2, 3)
        assert_balanced(script.home)


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_counts_nothing_twice(tmp_path: Path, step: str) -> None:
    with LocalScript(flow(), tmp_path) as script:
        script.send("bids", bid(0), bid(1))
        script.tick()
        script.send("bids", *(bid(2 + i, price=i) for i in range(5)))
        script.crash(at=step)
        with pytest.raises(Crash):
            script.tick()
        script.resume().tick()
        assert account(script)["bids"]["read"] == 7
        assert account(script)["totals"]["applied"] == 7
        assert_balanced(script.home)


def test_a_view_that_joins_later_is_held_to_what_came_since(tmp_path: Path) -> None:
    first = flow()
    with LocalScript(first, tmp_path) as script:
        script.send("bids", bid(0), bid(1), {**bid(1), "price": "much"})
        script.tick()
    grown = flow(more=True)
    for mine, theirs in zip(grown.sources, first.sources, strict=True):
        mine.connector.rows.extend(theirs.connector.rows)  # type: ignore[union-attr]
    with LocalScript(grown, tmp_path) as script:
        script.send("bids", bid(2, price=0), bid(3))
        script.tick()
        rows = account(script)
        assert (rows["free"]["applied"], rows["totals"]["applied"]) == (1, 4)
        assert_balanced(script.home)


class Kept:
    """A store that knows one flow."""

    def __init__(self, progress: Progress) -> None:
        self._row = EpochRow(3, "p", {}, {"now": 0}, {}, progress.to_json())

    def flows(self) -> list[str]:
        return ["f"]

    def last(self, flow: str) -> EpochRow:
        del flow
        return self._row


def progress(**counts: Any) -> Progress:
    given: dict[str, Any] = {
        "offsets": {"s": {0: 10}},
        "rows": {"s": 10},
        "errors": {"s": 1},
        "applied": {"v": 4},
        "late": {"v": 2},
        "filtered": {"v": 3},
        "first": {"s": {0: 0}},
        "feeds": {"v": ["s"]},
        "joined": {"v": {}},
    }
    return Progress(**{**given, **counts})


@pytest.mark.parametrize(
    ("counts", "source", "view"),
    [
        ({}, True, True),
        ({"rows": {"s": 9}}, False, False),  # a record was passed by and not read
        ({"rows": {"s": 9}, "skipped": {"s": 1}, "errors": {}}, True, True),
        ({"offsets": {"s": {0: 12}}, "first": {"s": {0: 2}}}, True, True),
        ({"applied": {"v": 5}}, True, False),  # one was counted twice
        ({"late": {}}, True, False),
        ({"filtered": {"v": 2}}, True, False),
        ({"filtered": {}}, True, None),  # nobody counted
        ({"feeds": {}}, True, None),
        ({"first": {}, "rows": {"s": 8}, "applied": {"v": 2}}, True, True),  # an offset is not a record
    ],
)
def test_what_does_not_add_up_is_said(counts: dict[str, Any], source: bool, view: bool | None) -> None:
    rows = account_rows(Kept(progress(**counts)), {}, 0)
    assert [(r["kind"], r["balanced"]) for r in rows] == [("source", source), ("view", view)]


def test_progress_notes_only_what_is_new(tmp_path: Path) -> None:
    planned = plan(flow())
    kept = Progress(offsets={"bids": {0: 3}}, rows={"bids": 3}, applied={"totals": 3})
    kept.begin(planned, {})
    assert "totals" not in kept.feeds  # begun by a version that did not count all
    assert kept.joined["dear"] == {"bids": 3} and kept.feeds["dear"] == ["bids"]
    again = Progress.from_json({**kept.to_json(), "offsets": {"bids": {"0": 3}}})
    again.rows["bids"] = 9
    again.begin(planned, {})
    assert again.joined["dear"] == {"bids": 3}


def test_sources_whose_offsets_are_no_records_say_what_they_know(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"x": 1}\n')
    files = FileSource(ms.files(str(tmp_path / "in"), format="json"), plan_schema(), tmp_path / "sources" / "s.jsonl")
    ports = {"f": {"s": files, "g": GeneratorSource(ms.generator(numbers), 0)}}
    store = Kept(progress(first={}, offsets={"s": {0: 0}, "g": {0: 4}}))
    assert [r["pending"] for r in account_rows(store, ports, 0)[:2]] == [0, 0]  # made when they are asked for
    files.head(0)
    assert [r["pending"] for r in account_rows(store, ports, 0)[:2]] == [0, None]  # nobody knows how many are in it


def plan_schema() -> Any:
    made = ms.Flow("x")
    made.source("s", ms.memory(), schema="x BIGINT").aggregate(n=ms.count()).view("v")
    return plan(made).source("s").schema


def numbers(start: int, end: int) -> pa.Table:
    return pa.table({"x": list(range(start, end))})
