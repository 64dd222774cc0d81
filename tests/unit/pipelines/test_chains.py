"""Steps behind steps that keep state, through flows: views, recovery, late records, sinks, what people see of it.

Without Spark; expressions between two stages are in tests/spark/test_chains.py.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import IncompatibleChange, MillstreamError, SchemaError, Unsupported
from millstream.model.streams.keyed import Keyed
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.operators.aggregates.changing_aggregation import ChangingAggregation
from millstream.plan.operators.relations.distinct import DistinctRows
from millstream.plan.operators.relations.pass_through import PassThrough
from millstream.plan.operators.relations.top_n import TopN
from millstream.plan.planner import plan
from millstream.state.version import Version
from millstream.testing.script import STEPS, Crash
from tests.accounting import assert_balanced
from tests.duck import connected
from tests.local import LocalScript

SCHEMA = "auction BIGINT, bidder BIGINT, price BIGINT, ts TIMESTAMP"
BASE = 1_767_225_600


def bid(auction: Any, bidder: Any, price: Any, second: int = 0) -> dict[str, Any]:
    return {"auction": auction, "bidder": bidder, "price": price, "ts": BASE + second}


def house(**options: Any) -> tuple[ms.Flow, ms.Stream]:
    flow = ms.Flow("house")
    return flow, flow.source("bids", ms.memory(), schema=SCHEMA, event_time="ts", **options)


# ---------------------------------------------------------------- answers

_TOP = "row_number() OVER (PARTITION BY auction ORDER BY {}) <= {}"
_PER = "(SELECT auction, bidder, count(*) AS n, sum(price) AS s FROM bids GROUP BY ALL)"
VIEWS: dict[str, tuple[Callable[[ms.Stream, ms.Stream], ms.Stream], str]] = {
    "best": (
        lambda bids, per: per.key_by("auction").top(2, "s DESC"),
        f"SELECT * FROM {_PER} QUALIFY {_TOP.format('s DESC NULLS LAST, bidder NULLS FIRST', 2)}",
    ),
    "best_sums": (
        lambda bids, per: per.key_by("auction").top(2, "s DESC").aggregate(t=ms.sum("s"), m=ms.max("n"), c=ms.count()),
        "SELECT sum(s) AS t, max(n) AS m, count(*) AS c FROM (SELECT * FROM "
        f"{_PER} QUALIFY {_TOP.format('s DESC NULLS LAST, bidder NULLS FIRST', 2)})",
    ),
    "how_many": (
        lambda bids, per: per.key_by("n").aggregate(pairs=ms.count(), s=ms.sum("s")).top(2, "n DESC", rank="place"),
        "SELECT n, count(*) AS pairs, sum(s) AS s, row_number() OVER (ORDER BY n DESC) AS place "
        f"FROM {_PER} GROUP BY n QUALIFY place <= 2",
    ),
    "sums": (lambda bids, per: per.select("s", k="auction").distinct(), f"SELECT DISTINCT s, auction AS k FROM {_PER}"),
    "dear": (
        lambda bids, per: bids.select("auction", "price").key_by("auction").top(3, "price DESC", rank="r"),
        "SELECT auction, price, row_number() OVER (PARTITION BY auction ORDER BY price DESC NULLS LAST) AS r "
        f"FROM bids QUALIFY {_TOP.format('price DESC NULLS LAST', 3)}",
    ),
    "kinds": (
        lambda bids, per: bids.select("bidder", "price").distinct().key_by("bidder").aggregate(n=ms.count()),
        "SELECT bidder, count(*) AS n FROM (SELECT DISTINCT bidder, price FROM bids) GROUP BY bidder",
    ),
}


def flow_of(*names: str) -> ms.Flow:
    flow, bids = house(lateness="1 hour")
    per = bids.key_by("auction", "bidder").aggregate(n=ms.count(), s=ms.sum("price"))
    for name in names:
        VIEWS[name][0](bids, per).view(name)
    return flow


def rows_of(script: LocalScript, view: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(r.values()) for r in script.rows(view))


def check(script: LocalScript, sent: list[dict[str, Any]], *names: str) -> None:
    """Each of these views is what DuckDB makes of all bids."""
    columns = ("auction", "bidder", "price")
    table = pa.table({n: pa.array([b[n] for b in sent], pa.int64()) for n in columns})
    with connected() as batch:
        batch.register("bids", table)
        for name in names:
            found = batch.execute(VIEWS[name][1]).fetchall()
            expected = Counter(tuple(None if v is None else int(v) for v in r) for r in found)
            assert rows_of(script, name) == expected, name


small = st.one_of(st.none(), st.integers(0, 2))
bids_of_an_epoch = st.lists(st.builds(bid, small, small, st.one_of(st.none(), st.integers(-3, 9))), max_size=7)


@settings(max_examples=4)
@given(epochs=st.lists(bids_of_an_epoch, min_size=2, max_size=3), shards=st.sampled_from([1, 3]))
def test_every_view_equals_a_batch_after_every_epoch(epochs: list[list[dict[str, Any]]], shards: int) -> None:
    sent: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, LocalScript(flow_of(*VIEWS), folder, shards=shards) as script:
        for number, come in enumerate(epochs):
            sent += come
            script.send("bids", *come)
            script.tick()
            check(script, sent, *VIEWS)
            if number == 0:
                script.crash()
                script.resume(shards=4 - shards)


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_changes_nothing(tmp_path: Path, step: str) -> None:
    sent = [bid(1, 1, 5), bid(1, 2, 7), bid(1, 3, 6), bid(2, 1, None)]
    more = [bid(1, 3, 9), bid(2, 1, 4), bid(None, 1, 1), bid(1, 1, -5)]
    with LocalScript(flow_of("best_sums", "dear"), tmp_path) as script:
        script.send("bids", *sent).tick()
        script.send("bids", *more).crash(at=step)
        with pytest.raises(Crash):
            script.tick()
        script.resume()
        script.tick()
        script.send("bids", bid(1, 9, 9)).tick()
        check(script, [*sent, *more, bid(1, 9, 9)], "best_sums", "dear")
        assert_balanced(script.home)


def test_changes_are_told_in_every_epoch(tmp_path: Path) -> None:
    flow, bids = house()
    per = bids.key_by("auction", "bidder").aggregate(s=ms.sum("price"))
    best = per.key_by("auction").top(1, "s DESC")
    best.view("best")
    best.aggregate(total=ms.sum("s")).view("total")
    with LocalScript(flow, tmp_path) as script:
        script.send("bids", bid(1, 1, 5), bid(1, 2, 3), bid(2, 1, 1)).tick()
        script.expect_changes("best", ("+I", {"auction": 1, "s": 5}), ("+I", {"auction": 2, "s": 1}))
        script.expect_changes("total", ("+I", {"total": 6}))
        script.send("bids", bid(1, 2, 4)).tick()
        script.expect_changes("best", ("-U", {"bidder": 1, "s": 5}), ("+U", {"bidder": 2, "s": 7}))
        script.expect_changes("total", ("-U", {"total": 6}), ("+U", {"total": 8}))
        script.send("bids", bid(2, 7, 1)).tick()
        assert script.changes("best") == script.changes("total") == [], (
            "a tie goes to the row that is first by its columns"
        )


# ---------------------------------------------------------------- windows, late records, retention


def windowed(**view: Any) -> ms.Flow:
    flow, bids = house()
    counts = bids.key_by("auction").window(ms.tumbling("10 seconds"), lateness="5 seconds").aggregate(n=ms.count())
    counts.key_by("window_end").top(1, "n DESC").view("hottest", **view)
    if view:
        counts.key_by("window_end").top(2, "n DESC").view("hot", **view)
    return flow


def test_late_records_belong_to_the_view_at_the_end_and_nobody_sees_what_is_inside(tmp_path: Path) -> None:
    with LocalScript(windowed(), tmp_path) as script:
        script.send("bids", bid(1, 1, 1, 1), bid(2, 1, 1, 2), bid(2, 1, 1, 3)).tick()
        script.send("bids", bid(1, 1, 1, 40)).tick()
        script.send("bids", bid(1, 1, 1, 4), bid(1, 1, 1, 5)).tick()
        assert [r["auction"] for r in script.rows("hottest")] == [2, 1]
        assert len(script.rows("hottest$late")) == 2
        assert_balanced(script.home)
        account = {r["name"]: r for r in script.home.accounting()}
        assert set(account) == {"bids", "hottest"}
        assert (account["hottest"]["applied"], account["hottest"]["late"]) == (4, 2)
        assert [v["view"] for v in script.home.views()] == ["hottest"]
        assert not any("~" in name for name in script.home.store.tables())
        assert all(set(r.changes) <= {"hottest"} for r in script.reports)
        with pytest.raises(Unsupported, match="cannot be replayed"):
            script.replay_late("hottest")


def test_windows_that_are_over_leave_the_state_of_the_whole_chain(tmp_path: Path) -> None:
    with LocalScript(windowed(retention="1 minute"), tmp_path) as script:
        for i in range(14):
            script.send("bids", *(bid(a, 1, 1, 10 * i) for a in range(3))).tick()
        version = Version.from_json(script.home.store.last("house").version)
        assert 0 < version.rows("hottest") <= 12, "the rows of the last windows"
        assert 6 <= len(script.rows("hottest")) <= 8, "a minute of windows"
        assert len(script.rows("hot")) == 2 * len(script.rows("hottest"))


def test_a_window_that_is_over_can_still_lose_its_rows_to_a_stage_that_is_not_keyed_by_it(tmp_path: Path) -> None:
    flow, bids = house()
    counts = bids.key_by("auction").window(ms.tumbling("10 seconds")).aggregate(n=ms.count())
    counts.top(2, "n DESC").key_by("window_end").aggregate(rows=ms.count()).view("where")
    with LocalScript(flow, tmp_path) as script:
        script.send("bids", bid(1, 1, 1, 1), bid(2, 1, 1, 2)).tick()
        script.send("bids", bid(1, 1, 1, 60)).tick()
        script.expect_rows("where", {"rows": 2})
        script.send("bids", *(bid(a, 1, 1, 61) for a in (7, 7, 8, 8))).tick()
        script.expect_rows("where", {"rows": 2, "window_end": "2026-01-01T00:01:10Z"})


def test_rows_that_only_grow_leave_no_more_state_than_is_shown(tmp_path: Path) -> None:
    flow, bids = house()
    bids.select("auction", "price").key_by("auction").top(2, "price DESC").view("dear")
    with LocalScript(flow, tmp_path) as script:
        for i in range(12):
            script.send("bids", *(bid(a, 1, 10 * i + p) for a in range(2) for p in range(5))).tick()
        version = Version.from_json(script.home.store.last("house").version)
        assert version.rows("dear") <= 24, "of 120 that came"
        script.expect_rows("dear", *({"auction": a, "price": p} for a in range(2) for p in (113, 114)))


def test_corrections_and_sessions_are_followed_through_a_chain(tmp_path: Path) -> None:
    flow = ms.Flow("house")
    orders = flow.source(
        "orders", ms.memory(), schema="id BIGINT, shop STRING, total BIGINT, op STRING, ts TIMESTAMP", event_time="ts",
        key="id", op="op",
    )  # fmt: skip
    per = orders.key_by("shop").window(ms.tumbling("1 minute")).aggregate(t=ms.sum("total"))
    per.top(1, "t DESC").view("best")

    def order(number: int, shop: str, total: int, op: str = "upsert") -> dict[str, Any]:
        return {"id": number, "shop": shop, "total": total, "op": op, "ts": BASE + 1}

    with LocalScript(flow, tmp_path / "a") as script:
        script.send("orders", order(1, "a", 5), order(2, "b", 9)).tick()
        script.expect_rows("best", {"shop": "b", "t": 9})
        script.send("orders", order(2, "b", 1)).tick()
        script.expect_rows("best", {"shop": "a", "t": 5})
        script.send("orders", order(1, "a", 5, "delete")).tick()
        script.expect_rows("best", {"shop": "b", "t": 1})
    flow, bids = house(lateness="1 hour")
    visits = bids.key_by("auction").window(ms.session("5 seconds")).aggregate(n=ms.count())
    visits.aggregate(visits=ms.count(), longest=ms.max("n")).view("summary")
    with LocalScript(flow, tmp_path / "b") as script:
        script.send("bids", bid(1, 1, 1, 0), bid(1, 1, 1, 8)).tick()
        script.expect_rows("summary", {"visits": 2, "longest": 1})
        script.send("bids", bid(1, 1, 1, 4)).tick()
        script.expect_rows("summary", {"visits": 1, "longest": 3})


WINDOWS: dict[str, Callable[[Keyed], Keyed]] = {
    "hopping": lambda k: k.window(ms.hopping("10 seconds", "2 seconds"), lateness="20 seconds"),
    "session": lambda k: k.window(ms.session("3 seconds"), lateness="20 seconds"),
    "cumulating": lambda k: k.window(ms.cumulating("2 seconds", "10 seconds"), lateness="20 seconds"),
    "count": lambda k: k.window(ms.count_window(3), lateness="20 seconds"),
    "early and late": lambda k: k.window(
        ms.tumbling("5 seconds"), trigger=ms.after_watermark(early=ms.after_count(2)), lateness="20 seconds"
    ),
    "on close": lambda k: k.window(ms.tumbling("5 seconds"), trigger=ms.on_close()),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_what_a_window_takes_back_is_what_it_gave(tmp_path: Path, window: str) -> None:
    """The rows that a chained stage has of a window are always those that the view of the window shows."""
    flow = ms.Flow("house")
    bids = flow.source(
        "bids", ms.memory(), schema="auction BIGINT, weight DOUBLE, ts TIMESTAMP", event_time="ts", lateness="4 seconds"
    )
    answers = WINDOWS[window](bids.key_by("auction")).aggregate(
        n=ms.count(), total=ms.sum("weight"), mean=ms.avg("weight"), spread=ms.variance("weight")
    )
    answers.view("answers")
    answers.distinct().view("same")
    with LocalScript(flow, tmp_path) as script:
        for epoch in range(6):
            late = 8 if epoch % 3 == 2 else 0
            made = [(epoch * 7 + i) % 5 for i in range(6)]
            rows = [{"auction": i % 2, "weight": n / 7, "ts": BASE + 4 * epoch - late + n} for i, n in enumerate(made)]
            script.send("bids", *rows).tick()
            assert rows_of(script, "same") == rows_of(script, "answers")
        assert rows_of(script, "same")
        assert_balanced(script.home)


def test_merged_streams_can_be_ranked(tmp_path: Path) -> None:
    flow = ms.Flow("two")
    parts = [flow.source(n, ms.memory(), schema=SCHEMA, event_time="ts") for n in ("one", "two")]
    ms.merge(*parts).key_by("auction").top(1, "ts DESC").view("latest")
    with LocalScript(flow, tmp_path) as script:
        script.send("one", bid(1, 1, 10, 5)).send("two", bid(1, 2, 20, 3), bid(1, 2, 30, 20)).tick()
        script.expect_rows("latest", {"price": 20})
        script.send("one", bid(1, 1, 40, 30)).send("two", bid(1, 2, 50, 25)).tick()
        script.expect_rows("latest", {"price": 30})


# ---------------------------------------------------------------- sharing and change


def test_a_step_is_performed_once_however_many_views_follow_it() -> None:
    flow, bids = house()
    per = bids.key_by("auction").aggregate(n=ms.count())
    per.view("counts")
    per.top(1, "n").view("one")
    best = bids.key_by("auction").top(3, "price")
    best.aggregate(n=ms.count()).view("two")
    best.distinct().view("three")
    planned = plan(flow)
    assert [v.name for v in planned.views] == ["counts", "one", "two~1", "two~2", "two", "three"]
    assert [type(v.operator) for v in planned.views] == [
        *(Aggregation, TopN, PassThrough, TopN, ChangingAggregation, DistinctRows)
    ]
    inputs = {v.name: v.operator.inputs[0] for v in planned.views if not v.operator.reads_scans}
    assert inputs == {"one": "counts", "two~2": "two~1", "two": "two~2", "three": "two~2"}
    assert planned.downstream["counts"] == ("counts", "one")
    assert planned.downstream["two~1"] == ("two", "three")
    assert len(planned.scans) == 1


def test_late_records_of_a_view_that_others_follow_are_not_replayed(tmp_path: Path) -> None:
    flow, bids = house()
    per = bids.key_by("auction").window(ms.tumbling("10 seconds")).aggregate(n=ms.count())
    per.view("counts")
    per.top(1, "n").view("one")
    with LocalScript(flow, tmp_path) as script:
        script.send("bids", bid(1, 1, 1, 30)).tick()
        script.send("bids", bid(1, 1, 1, 1)).tick()
        assert len(script.rows("counts$late")) == len(script.rows("one$late")) == 1
        assert_balanced(script.home)
        with pytest.raises(Unsupported, match="`counts` cannot be replayed") as refused:
            script.replay_late("counts")
        assert "`one`" in (refused.value.detail or "")


def followed(*, first: bool = True, second: bool = True) -> ms.Flow:
    flow, bids = house()
    per = bids.key_by("auction").aggregate(n=ms.count())
    if first:
        per.view("counts")
    if second:
        per.aggregate(auctions=ms.count(), bids=ms.sum("n")).view("summary")
    bids.aggregate(n=ms.count()).view("all_bids")
    return flow


def test_a_chained_view_that_is_added_takes_the_rows_that_change_from_then_on(tmp_path: Path) -> None:
    with LocalScript(followed(second=False), tmp_path) as script:
        script.send("bids", bid(1, 1, 1), bid(2, 1, 1)).tick()
    flow = followed()
    memory = flow.sources[0].connector
    memory.send(bid(1, 1, 1), bid(2, 1, 1), bid(1, 1, 1), bid(3, 1, 1))  # type: ignore[union-attr]
    with LocalScript(flow, tmp_path) as script:
        script.tick()
        script.expect_rows("summary", {"auctions": 2, "bids": 3})


def test_the_view_that_a_chain_rests_on_cannot_be_left_out(tmp_path: Path) -> None:
    with LocalScript(followed(), tmp_path) as script:
        script.send("bids", bid(1, 1, 1)).tick()
    with pytest.raises(IncompatibleChange, match="`summary` was changed"):
        LocalScript(followed(first=False), tmp_path)


def test_a_sink_gets_the_changes_of_a_chain(tmp_path: Path) -> None:
    flow, bids = house()
    per = bids.key_by("auction", "bidder").aggregate(s=ms.sum("price"))
    per.key_by("auction").top(2, "s DESC").view("best", changes_to=ms.log("best_changes"))
    per.key_by("auction").top(1, "s").sink("least", ms.log("least_changes"))
    with LocalScript(flow, tmp_path) as script:
        for i in range(6):
            script.send("bids", bid(1, i % 4, i), bid(2, i % 3, -i)).tick()
        shown: Counter[tuple[Any, ...]] = Counter()
        for change in script.written("best_changes"):
            shown[tuple(v for k, v in change.items() if k != "op")] += 1 if change["op"] in ("+I", "+U") else -1
        assert min(shown.values()) == 0
        assert +shown == rows_of(script, "best")
        assert {c["op"] for c in script.written("least_changes")} == {"+I", "-U", "+U"}


# ---------------------------------------------------------------- what is refused

REFUSED: list[tuple[type[MillstreamError], str, Callable[[ms.Stream, ms.Stream], Any]]] = [
    (Unsupported, "needs a time", lambda b, p: p.window(ms.tumbling("1 second")).aggregate(n=ms.count())),
    (Unsupported, "within a window", lambda b, p: b.key_by("auction").window(ms.tumbling("1 second")).top(1, "price")),
    (Unsupported, "enrich after a stateful step", lambda b, p: p.top(1, "n").enrich("t", on="n", columns="x STRING")),
    (Unsupported, "has a retention", lambda b, p: p.top(1, "n").view("v", retention="1 day")),
    (ms.MillstreamError, r"top\(0\)", lambda b, p: b.top(0, "price")),
    (ms.MillstreamError, r"top\(True\)", lambda b, p: b.top(True, "price")),
    (SchemaError, "there is no column `prize`", lambda b, p: b.top(1, "prize DESC")),
    (SchemaError, "appears twice", lambda b, p: b.top(1, "price", rank="bidder")),
    (SchemaError, "appears twice", lambda b, p: b.key_by(price="bidder").top(1, "price")),
    (ms.MillstreamError, "is not a sort order", lambda b, p: b.top(1, 3)),  # type: ignore[arg-type]
    (
        Unsupported,
        "panes are discarding",
        lambda b, p: (
            b.window(ms.tumbling("1 second"), accumulation=ms.discarding()).aggregate(n=ms.count()).top(1, "n")
        ),
    ),
]


@pytest.mark.parametrize(("kind", "said", "build"), REFUSED, ids=[said for _, said, _ in REFUSED])
def test_what_is_not_defined_is_refused_while_building(
    kind: type[MillstreamError], said: str, build: Callable[[ms.Stream, ms.Stream], Any]
) -> None:
    _, bids = house()
    with pytest.raises(kind, match=said):
        build(bids, bids.key_by("auction").aggregate(n=ms.count()))


def test_a_history_of_panes_needs_a_view_that_keeps_it() -> None:
    flow, bids = house()
    counts = bids.window(ms.tumbling("1 second"), panes="1 hour").aggregate(n=ms.count())
    counts.top(1, "n").view("v")
    with pytest.raises(Unsupported, match="history of panes"):
        plan(flow)
