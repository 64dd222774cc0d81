"""Questions to the outside: each asked once while its answer is good, and the same answers for an epoch run again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from millstream.clock import BEGINNING
from millstream.engine.driver import lookup_calls
from millstream.engine.driver.lookup_calls import answered, asked
from millstream.engine.driver.lookup_records import forget
from millstream.errors import UserCodeFailed
from millstream.kernels.kernel import NoServices
from millstream.kernels.outcome import OperatorClock, Outcome
from millstream.kernels.python.by_key import KEY
from millstream.model.types.schema import Schema
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.state.local_storage import LocalStorage
from millstream.state.run import StateRun
from millstream.state.shard import RunCache, StateReader
from tests.kernel_kit import advance, write_first

SECOND = 1_000_000
KINDS = {"k": pa.int64(), "s": pa.string()}


@dataclass
class Service:
    """Doubles numbers and names them; knows no odd hundreds. Remembers what it was asked."""

    calls: list[list[Any]] = field(default_factory=list)
    fails: int = 0
    version: str = "v1"

    def __call__(self, keys: list[Any]) -> list[Any]:
        self.calls.append(keys)
        if self.fails:
            self.fails -= 1
            msg = "the line is down"
            raise ConnectionError(msg)
        return [self.answer(k) for k in keys]

    def answer(self, key: Any) -> Any:
        if key is None or key % 100 == 99:
            return None
        return {"twice": 2 * key, "by": self.version}


class Recorded(NoServices):
    """The real lookups, with their answers written down."""

    def __init__(self, folder: Path, epoch: int) -> None:
        self.folder, self.epoch = folder, epoch

    def look_up(self, operator: AsyncLookup, requests: pl.DataFrame) -> pl.DataFrame:
        return answered(operator, requests, LocalStorage(self.folder), self.epoch)


def stage(function: Any, keys: str = "k", schema: str = "twice BIGINT, by STRING", **more: Any) -> Operator:
    side = Side((), tuple(KINDS), append_only=True, types=tuple(KINDS.values()))
    return AsyncLookup("v", function, "Service", Schema.parse(schema), **more, sides=(side,), keys=tuple(keys))


@dataclass
class Flow:
    spec: Operator
    root: Path
    runs: list[StateRun] = field(default_factory=list)
    epoch: int = 0
    now: int = 0
    last: Outcome | None = None

    def give(self, *rows: Sequence[Any], now: float = 0) -> list[tuple[Any, ...]]:
        """Run an epoch over rows (k, s)."""
        found = self.run(rows, now)
        self.runs += write_first(self.root, self.spec, found, f"{self.epoch:012d}-0")
        self.now = int(now * SECOND)
        return [] if found.changes is None else found.changes.drop("$op").rows()

    def run(self, rows: Sequence[Sequence[Any]], now: float) -> Outcome:
        self.epoch += 1
        frame = None
        if rows:
            columns = {"k": [r[0] for r in rows], "s": [r[1] for r in rows]}
            frame = pl.DataFrame(columns, schema={"k": pl.Int64, "s": pl.String})
            frame = frame.with_columns(pl.lit("+I").alias("$op"))
        clock = OperatorClock(BEGINNING, BEGINNING, int(now * SECOND), since=self.now)
        state = StateReader(RunCache(self.root), self.runs, KEY)
        self.last = advance(self.spec, frame, state, clock, Recorded(self.root / "answers", self.epoch))
        return self.last

    @property
    def kept(self) -> int:
        found = StateReader(RunCache(self.root), self.runs, KEY).scan(BEGINNING)
        return 0 if found is None else len(found.filter(~pl.col("$gone")))


def test_every_different_question_is_asked_once(tmp_path: Path) -> None:
    service = Service()
    run = Flow(stage(service), tmp_path)
    assert run.give((1, "a"), (2, "b"), (1, "c")) == [(1, "a", 2, "v1"), (2, "b", 4, "v1"), (1, "c", 2, "v1")]
    assert run.give((2, "d"), (3, "e")) == [(2, "d", 4, "v1"), (3, "e", 6, "v1")]
    assert service.calls == [[1, 2], [3]]
    assert run.give() == []


def test_a_question_without_an_answer_is_not_asked_again_either(tmp_path: Path) -> None:
    service = Service()
    run = Flow(stage(service), tmp_path)
    assert run.give((99, "a"), (None, "b")) == [(99, "a", None, None), (None, "b", None, None)]
    assert run.give((99, "c")) == [(99, "c", None, None)]
    assert service.calls == [[99, None]]
    strict = Flow(stage(service, required=True), tmp_path / "strict")
    assert strict.give((99, "a"), (1, "b")) == [(1, "b", 2, "v1")]


def test_an_answer_is_good_for_as_long_as_is_said(tmp_path: Path) -> None:
    service = Service()
    run = Flow(stage(service, cache=10 * SECOND), tmp_path)
    run.give((1, "a"), (2, "b"), now=100)
    service.version = "v2"
    assert run.give((1, "c"), now=109) == [(1, "c", 2, "v1")]
    assert run.give((1, "d"), now=110) == [(1, "d", 2, "v2")]
    assert run.kept == 1, "the answer that nobody asked for again is gone"
    assert run.give(now=130) == []
    assert run.kept == 0
    assert service.calls == [[1, 2], [1]]


def test_several_columns_are_asked_as_rows(tmp_path: Path) -> None:
    def both(rows: list[Any]) -> list[Any]:
        return [(r.k * len(r.s), r.s) for r in rows]

    run = Flow(stage(both, keys="ks"), tmp_path)
    assert run.give((2, "abc"), (2, "a")) == [(2, "abc", 6, "abc"), (2, "a", 2, "a")]


def test_an_epoch_that_is_run_again_has_the_same_answers(tmp_path: Path) -> None:
    service = Service()
    run = Flow(stage(service), tmp_path)
    first = run.run([(1, "a"), (2, "b")], 0)
    service.version = "v2"
    run.epoch -= 1  # it was not committed
    again = run.run([(1, "a"), (2, "b"), (3, "c")], 0)
    assert first.changes is not None
    assert again.changes is not None
    assert again.changes.head(2).equals(first.changes)
    assert again.changes["by"].to_list() == ["v1", "v1", "v2"]
    assert service.calls == [[1, 2], [3]]
    forget(LocalStorage(tmp_path / "answers"), "v", before=2)
    assert not list((tmp_path / "answers" / "v").iterdir())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause before a call is tried again."""
    monkeypatch.setattr(lookup_calls, "FIRST_PAUSE", 0.0)


@pytest.mark.usefixtures("quick")
def test_a_call_that_fails_is_tried_again(tmp_path: Path) -> None:
    service = Service(fails=2)
    run = Flow(stage(service, retries=2), tmp_path)
    assert run.give((1, "a")) == [(1, "a", 2, "v1")]
    assert service.calls == [[1]] * 3


@pytest.mark.usefixtures("quick")
def test_a_call_that_fails_for_good_stops_the_flow_or_sets_rows_apart(tmp_path: Path) -> None:
    with pytest.raises(UserCodeFailed, match="Service failed: ConnectionError: the line is down") as failure:
        Flow(stage(Service(fails=9), retries=1), tmp_path / "fail").give((1, "a"))
    assert failure.value.detail == 'the keys were {"k": 1}'

    service = Service(fails=2)
    run = Flow(stage(service, retries=1, errors="quarantine", batch=1, parallel=1), tmp_path / "apart")
    assert run.give((1, "a"), (2, "b"), (1, "c")) == [(2, "b", 4, "v1")]
    assert run.last is not None
    assert [f.record for f in run.last.failures] == ['{"k": 1, "s": "a"}', '{"k": 1, "s": "c"}']
    assert run.last.failures[0].reason.startswith("Service failed: ConnectionError: the line is down (")
    assert run.give((1, "d")) == [(1, "d", 2, "v1")], "a failure is no answer"

    run = Flow(stage(Service(fails=1), retries=0, errors="skip"), tmp_path / "skip")
    assert run.give((1, "a"), (2, "b")) == []
    assert run.last is not None
    assert (run.last.skipped, run.last.failures) == (2, ())


def test_answers_of_a_wrong_shape_are_failures(tmp_path: Path) -> None:
    for answer, said in (
        ([{"twice": 1}, {"twice": 2}], "2 answers were given to 1 questions"),
        ([{"once": 1}], "a row has no column `once`"),
        ([("x", "y")], "the column `twice` is int64, but the value is a str"),
    ):
        with pytest.raises(UserCodeFailed, match=said):
            Flow(stage(lambda keys, answer=answer: answer, retries=0), tmp_path).give((1, "a"))


def test_batches_are_asked_several_at_a_time(tmp_path: Path) -> None:
    meet = threading.Barrier(3)
    sizes: list[int] = []

    def together(keys: list[int]) -> list[Any]:
        sizes.append(len(keys))
        meet.wait(timeout=60)  # all three must be under way at once
        return [(k, "") for k in keys]

    run = Flow(stage(together, batch=2, parallel=3), tmp_path)
    assert [r[2] for r in run.give(*((k, "") for k in range(6)))] == list(range(6))
    assert sizes == [2, 2, 2]


def test_an_asynchronous_function_is_awaited_and_may_keep_a_client() -> None:
    loops: list[object] = []

    async def fetch(keys: list[int]) -> list[Any]:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return [(k, "") for k in keys]

    what = stage(fetch, batch=2)
    assert asked(what, [1, 2, 3]) == [(1, ""), (2, ""), (3, "")]
    assert asked(what, [4]) == [(4, "")]
    assert len(set(loops)) == 1, "a client that lives in the loop stays good"


@pytest.mark.usefixtures("quick")
def test_a_call_that_takes_too_long_is_given_up() -> None:
    never = threading.Event()
    what = stage(lambda keys: never.wait(60), retries=1, timeout=10_000)
    (error,) = asked(what, [1])
    assert isinstance(error, TimeoutError)
    assert str(error) == "no answer within 0.01 s, asked 2 times"
    never.set()

    async def hang(keys: list[int]) -> list[Any]:
        await asyncio.Event().wait()
        return []

    (error,) = asked(replace(what, function=hang), [1])
    assert isinstance(error, TimeoutError)
