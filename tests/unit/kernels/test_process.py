"""The kernel of Python operators: state, timers, time to live, outputs and failures, epoch by epoch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import ALL_READ, BEGINNING
from millstream.errors import UserCodeFailed
from millstream.kernels.outcome import OperatorClock, Outcome
from millstream.kernels.python.by_key import KEY
from millstream.model.python.process import Context, Output, Process, Timer
from millstream.model.python.typed_state import TypedState
from millstream.model.types.schema import Schema
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.python.process import ProcessOperator
from millstream.state.compaction import merge
from millstream.state.run import StateRun
from millstream.state.shard import RunCache, StateReader
from tests.kernel_kit import advance, is_due, write_first

SECOND = 1_000_000
TIME = pa.timestamp("us", tz="UTC")
KINDS = {"k": pa.int64(), "s": pa.string(), "x": pa.int64(), "t": TIME}


def at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


_OLD = {"ttl": "idle_ttl", "by_clock": "idle_by_clock"}


def stage(function: Any, schema: str = "k BIGINT, n BIGINT", *, keys: str = "k", **more: Any) -> Operator:
    """A bound stage over the columns k, s, x and the time t."""
    sides = {n: Output(n, Schema.parse(s)) for n, s in more.pop("side", {}).items()}
    state = more.pop("state", getattr(function, "state", None))
    outputs = (Output("", Schema.parse(schema)), *sides.values())
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    typed = None if state is None else TypedState.of(state)
    side = Side((), tuple(KINDS), append_only=True, types=tuple(KINDS.values()))
    more = {_OLD.get(n, n): v for n, v in more.items()}
    return ProcessOperator(
        "v", function, name.rpartition(".")[2], outputs, typed, "t", **more, sides=(side,), keys=tuple(keys)
    )


@dataclass
class Flow:
    """A stage with its state on disk, and the clock of its last epoch."""

    spec: Operator
    root: Path
    runs: list[StateRun] = field(default_factory=list)
    epoch: int = 0
    watermark: int = BEGINNING
    now: int = 0
    last: Outcome | None = None

    def clock(self, watermark: float | None, now: float | None) -> OperatorClock:
        mark = self.watermark if watermark is None else int(watermark * SECOND)
        time = self.now + 1 if now is None else int(now * SECOND)
        return OperatorClock(self.watermark, mark, time, since=self.now)

    @property
    def state(self) -> StateReader:
        return StateReader(RunCache(self.root), self.runs, KEY)

    def give(
        self, *rows: Sequence[Any], watermark: float | None = None, now: float | None = None, ops: Sequence[str] = ()
    ) -> list[tuple[Any, ...]]:
        """Run an epoch over rows (k, s, x, seconds); its results, without what they do."""
        clock = self.clock(watermark, now)
        frame = None
        if rows:
            columns = {
                "k": [r[0] for r in rows],
                "s": [r[1] for r in rows],
                "x": [r[2] for r in rows],
                "t": [at(r[3]) for r in rows],
            }
            made = pl.from_arrow(pa.table(columns, schema=pa.schema(list(KINDS.items()))))
            assert isinstance(made, pl.DataFrame)
            frame = made.with_columns(pl.Series("$op", ops or ["+I"] * len(rows)))
        self.epoch += 1
        outcome = advance(self.spec, frame, self.state, clock)
        self.runs += write_first(self.root, self.spec, outcome, f"{self.epoch:012d}-0")
        self.watermark, self.now, self.last = clock.watermark, clock.now, outcome
        if len(self.runs) > 3:
            self.compact()
        if outcome.changes is None:
            return []
        assert set(outcome.changes["$op"]) == {"+I"}
        return outcome.changes.drop("$op").rows()

    def compact(self) -> None:
        """Put all runs together."""
        name = f"v/{self.epoch:012d}-c.arrow"
        merged = merge(
            RunCache(self.root),
            name,
            self.runs,
            KEY,
            lambda rows: rows["$x"].to_numpy(),
            self.watermark,
            oldest=True,
        )
        self.runs = [] if merged is None else [merged]

    def due(self, watermark: float | None = None, now: float | None = None) -> bool:
        return is_due(self.spec, self.state, self.clock(watermark, now))

    @property
    def held(self) -> dict[Any, dict[str, Any]]:
        """The state that is there, by key."""
        found = self.state.scan(self.watermark)
        if found is None:
            return {}
        alive = found.filter(~pl.col("$gone") & (pl.col("$x") > self.watermark))
        return {r["k"]: {n[1:]: v for n, v in r.items() if n.startswith("@")} for r in alive.to_dicts()}


@dataclass
class Count:
    n: int = 0


def counted(row: Any, state: Count, ctx: Context) -> tuple[int, int]:
    state.n += row.x
    return (ctx.key, state.n)


@pytest.fixture
def flow(tmp_path: Path) -> Any:
    return lambda *given, **more: Flow(stage(*given, **more), tmp_path)


# ---------------------------------------------------------------- rows and state


def test_a_key_remembers_from_row_to_row_and_from_epoch_to_epoch(flow: Any) -> None:
    run = flow(counted, state=Count)
    assert run.give((1, "", 5, 0), (2, "", 1, 0), (1, "", 5, 0)) == [(1, 5), (2, 1), (1, 10)], "as the rows came"
    assert run.give((2, "", 3, 1)) == [(2, 4)]
    assert run.give() == []
    assert run.held == {1: {"n": 10}, 2: {"n": 4}}


def test_a_row_gives_none_one_or_many(flow: Any) -> None:
    def some(row: Any, state: None, ctx: Context) -> Any:
        if row.x == 0:
            return None
        if row.x == 1:
            return {"n": 1}  # the other column is NULL
        if row.x == 2:
            return [(2, 1), {"k": 2, "n": 2}]
        return ((row.k, i) for i in range(row.x))

    run = flow(some)
    assert run.give((1, "", 0, 0), (1, "", 3, 0), (2, "", 1, 0), (3, "", 2, 0)) == [
        (1, 0),
        (1, 1),
        (1, 2),
        (None, 1),
        (2, 1),
        (2, 2),
    ]


def test_rows_are_named_and_times_have_a_zone(flow: Any) -> None:
    seen: list[Any] = []

    def look(row: Any, state: None, ctx: Context) -> None:
        seen.append((row.k, row.s, row.x, row.t, ctx.time, ctx.key, ctx.now, ctx.watermark))

    run = flow(look)
    run.give((7, "a", 1, 2), now=50)
    run.give((7, None, None, 3), watermark=9, now=60)
    run.give((7, "c", 1, 10), watermark=9, now=61)
    assert seen == [
        (7, "a", 1, at(2), at(2), 7, at(50), None),
        (7, None, None, at(3), at(3), 7, at(60), None),
        (7, "c", 1, at(10), at(10), 7, at(61), at(9)),
    ]


@dataclass
class Inner:
    who: str = ""
    at: datetime | None = None


@dataclass
class Much:
    numbers: list[int] = field(default_factory=list)
    by_name: dict[str, int] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    inners: dict[str, list[Inner]] = field(default_factory=dict)
    share: float = 0.5
    last: datetime | None = None


def test_lists_maps_and_dataclasses_are_columns_of_state(flow: Any) -> None:
    def much(row: Any, state: Much, ctx: Context) -> Any:
        state.numbers.append(row.x)
        state.by_name[row.s] = state.by_name.get(row.s, 0) + 1
        state.inner.who += row.s
        state.inners.setdefault(row.s, []).append(Inner(row.s, row.t))
        state.last = row.t
        return (row.k, len(state.inners[row.s]))

    run = flow(much, state=Much)
    run.give((1, "a", 1, 0), (1, "b", 2, 1))
    assert run.give((1, "a", 3, 2)) == [(1, 2)]
    state = run.held[1]
    assert state["numbers"] == [1, 2, 3]
    assert state["by_name"] == [{"key": "a", "value": 2}, {"key": "b", "value": 1}]
    assert state["inner"] == {"who": "aba", "at": None}
    assert (state["share"], state["last"]) == (0.5, at(2))
    assert [len(e["value"]) for e in state["inners"]] == [2, 1]


def test_state_can_be_given_as_a_schema(flow: Any) -> None:
    def most(row: Any, state: Any, ctx: Context) -> tuple[int, int]:
        state.most = row.x if state.most is None else max(state.most, row.x)
        state.seen[row.s] = row.x
        return (row.k, state.most)

    run = flow(most, state="most BIGINT, seen MAP<STRING, BIGINT>")
    assert run.give((1, "a", 3, 0)) == [(1, 3)]
    assert run.give((1, "b", 2, 0)) == [(1, 3)]
    assert run.held[1] == {"most": 3, "seen": [{"key": "a", "value": 3}, {"key": "b", "value": 2}]}


def test_a_key_of_several_columns_and_of_none(flow: Any) -> None:
    def keyed(row: Any, state: Count, ctx: Context) -> tuple[int, int]:
        state.n += 1
        assert (ctx.key.k, ctx.key.s) == (row.k, row.s)
        return (row.k, state.n)

    run = flow(keyed, keys="ks", state=Count)
    assert run.give((1, "a", 0, 0), (1, "b", 0, 0), (1, "a", 0, 0), (None, None, 0, 0)) == [
        (1, 1),
        (1, 1),
        (1, 2),
        (None, 1),
    ]
    assert run.give((None, None, 0, 0)) == [(None, 2)]


def test_a_key_that_is_dropped_begins_anew(flow: Any) -> None:
    def until_three(row: Any, state: Count, ctx: Context) -> tuple[int, int]:
        state.n += 1
        if state.n == 3:
            ctx.drop()
        return (row.k, state.n)

    run = flow(until_three, state=Count)
    row = (1, "", 0, 0)
    assert run.give(row, row, row, row) == [(1, 1), (1, 2), (1, 3), (1, 1)]
    assert run.give(row, row) == [(1, 2), (1, 3)]
    assert run.held == {}
    assert run.give(row) == [(1, 1)]


def test_all_rows_of_a_key_can_be_taken_at_once(flow: Any) -> None:
    class Batched(Process):
        state = Count

        def on_rows(self, rows: Any, state: Count, ctx: Context) -> tuple[int, int]:
            state.n += sum(r.x for r in rows)
            return (ctx.key, state.n)

    run = flow(Batched())
    assert run.give((1, "", 5, 0), (2, "", 1, 0), (1, "", 5, 0)) == [(1, 10), (2, 1)]
    assert run.give((1, "", 1, 0)) == [(1, 11)]


def test_rows_that_are_taken_back_go_to_a_method_of_their_own(flow: Any) -> None:
    class Both(Process):
        state = Count

        def on_row(self, row: Any, state: Count, ctx: Context) -> tuple[int, int]:
            state.n += row.x
            return (ctx.key, state.n)

        def on_retract(self, row: Any, state: Count, ctx: Context) -> tuple[int, int]:
            state.n -= row.x
            return (ctx.key, state.n)

    run = flow(Both())
    rows = [(1, "", 5, 0), (1, "", 5, 0), (1, "", 7, 0)]
    assert run.give(*rows, ops=["+I", "-U", "+U"]) == [(1, 5), (1, 0), (1, 7)]


# ---------------------------------------------------------------- timers


class Quiet(Process):
    """Says so when nothing came for ten seconds."""

    state = Count

    def on_row(self, row: Any, state: Count, ctx: Context) -> None:
        state.n += 1
        ctx.set_timer(timedelta(seconds=10))
        if row.s == "stop":
            ctx.cancel_timer()
        if row.s == "twice":
            ctx.set_timer(row.t + timedelta(seconds=1), name="soon")

    def on_timer(self, timer: Timer, state: Count, ctx: Context) -> Any:
        assert timer.time == ctx.time
        return (ctx.key, state.n if timer.name == "" else -1)


def test_a_timer_fires_when_the_watermark_has_come_to_it(flow: Any) -> None:
    run = flow(Quiet())
    assert run.give((1, "", 0, 0), (2, "", 0, 5), watermark=6) == []
    assert not run.due(watermark=9.9)
    assert run.due(watermark=10)
    assert run.give(watermark=10) == [(1, 1)]
    assert run.give(watermark=14) == []
    assert run.give((2, "", 0, 12), watermark=14.5) == [], "setting it again moved it"
    assert run.give(watermark=21.9) == []
    assert run.give(watermark=30) == [(2, 2)]
    assert run.held == {1: {"n": 1}, 2: {"n": 2}}


def test_timers_of_different_names_fire_in_the_order_of_their_time(flow: Any) -> None:
    run = flow(Quiet())
    assert run.give((2, "twice", 0, 3), (1, "twice", 0, 0), watermark=4) == [(1, -1), (2, -1)], "by time over all keys"
    assert run.give((2, "stop", 0, 4), watermark=100) == [(1, 1)]


class Clocked(Process):
    """Answers five seconds later, by the clock."""

    def on_row(self, row: Any, state: None, ctx: Context) -> None:
        ctx.set_processing_timer("5 seconds", name=row.s)
        if row.s == "stop":
            ctx.cancel_processing_timer("a")

    def on_timer(self, timer: Timer, state: None, ctx: Context) -> Any:
        assert timer.by_clock
        if timer.name == "again":
            ctx.set_processing_timer(ctx.now, name="next")  # the next epoch at the earliest
        return (ctx.key, (timer.time - at(0)) // timedelta(seconds=1))


def test_a_timer_may_go_by_the_clock(flow: Any) -> None:
    run = flow(Clocked())
    assert run.give((1, "a", 0, 0), now=100) == []
    assert run.give((2, "a", 0, 0), now=103) == []
    assert not run.due(now=104)
    assert run.due(now=105)
    assert run.give((2, "b", 0, 0), now=105) == [(1, 105)]
    assert run.give((2, "stop", 0, 0), now=107) == []
    assert run.give(now=112) == [(2, 110), (2, 112)], "the one that was taken back does not fire"
    run.give((3, "again", 0, 0), now=200)
    assert run.give(now=205) == [(3, 205)]
    assert run.give(now=206) == [(3, 205)]
    assert not run.due(now=1000)


def test_a_timer_that_sets_itself_again_ends_with_time(flow: Any) -> None:
    class Ticking(Process):
        def on_row(self, row: Any, state: None, ctx: Context) -> None:
            ctx.set_timer(row.t, name="tick")

        def on_timer(self, timer: Timer, state: None, ctx: Context) -> Any:
            ctx.set_timer(timer.time + timedelta(seconds=10), name="tick")
            return (ctx.key, (timer.time - at(0)) // timedelta(seconds=1))

    run = flow(Ticking())
    assert run.give((1, "", 0, 0), watermark=25) == [(1, 0), (1, 10), (1, 20)]
    run.watermark = int(25 * SECOND)
    clock = OperatorClock(run.watermark, ALL_READ, 10, since=5)
    found = advance(run.spec, None, run.state, clock)
    assert found.changes is not None
    assert found.changes.drop("$op").rows() == [(1, 30)]


def test_timers_are_refused_without_the_method_and_into_the_past(flow: Any) -> None:
    def sets(row: Any, state: None, ctx: Context) -> None:
        ctx.set_timer(row.t)

    with pytest.raises(UserCodeFailed, match="needs a method on_timer"):
        flow(sets).give((1, "", 0, 0))

    class Back(Process):
        def on_row(self, row: Any, state: None, ctx: Context) -> None:
            ctx.set_timer(row.t)

        def on_timer(self, timer: Timer, state: None, ctx: Context) -> None:
            ctx.set_timer(timer.time)

    with pytest.raises(UserCodeFailed, match=r"Back.on_timer failed: ValueError: a timer cannot set another"):
        flow(Back()).give((1, "", 0, 0), watermark=5)


# ---------------------------------------------------------------- time to live


class Idle(Process):
    state = Count

    def on_row(self, row: Any, state: Count, ctx: Context) -> tuple[int, int]:
        state.n += 1
        return (row.k, state.n)

    def on_idle(self, state: Count, ctx: Context) -> tuple[int, int]:
        return (ctx.key, -state.n)


def test_a_key_that_nothing_comes_for_is_forgotten_by_the_watermark(flow: Any) -> None:
    run = flow(counted, state=Count, ttl=10 * SECOND)
    run.give((1, "", 1, 0), (2, "", 1, 5), watermark=6)
    assert run.give((1, "", 1, 9), watermark=9) == [(1, 2)]
    run.give(watermark=15)
    assert run.held == {1: {"n": 2}}
    run.give(watermark=16)
    assert run.give((2, "", 1, 17), (1, "", 1, 17), watermark=17) == [(2, 1), (1, 3)]
    run.give(watermark=40)
    run.compact()
    assert run.held == {}
    assert not run.runs


def test_it_can_have_a_last_word(flow: Any) -> None:
    run = flow(Idle(), ttl=10 * SECOND)
    run.give((1, "", 1, 0), (2, "", 1, 5), watermark=6)
    assert not run.due(watermark=9)
    assert run.due(watermark=10)
    assert run.give(watermark=12) == [(1, -1)]
    assert run.held == {2: {"n": 1}}
    assert run.give((1, "", 1, 13), watermark=13) == [(1, 1)]
    assert run.give(watermark=100) == [(2, -1), (1, -1)]
    assert run.held == {}
    assert not run.due(watermark=1000)


def test_time_to_live_may_go_by_the_clock(flow: Any) -> None:
    run = flow(Idle(), ttl=10 * SECOND, by_clock=True)
    run.give((1, "", 1, 0), now=100)
    run.give((2, "", 1, 0), now=105)
    assert run.give((1, "", 1, 0), now=109) == [(1, 2)]
    assert not run.due(now=114)
    assert run.due(now=115)
    assert run.give((2, "", 1, 0), now=118) == [(2, -1), (2, 1)], "it had been silent for too long when this came"
    assert run.give(now=119) == [(1, -2)]
    assert run.held == {2: {"n": 1}}


def test_a_timer_keeps_a_key_until_it_has_fired(flow: Any) -> None:
    run = flow(Quiet(), ttl=2 * SECOND)
    run.give((1, "", 1, 0), watermark=1)
    assert run.give(watermark=8) == []
    assert run.held == {1: {"n": 1}}
    assert run.give(watermark=11) == [(1, 1)]
    assert run.held == {1: {"n": 1}}, "the timer counts as a touch"
    run.give(watermark=12)
    assert run.held == {}


# ---------------------------------------------------------------- outputs


def test_rows_can_go_to_side_outputs(flow: Any) -> None:
    def split(row: Any, state: None, ctx: Context) -> Any:
        if row.x > 10:
            ctx.emit({"who": row.s}, to="dear")
        if row.x < 0:
            ctx.emit((row.x,), to="odd")
            return None
        return (row.k, row.x)

    run = flow(split, side={"dear": "who STRING", "odd": "x BIGINT"})
    rows = [(2, "b", 11, 0), (1, "a", -1, 0), (1, "c", 3, 0)]
    found = run.give(*rows)
    assert run.last.changes.columns == ["$op", "$to", "k", "n", "$1:who", "$2:x"]
    assert found == [
        (0, 2, 11, None, None),
        (1, None, None, "b", None),
        (2, None, None, None, -1),
        (0, 1, 3, None, None),
    ]
    assert run.give((1, "c", 3, 0)) == [(0, 1, 3, None, None)]
    with pytest.raises(UserCodeFailed, match="no side output `nowhere`; there are: dear"):
        flow(lambda row, state, ctx: ctx.emit((1,), to="nowhere"), side={"dear": "who STRING"}).give((1, "", 0, 0))


# ---------------------------------------------------------------- failures


@dataclass
class Fragile:
    n: int = 0
    seen: list[str] = field(default_factory=list)


class Breaks(Process):
    state = Fragile

    def on_row(self, row: Any, state: Fragile, ctx: Context) -> Iterator[tuple[int, int]]:
        state.n += 1
        state.seen.append(row.s)
        yield (row.k, state.n)
        ctx.set_timer(row.t)
        if row.s == "bad":
            msg = f"{row.x} is too much"
            raise ValueError(msg)

    def on_timer(self, timer: Timer, state: Fragile, ctx: Context) -> None:
        if state.n == 3:
            msg = "three"
            raise LookupError(msg)


BAD = [(1, "a", 1, 0), (1, "bad", 99, 0), (2, "b", 1, 0), (1, "c", 1, 0)]


def test_a_failure_names_the_function_its_line_and_the_row(flow: Any) -> None:
    with pytest.raises(UserCodeFailed) as failure:
        flow(Breaks()).give(*BAD)
    error = failure.value
    assert error.message == "Breaks.on_row failed: ValueError: 99 is too much"
    assert error.detail == 'the input was {"k": 1, "s": "bad", "x": 99, "t": "1970-01-01 00:00:00+00:00"}'
    assert error.origin is not None
    assert error.origin.file.endswith("test_process.py")
    assert "raise ValueError(msg)" in Path(__file__).read_text().splitlines()[error.origin.line - 1]


def test_redacted_it_says_nothing_of_what_is_in_the_row(flow: Any) -> None:
    with pytest.raises(UserCodeFailed) as failure:
        flow(Breaks(), redact=True).give(*BAD)
    assert failure.value.message == "Breaks.on_row failed: ValueError"
    assert failure.value.detail == 'the input was {"k": "int", "s": "str", "x": "int", "t": "datetime"}'


def test_a_row_that_fails_is_left_out_and_leaves_its_key_as_it_was(flow: Any) -> None:
    run = flow(Breaks(), errors="skip")
    assert run.give(*BAD) == [(1, 1), (2, 1), (1, 2)]
    assert run.held == {1: {"n": 2, "seen": ["a", "c"]}, 2: {"n": 1, "seen": ["b"]}}
    assert (run.last.skipped, run.last.failures) == (1, ())
    assert run.give((3, "bad", 1, 0)) == []
    assert 3 not in run.held, "a key whose only row failed is not there"


def test_a_row_that_fails_can_be_set_apart(flow: Any) -> None:
    run = flow(Breaks(), errors="quarantine")
    assert run.give(*BAD) == [(1, 1), (2, 1), (1, 2)]
    (failed,) = run.last.failures
    assert failed.reason.startswith("Breaks.on_row failed: ValueError: 99 is too much (")
    assert "test_process.py:" in failed.reason
    assert failed.record == '{"k": 1, "s": "bad", "x": 99, "t": "1970-01-01 00:00:00+00:00"}'
    run.give((1, "d", 1, 0), watermark=5)
    (failed,) = run.last.failures
    assert failed.reason.startswith("Breaks.on_timer failed: LookupError: three")
    assert failed.record == '{"key": 1, "time": "1970-01-01 00:00:00+00:00"}'
    assert run.held[1]["n"] == 3


def test_values_that_do_not_fit_their_column_are_failures_of_their_row(flow: Any) -> None:
    def wrong(row: Any, state: Count, ctx: Context) -> Any:
        state.n += 1
        if row.s == "state":
            state.n = 1.5  # type: ignore[assignment]
        return (row.k, "text" if row.s == "result" else row.x)

    rows = [(1, "", 0, 0), (1, "result", 0, 0), (1, "state", 0, 0), (1, "", 0, 0)]
    with pytest.raises(UserCodeFailed, match="the column `n` is int64, but the value is a str"):
        flow(wrong, state=Count).give(*rows)
    with pytest.raises(UserCodeFailed, match="the state `n` is int64, but the value is a float"):
        flow(wrong, state=Count).give(rows[0], rows[2])
    run = flow(wrong, state=Count, errors="quarantine")
    assert run.give(*rows) == [(1, 0), (1, 0)]
    assert [f.reason.partition(": ")[2].partition(",")[0] for f in run.last.failures] == [
        "TypeError: the column `n` is int64",
        "TypeError: the state `n` is int64",
    ]
    assert run.held == {1: {"n": 2}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((1,), "a row of 1 values was emitted for the columns k, n"),
        ({"k": 1, "m": 2}, "a row has no column `m`; it has k, n"),
        (7, "int is not a row: pass a dict, or a tuple of k, n"),
        ("row", "str is not a row"),
        ([7], "int is not a row"),
    ],
)
def test_what_is_no_row_is_refused(flow: Any, given: Any, said: str) -> None:
    with pytest.raises(UserCodeFailed, match=said):
        flow(lambda row, state, ctx: given).give((1, "", 0, 0))


# ---------------------------------------------------------------- the same, however epochs are cut

ROWS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 30)), max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=5)


class Everything(Process):
    """Uses all there is, by event time only."""

    state = Much

    def on_row(self, row: Any, state: Much, ctx: Context) -> Iterator[tuple[int, int]]:
        state.numbers.append(row.x)
        state.by_name[row.s] = state.by_name.get(row.s, 0) + row.x
        if row.x == 0:
            ctx.set_timer("4 seconds", name=row.s)
        if row.x == 1:
            ctx.cancel_timer("a")
        if row.x == 5:
            ctx.drop()
        yield (row.k, len(state.numbers) * 100 + state.by_name[row.s])

    def on_timer(self, timer: Timer, state: Much, ctx: Context) -> Any:
        state.numbers.append(100)
        return (ctx.key, -sum(state.numbers))

    def on_idle(self, state: Much, ctx: Context) -> Any:
        return (ctx.key, -100_000 - len(state.numbers))


def in_pieces(spec: Operator, rows: list[tuple[Any, ...]], cuts: list[int], *, marks: bool) -> tuple[list[Any], Any]:
    """The results and the state after rows in epochs that end at the cuts."""
    with tempfile.TemporaryDirectory() as folder:
        run = Flow(spec, Path(folder))
        found: list[Any] = []
        edges = [0, *sorted({min(c, len(rows)) for c in cuts}), len(rows)]
        for start, end in pairwise(edges):
            ahead = rows[end][3] if end < len(rows) else 40
            mark = ahead if marks else None
            found += run.give(*rows[start:end], watermark=mark)
        found += run.give(watermark=100)
        return found, run.held


@settings(max_examples=60, deadline=None)
@given(ROWS, CUTS)
def test_ordered_rows_give_the_same_however_epochs_are_cut(rows: list[tuple[Any, ...]], cuts: list[int]) -> None:
    rows.sort(key=lambda r: r[3])
    spec = stage(Everything(), ordered=True, ttl=6 * SECOND)
    assert in_pieces(spec, rows, cuts, marks=True) == in_pieces(spec, rows, [], marks=True)


@settings(max_examples=60, deadline=None)
@given(ROWS, CUTS)
def test_a_function_of_rows_gives_the_same_however_epochs_are_cut(rows: list[tuple[Any, ...]], cuts: list[int]) -> None:
    held: dict[int, int] = {}
    wanted = []
    for key, _, x, _ in rows:
        held[key] = held.get(key, 0) + x
        wanted.append((key, held[key]))
    spec = stage(counted, state=Count)
    assert in_pieces(spec, rows, cuts, marks=False) == (wanted, {k: {"n": n} for k, n in held.items()})


@settings(max_examples=40, deadline=None)
@given(ROWS, CUTS)
def test_the_careful_way_gives_the_same_as_the_quick_one(rows: list[tuple[Any, ...]], cuts: list[int]) -> None:
    quick, careful = stage(counted, state=Count), stage(counted, state=Count, errors="quarantine")
    assert in_pieces(quick, rows, cuts, marks=False) == in_pieces(careful, rows, cuts, marks=False)


def test_an_epoch_that_is_run_again_gives_the_same(flow: Any) -> None:
    run = flow(Everything(), ordered=True, ttl=6 * SECOND)
    run.give((1, "a", 0, 0), (2, "b", 0, 1), watermark=2)
    again = Flow(run.spec, run.root, list(run.runs), run.epoch, run.watermark, run.now)
    rows = [(1, "a", 2, 3), (2, "b", 1, 9), (1, "a", 0, 9)]
    assert run.give(*rows, watermark=20) == again.give(*rows, watermark=20)
    assert run.last is not None
    assert again.last is not None
    assert run.last.state_rows["rows"].rows.equals(again.last.state_rows["rows"].rows)


def test_timers_stand_between_ordered_rows(flow: Any) -> None:
    class Between(Process):
        def on_row(self, row: Any, state: None, ctx: Context) -> tuple[int, int]:
            ctx.set_timer(timedelta(seconds=2), name=str(row.x))
            assert ctx.watermark == row.t
            return (row.k, row.x)

        def on_timer(self, timer: Timer, state: None, ctx: Context) -> tuple[int, int]:
            return (ctx.key, -int(timer.name))

    run = flow(Between(), ordered=True)
    rows = [(1, "", 1, 0), (2, "", 2, 1), (1, "", 3, 2), (2, "", 4, 2.5), (1, "", 5, 4)]
    assert run.give(*rows, watermark=4.5) == [
        (1, 1),
        (2, 2),
        (1, -1),
        (1, 3),
        (2, 4),
        (2, -2),
        (1, -3),
        (1, 5),
        (2, -4),
    ]
