"""Patterns through flows, without Spark: epochs that die, late rows, retention, and steps behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.plan.explain.plan_tree import explain, text
from millstream.plan.planner import plan
from millstream.testing.script import STEPS, Crash
from tests.accounting import assert_balanced
from tests.sql.engine import QueryScript

BASE = 1_767_225_600
DROP = ms.pattern().then("a", "x > 5").followed_by("b", "x < a.x / 3").within("1 minute")


def bid(k: int, x: int, second: int) -> dict[str, Any]:
    return {"k": k, "x": x, "ts": BASE + second}


def house() -> tuple[ms.Flow, ms.Stream]:
    flow = ms.Flow("house")
    return flow, flow.source("bids", ms.memory(), schema="k BIGINT, x BIGINT, ts TIMESTAMP", event_time="ts")


def told(script: QueryScript, view: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in script.rows(view))


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_changes_nothing(tmp_path: Path, step: str) -> None:
    flow, bids = house()
    bids.key_by("k").match(DROP, timeouts=True, n="match_number()", a="a.x", b="b.x").view("drops")
    with QueryScript(flow, tmp_path) as script:
        script.send("bids", bid(1, 9, 0), bid(2, 7, 1), bid(1, 4, 2)).tick()
        script.send("bids", bid(1, 2, 3), bid(2, 9, 4), bid(1, 8, 5), bid(1, 1, 6)).crash(at=step)
        with pytest.raises(Crash):
            script.tick()
        script.resume()
        script.send("bids", bid(3, 1, 100)).tick()
        assert told(script, "drops") == [
            *[(1, 1, 9, 2, False), (1, 2, 8, 1, False)],
            *[(2, 1, 7, None, True), (2, 2, 9, None, True)],
        ]
        assert_balanced(script.home)


def test_rows_that_come_in_any_order_are_matched_in_the_order_of_time(tmp_path: Path) -> None:
    flow = ms.Flow("house")
    schema = "k BIGINT, x BIGINT, ts TIMESTAMP"
    bids = flow.source("bids", ms.memory(), schema=schema, event_time="ts", lateness="10 seconds")
    bids.key_by("k").match(ms.pattern().then("a", "x = 1").then("b", "x = 2").then("c", "x = 3"), n="count(*)").view(
        "v"
    )
    with QueryScript(flow, tmp_path) as script:
        script.send("bids", bid(1, 3, 7), bid(1, 1, 5)).tick()
        assert told(script, "v") == []
        script.send("bids", bid(1, 2, 6)).tick()
        script.send("bids", bid(1, 0, 60)).tick()
        assert told(script, "v") == [(1, 3)]


def test_late_rows_are_set_apart_and_old_matches_forgotten(tmp_path: Path) -> None:
    flow, bids = house()
    bids.key_by("k").match(DROP, began="a.ts", x="b.x").view("drops", retention="2 minutes")
    bids.key_by("k").match(DROP, rows="all").view("whole", retention="2 minutes")
    with QueryScript(flow, tmp_path) as script:
        script.send("bids", bid(1, 9, 0), bid(1, 1, 5), bid(2, 1, 20)).tick()
        assert (len(told(script, "drops")), len(told(script, "whole"))) == (1, 2)
        script.send("bids", bid(2, 1, 300)).tick()
        assert (told(script, "drops"), told(script, "whole")) == ([], [])
        script.send("bids", bid(2, 1, 100)).tick()
        assert [r["reason"] for r in script.rows("drops$late")] == ["behind the watermark"]
        assert_balanced(script.home)


def test_events_of_several_sources_are_one_cloud(tmp_path: Path) -> None:
    flow = ms.Flow("house")
    orders = flow.source("orders", ms.memory(), schema="id BIGINT, ts TIMESTAMP", event_time="ts")
    payments = flow.source("payments", ms.memory(), schema="order_id BIGINT, ts TIMESTAMP", event_time="ts")
    paid = payments.select(id="order_id", ts="ts", what="'paid'")
    cloud = ms.merge(orders.select("id", "ts", what="'order'"), paid)
    unpaid = ms.pattern().then("o", "what = 'order'").not_followed_by("p", "what = 'paid'").within("30 seconds")
    cloud.key_by("id").match(unpaid, since="o.ts").select("id").view("unpaid")
    with QueryScript(flow, tmp_path) as script:
        script.send("orders", {"id": 1, "ts": BASE}, {"id": 2, "ts": BASE + 1})
        script.send("payments", {"order_id": 2, "ts": BASE + 10}).tick()
        assert told(script, "unpaid") == []
        script.send("orders", {"id": 3, "ts": BASE + 40})
        script.send("payments", {"order_id": 9, "ts": BASE + 40}).tick()
        assert told(script, "unpaid") == [(1,)]


def test_a_pattern_over_windows_and_groups_over_a_pattern(tmp_path: Path) -> None:
    flow, bids = house()
    counts = bids.key_by("k").window(ms.tumbling("10 seconds")).aggregate(n=ms.count())
    more = ms.pattern().then("a").then("b", "n > a.n").skip_to_next()
    rises = counts.key_by("k").match(more, at="b.window_end", up="b.n - a.n")
    rises.key_by("k").aggregate(times=ms.count(), most=ms.max("up")).view("rises")
    with QueryScript(flow, tmp_path) as script:
        for second in (1, 11, 12, 21, 22, 23):
            script.send("bids", bid(1, 0, second)).tick()
        assert told(script, "rises") == [(1, 1, 1)], "a window counts when it changes no more"
        script.send("bids", bid(1, 0, 31)).tick()
        assert told(script, "rises") == [(1, 2, 1)]


def test_the_plan_tells_what_a_pattern_keeps(tmp_path: Path) -> None:
    flow, bids = house()
    bids.key_by("k").match(DROP, n="match_number()", before="prev(a.x)").view("drops")
    said = text(explain(plan(flow)))
    for part in (
        "a {- [not b]* -} b",
        "rows in the order of event time, held until the watermark has passed them",
        "per key, the rows of an incomplete match, for 1min; "
        "1 rows to look back at and a count of matches, kept indefinitely",
        "row by row",
        "past last row",
        "drops depends on the order of rows",
    ):
        assert part in " ".join(said.split()), said
