"""Python operators through flows: views, recovery, timers by the clock, side outputs, failures, questions outside.

Without Spark; table functions, which run there, are in tests/spark/test_process.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import DefinitionError, IncompatibleChange, SchemaError, UnknownName, Unsupported, UserCodeFailed
from millstream.plan.operators.python.process import ProcessOperator
from millstream.plan.planner import plan
from millstream.testing.script import STEPS, Crash
from tests.accounting import assert_balanced
from tests.sql.engine import QueryScript

SCHEMA = "user BIGINT, page STRING, ts TIMESTAMP"
BASE = 1_767_225_600


def hit(user: int, page: str = "home", second: float = 0) -> dict[str, Any]:
    return {"user": user, "page": page, "ts": BASE + second}


def site(**options: Any) -> tuple[ms.Flow, ms.Stream]:
    flow = ms.Flow("site")
    return flow, flow.source("hits", ms.memory(), schema=SCHEMA, event_time="ts", **options)


@dataclass
class Visits:
    count: int = 0
    pages: dict[str, int] = field(default_factory=dict)


class Sessions(ms.Process):
    """Counts hits; a visit is over when nothing came for ten seconds."""

    state = Visits

    def on_row(self, row: Any, state: Visits, ctx: ms.Context) -> None:
        if row.page == "bad":
            msg = f"no page {row.page}"
            raise ValueError(msg)
        state.count += 1
        state.pages[row.page] = state.pages.get(row.page, 0) + 1
        ctx.set_timer(timedelta(seconds=10))
        if row.page == "pay":
            ctx.emit({"user": ctx.key, "hits": state.count}, to="paid")

    def on_timer(self, timer: ms.Timer, state: Visits, ctx: ms.Context) -> Iterator[Any]:
        yield {"user": ctx.key, "hits": state.count, "pages": len(state.pages), "until": timer.time}
        ctx.drop()


VISITS = "user BIGINT, hits BIGINT, pages BIGINT, until TIMESTAMP"


def visits(**more: Any) -> ms.Flow:
    flow, hits = site()
    found = hits.key_by("user").process(Sessions(), schema=VISITS, side={"paid": "user BIGINT, hits BIGINT"}, **more)
    found.view("visits")
    found.side("paid").view("paid")
    return flow


def told(script: QueryScript, view: str = "visits") -> list[tuple[Any, ...]]:
    return [tuple(r[n] for n in ("user", "hits", "pages")) for r in script.rows(view)]


def test_a_visit_is_told_when_it_is_over_and_payments_at_once(tmp_path: Path) -> None:
    with QueryScript(visits(), tmp_path, shards=1) as script:
        script.send("hits", hit(1), hit(2, "pay", 1), hit(1, "shop", 2)).tick()
        script.expect_rows("paid", {"user": 2, "hits": 1})
        script.send("hits", hit(1, "pay", 5), hit(3, second=11)).tick()
        assert told(script) == [(2, 1, 1)]
        kept = script.home.state("visits").to_pylist()
        assert sorted((r["user"], r["count"]) for r in kept) == [(1, 3), (3, 1)], "what is over is forgotten"
        script.send("hits", hit(4, second=30)).tick()
        assert told(script) == [(2, 1, 1), (1, 3, 3), (3, 1, 1)]
        script.expect_rows("paid", {"user": 2, "hits": 1}, {"user": 1, "hits": 3})
        assert script.home.state("visits").column_names == ["user", "count", "pages"]
        with pytest.raises(UnknownName, match="the view `paid` has no process with state"):
            script.home.state("paid")
        assert_balanced(script.home)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_changes_nothing(tmp_path: Path, step: str, shards: int) -> None:
    with QueryScript(visits(), tmp_path, shards=shards) as script:
        script.send("hits", hit(1), hit(2, "pay", 1)).tick()
        script.send("hits", hit(1, "shop", 2), hit(3, "pay", 12)).crash(at=step)
        with pytest.raises(Crash):
            script.tick()
        script.resume()
        script.tick()
        script.send("hits", hit(9, second=40)).tick()
        expected, found = [(2, 1, 1), (1, 2, 2), (3, 1, 1)], told(script)
        if shards > 1:  # keys of one epoch come in the order of their shards
            expected, found = sorted(expected), sorted(found)
        assert found == expected
        script.expect_rows("paid", {"user": 2}, {"user": 3})


def test_the_process_runs_once_for_all_of_its_outputs() -> None:
    stages = [v.operator for v in plan(visits()).views]
    assert sum(isinstance(s, ProcessOperator) for s in stages) == 1


def test_rows_can_come_in_the_order_of_event_time(tmp_path: Path) -> None:
    flow, hits = site(lateness="5 seconds")

    def order(row: Any, state: None, ctx: ms.Context) -> Any:
        return (row.user, row.page)

    hits.key_by("user").process(order, schema="user BIGINT, page STRING", ordered=True).view("seen")
    with QueryScript(flow, tmp_path) as script:
        script.send("hits", hit(1, "c", 3), hit(2, "a", 1), hit(1, "b", 2)).tick()
        assert script.rows("seen") == []
        script.send("hits", hit(1, "z", 20)).tick()
        script.send("hits", hit(1, "late", 4)).tick()
        assert [r["page"] for r in script.rows("seen")] == ["a", "b", "c"]
        (late,) = script.rows("seen$late")
        assert '"late"' in late["record"]
        assert_balanced(script.home)


def test_rows_of_several_partitions_come_by_partition_and_offset(tmp_path: Path) -> None:
    flow = ms.Flow("site")
    hits = flow.source("hits", ms.memory(partitions=2), schema=SCHEMA)
    hits.key_by(all="1").process(lambda row, state, ctx: (row.page,), schema="page STRING").view("seen")
    with QueryScript(flow, tmp_path) as script:
        script.send("hits", hit(1, "c"), hit(1, "d"), partition=1).send("hits", hit(1, "a"), hit(1, "b")).tick()
        assert [r["page"] for r in script.rows("seen")] == ["a", "b", "c", "d"]


def test_timers_by_the_clock_need_no_rows(tmp_path: Path) -> None:
    class Remind(ms.Process):
        def on_row(self, row: Any, state: None, ctx: ms.Context) -> None:
            ctx.set_processing_timer("1 minute")

        def on_timer(self, timer: ms.Timer, state: None, ctx: ms.Context) -> Any:
            return (ctx.key,)

    flow, hits = site()
    hits.key_by("user").process(Remind(), schema="user BIGINT").view("reminded")
    with QueryScript(flow, tmp_path) as script:
        script.send("hits", hit(1)).tick()
        script.advance("59 seconds").tick()
        assert script.rows("reminded") == []
        script.advance("1 second").tick()
        script.expect_rows("reminded", {"user": 1})


def test_a_key_is_forgotten_after_its_time_to_live(tmp_path: Path) -> None:
    def count(row: Any, state: Visits, ctx: ms.Context) -> Any:
        state.count += 1
        return (row.user, state.count)

    flow, hits = site()
    how = hits.key_by("user").process(count, schema="user BIGINT, n BIGINT", state=Visits, ttl="10 seconds")
    how.view("counts")
    with QueryScript(flow, tmp_path) as script:
        script.send("hits", hit(1), hit(1, second=5), hit(2, second=14)).tick()
        script.send("hits", hit(1, second=14), hit(2, second=20)).tick()
        script.send("hits", hit(1, second=23)).tick()
        script.send("hits", hit(1, second=30)).tick()
        script.send("hits", hit(1, second=31)).tick()
        script.send("hits", hit(2, second=31)).tick()
        assert [(r["user"], r["n"]) for r in script.rows("counts")] == [
            *[(1, 1), (1, 2), (2, 1), (1, 3), (2, 2), (1, 4), (1, 5), (1, 6), (2, 1)]
        ]


# ---------------------------------------------------------------- failures


def test_a_row_that_fails_is_set_apart_with_its_reason(tmp_path: Path) -> None:
    with QueryScript(visits(errors="quarantine"), tmp_path) as script:
        script.send("hits", hit(1), hit(1, "bad", 1), hit(1, "shop", 2)).tick()
        script.send("hits", hit(2, second=30)).tick()
        assert told(script) == [(1, 2, 2)]
        (row,) = script.rows("visits$errors")
        assert row["reason"].startswith("Sessions.on_row failed: ValueError: no page bad (")
        assert row["raw"] == '{"user": 1, "page": "bad", "ts": "2026-01-01 00:00:01+00:00"}'
        assert script.reports[0].errors == 2, "once for each view that it is missing in"
        assert script.rows("paid$errors") == [row]
        assert_balanced(script.home)


def test_a_row_that_fails_can_be_left_out_or_stop_the_flow(tmp_path: Path) -> None:
    with QueryScript(visits(errors="skip"), tmp_path / "skip") as script:
        script.send("hits", hit(1), hit(1, "bad", 1), hit(2, second=30)).tick()
        assert told(script) == [(1, 1, 1)]
        assert script.reports[0].errors == 2
    with QueryScript(visits(), tmp_path / "fail") as script:
        script.send("hits", hit(1), hit(1, "bad", 1))
        with pytest.raises(UserCodeFailed, match=r"Sessions.on_row failed: ValueError: no page bad"):
            script.tick()


# ---------------------------------------------------------------- questions to the outside


def test_answers_are_the_same_when_an_epoch_is_run_again(tmp_path: Path) -> None:
    calls: list[list[int]] = []

    def name(users: list[int]) -> list[Any]:
        calls.append(users)
        return [None if u == 9 else (f"user {u}, call {len(calls)}",) for u in users]

    flow, hits = site()
    hits.ask(name, on="user", schema="name STRING").select("user", "name").view("named")
    with QueryScript(flow, tmp_path) as script:
        script.send("hits", hit(1), hit(2), hit(1), hit(9)).tick()
        script.send("hits", hit(3), hit(1)).crash(at="before commit")
        with pytest.raises(Crash):
            script.tick()
        script.resume()
        script.tick()
        names = [r["name"] for r in script.rows("named")]
        assert names == [*["user 1, call 1", "user 2, call 1", "user 1, call 1", None], "user 3, call 2", names[0]]
        assert calls == [[1, 2, 9], [3]]
        for second in range(10):
            script.send("hits", hit(100 + second, second=second)).tick()
        kept = list((tmp_path / "flows" / "site" / "answers").glob("*/*"))
        assert 1 < len(kept) < 8


def test_one_function_may_answer_in_two_ways(tmp_path: Path) -> None:
    def both(users: list[int]) -> list[Any]:
        return [(u * 2,) for u in users]

    flow, hits = site()
    hits.ask(both, on="user", schema="twice BIGINT").aggregate(s=ms.sum("twice")).view("first")
    hits.ask(both, on="user", schema="double BIGINT").aggregate(s=ms.max("double")).view("second")
    with QueryScript(flow, tmp_path) as script:
        script.send("hits", hit(1), hit(2)).tick()
        script.expect_rows("first", {"s": 6})
        script.expect_rows("second", {"s": 4})


# ---------------------------------------------------------------- what people see, and what is refused


def test_explain_says_what_runs_and_what_is_kept() -> None:
    text = str(ms_explain(visits(ttl="1 hour", errors="quarantine")))
    assert "count, pages per key, until no row arrived for 1h of event time" in text
    assert "move the row to `$errors`" in text


def ms_explain(flow: ms.Flow) -> str:
    from millstream.plan.explain.plan_tree import explain

    return str(explain(plan(flow)))


def test_changed_code_is_another_view(tmp_path: Path) -> None:
    def flow_with(step: int) -> ms.Flow:
        def count(row: Any, state: Visits, ctx: ms.Context) -> Any:
            state.count += step
            return (state.count,)

        flow, hits = site()
        hits.key_by("user").process(count, schema="n BIGINT", state=Visits).view("counts")
        return flow

    first, same, other = (plan(flow_with(n)).view("counts").fingerprint for n in (1, 1, 2))
    assert first == same != other
    with QueryScript(flow_with(1), tmp_path) as script:
        script.send("hits", hit(1)).tick()
    with pytest.raises(IncompatibleChange), QueryScript(flow_with(2), tmp_path):
        pass


def test_a_process_over_rows_that_change_must_be_able_to_take_one_back(tmp_path: Path) -> None:
    def build(process: Any) -> ms.Flow:
        flow, hits = site()
        counts = hits.key_by("user").aggregate(n=ms.count())
        counts.key_by("user").process(process, schema="user BIGINT, change BIGINT").view("changes")
        return flow

    with pytest.raises(Unsupported, match="reads rows that can change"):
        plan(build(lambda row, state, ctx: None))

    class Both(ms.Process):
        def on_row(self, row: Any, state: None, ctx: ms.Context) -> Any:
            return (row.user, row.n)

        def on_retract(self, row: Any, state: None, ctx: ms.Context) -> Any:
            return (row.user, -row.n)

    with QueryScript(build(Both()), tmp_path) as script:
        script.send("hits", hit(1)).tick()
        script.send("hits", hit(1), hit(1)).tick()
        assert [r["change"] for r in script.rows("changes")] == [1, -1, 3]


def test_steps_may_follow_a_process(tmp_path: Path) -> None:
    flow, hits = site()
    seen = hits.key_by("user").process(lambda row, state, ctx: (row.user, 2), schema="user BIGINT, two BIGINT")
    seen.where("user > 1").select("two", who="user").view("plain")
    seen.key_by("user").aggregate(n=ms.count(), s=ms.sum("two")).view("counted")
    with QueryScript(flow, tmp_path) as script:
        script.send("hits", hit(1), hit(2), hit(2)).tick()
        script.expect_rows("plain", {"two": 2, "who": 2}, {"two": 2, "who": 2})
        script.expect_rows("counted", {"user": 1, "n": 1, "s": 2}, {"user": 2, "n": 2, "s": 4})


def test_what_cannot_be_is_refused_before_anything_runs() -> None:
    _, hits = site()
    keyed = hits.key_by("user")
    bare = ms.Flow("bare").source("hits", ms.memory(), schema="user BIGINT").key_by("user")

    class LastWord(ms.Process):
        def on_row(self, row: Any, state: None, ctx: ms.Context) -> None: ...

        def on_idle(self, state: None, ctx: ms.Context) -> None: ...

    def same(row: Any, state: None, ctx: ms.Context) -> None: ...

    for call, error, said in (
        (lambda: keyed.process(same, schema="n BIGINT", errors="ignore"), DefinitionError, "errors='ignore'"),
        (lambda: keyed.process(same, schema="n BIGINT", state=int), DefinitionError, "does not describe a state"),
        (lambda: bare.process(same, schema="n BIGINT", ordered=True), DefinitionError, "no event time here"),
        (lambda: keyed.process(same, schema="n BIGINT", time="page"), SchemaError, "not a TIMESTAMP"),
        (lambda: keyed.process(LastWord(), schema="n BIGINT"), DefinitionError, "never called without a ttl"),
        (lambda: keyed.process(same, schema="n BIGINT").side("x"), UnknownName, "no side output `x`"),
        (lambda: keyed.window(ms.tumbling("1 s")).process(same, schema="n BIGINT"), Unsupported, "within a window"),
        (lambda: hits.ask(len, on="user", schema="page STRING"), SchemaError, "a second column `page`"),
        (lambda: keyed.process(same, schema="m MAP<STRING, INT>"), SchemaError, "`m` is a MAP"),
        (lambda: hits.ask(len, on="nobody", schema="x STRING"), SchemaError, "there is no column `nobody`"),
        (lambda: hits.ask(len, on="user", schema="x STRING", batch=0), DefinitionError, "batch=0"),
        (lambda: hits.distinct().ask(len, on="user", schema="x STRING"), Unsupported, "ask after a stateful step"),
        (lambda: hits.flat_map_rows(7, on="page", schema="x STRING"), DefinitionError, "7 is not a function"),
    ):
        with pytest.raises(error, match=said):
            call()


# ---------------------------------------------------------------- user aggregates that can take a value back


class Total:
    """A sum that can only grow, so it must see all rows that are there."""

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, value: int) -> int:
        return accumulator + value

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, accumulator: int) -> int:
        return accumulator


class Back(Total):
    """The same, able to take a value back."""

    def retract(self, accumulator: int, value: int) -> int:
        return accumulator - value


def totals(aggregator: Any) -> ms.Flow:
    flow, hits = site()
    counts = hits.key_by("user", "page").aggregate(n=ms.count())
    total = ms.user_aggregate(aggregator, "n", returns="BIGINT")
    counts.where("page <> 'x' OR n < 3").key_by("user").aggregate(total=total, pages=ms.count()).view("totals")
    return flow


def test_an_aggregate_that_can_take_a_value_back_keeps_no_rows(tmp_path: Path) -> None:
    sent = [
        [hit(1, "a"), hit(1, "b"), hit(2, "x"), hit(2, "x")],
        [hit(1, "a"), hit(2, "x"), hit(3, "x")],
        [hit(1, "c"), hit(3, "x"), hit(3, "x"), hit(2, "a")],
    ]
    told: dict[str, list[Any]] = {"rows": [], "back": []}
    for name, aggregator in (("rows", Total()), ("back", Back())):
        with QueryScript(totals(aggregator), tmp_path / name) as script:
            for rows in sent:
                script.send("hits", *rows).tick()
                told[name].append(sorted(map(str, script.changes("totals"))))
            found = sorted(tuple(r[c] for c in ("user", "total", "pages")) for r in script.rows("totals"))
            assert found == [(1, 4, 3), (2, 1, 1)]
    assert told["back"] == told["rows"]
    assert "accumulators per key, kept indefinitely" in ms_explain(totals(Back()))
    assert "all rows of its input, kept indefinitely" in ms_explain(totals(Total()))


def test_an_aggregate_that_fails_to_take_back_is_named(tmp_path: Path) -> None:
    class Broken(Back):
        def retract(self, accumulator: int, value: int) -> int:
            msg = "cannot"
            raise ArithmeticError(msg)

    with QueryScript(totals(Broken()), tmp_path) as script:
        script.send("hits", hit(1)).tick()
        script.send("hits", hit(1))
        with pytest.raises(UserCodeFailed, match="Broken of `total` failed in create, add or retract: ArithmeticError"):
            script.tick()


def test_such_an_aggregate_needs_no_key(tmp_path: Path) -> None:
    flow, hits = site()
    counts = hits.key_by("user").aggregate(n=ms.count())
    counts.aggregate(total=ms.user_aggregate(Back(), "n", returns="BIGINT")).view("total")
    with QueryScript(flow, tmp_path) as script:
        script.send("hits", hit(1), hit(2), hit(1)).tick()
        script.expect_changes("total", ("+I", {"total": 3}))
        script.send("hits", hit(1)).tick()
        script.expect_changes("total", ("-U", {"total": 3}), ("+U", {"total": 4}))
