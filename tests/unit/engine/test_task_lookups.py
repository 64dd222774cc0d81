"""Lookups on the executors: the rows of the driver with any number of shards, and the same results in a rerun."""

from __future__ import annotations

import fcntl
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import millstream as ms
from millstream.engine.driver import lookup_calls
from millstream.engine.driver.lookup_records import LookupRecords
from millstream.engine.spark.sent_function import SentFunction
from millstream.engine.tasks.task_services import LookupTasks, TaskServices
from millstream.errors import UserCodeFailed
from millstream.kernels.kernel import NO_SERVICES
from millstream.kernels.python.by_key import KEY
from millstream.model.types.schema import Schema
from millstream.plan.explain.plan_tree import explain
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.plan.planner import plan
from millstream.state.local_storage import LocalStorage
from millstream.testing.script import STEPS, Crash
from tests.accounting import assert_balanced
from tests.sql.engine import QueryScript

BASE = 1_767_225_600
SCHEMA = "user BIGINT, page STRING, ts TIMESTAMP"
PLACED = [("inline", 1), ("spread", 1), ("spread", 3), ("spread", 7)]
VIEWS = ("named", "by_name", "trail")


def service(log: Path) -> Callable[[list[int]], list[Any]]:
    """Names users, in another way at every call: whoever asks again is found out. It writes its calls to a file,
    because tasks call a copy of it.
    """

    def names(users: list[int]) -> list[Any]:
        if -1 in users:
            raise ConnectionError("no line")
        with log.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # calls run at the same time
            file.write(json.dumps(users) + "\n")
            file.flush()
            number = len(log.read_text().splitlines())
        return [None if u == 9 else (f"user {u % 3}", number) for u in users]

    return names


def asked(log: Path) -> Counter[int]:
    """How often each user was asked for."""
    return Counter(u for line in log.read_text().splitlines() for u in json.loads(line))


def hit(user: int, page: str = "home", second: float = 0) -> dict[str, Any]:
    return {"user": user, "page": page, "ts": BASE + second}


@dataclass
class Seen:
    users: str = ""


class Trail(ms.Process):
    """The users of a page so far: it tells every change of order."""

    state = Seen

    def on_row(self, row: Any, state: Seen, ctx: ms.Context) -> Any:
        state.users += f" {row.user}:{row.name}"
        return {"page": ctx.key, "users": state.users}


def flow_of(function: Any, *views: str, **options: Any) -> ms.Flow:
    flow = ms.Flow("site")
    hits = flow.source("hits", ms.memory(), schema=SCHEMA, event_time="ts", lateness="1 hour")
    named = hits.ask(function, on="user", schema="name STRING, number BIGINT", batch=3, **options)
    found = {
        "named": named.select("user", "page", "name", "number"),
        "by_name": named.key_by("name").aggregate(n=ms.count(), u=ms.max("user")),
        "trail": named.key_by("page").process(Trail(), schema="page STRING, users STRING"),
    }
    for view in views:
        found[view].view(view)
    return flow


def sent() -> list[list[dict[str, Any]]]:
    pages = ("home", "shop", "pay")
    return [
        [hit((7 * i + e) % 23, pages[(i * i + e) % 3], i) for i in range(count)] for e, count in enumerate((30, 2, 25))
    ]


def rows(script: QueryScript, view: str, *without: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(v for n, v in r.items() if n not in without) for r in script.rows(view)), key=repr)


def graph_of(script: QueryScript) -> Any:
    return script._loop.engine.graph  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    folder = tmp_path_factory.mktemp("inline")
    with QueryScript(flow_of(service(folder / "log"), *VIEWS), folder / "home") as script:
        for come in sent():
            script.send("hits", *come).tick()
        return {v: rows(script, v, "number") for v in VIEWS}


@pytest.mark.parametrize(("placement", "shards"), PLACED)
def test_rows_are_those_of_the_driver(
    tmp_path: Path, placement: str, shards: int, expected: dict[str, list[tuple[Any, ...]]]
) -> None:
    log = tmp_path / "log"
    with QueryScript(flow_of(service(log), *VIEWS), tmp_path / "home", placement=placement, shards=shards) as script:
        assert not graph_of(script).reasons, "no operator stays in the driver, nor a process after a lookup"
        for come in sent():
            script.send("hits", *come).tick()
            if placement == "spread":
                assert set(VIEWS) <= set(script.reports[-1].output.loads)
        assert {v: rows(script, v, "number") for v in VIEWS} == expected
        assert set(asked(log).values()) == {1}, "each user once"
        assert_balanced(script.home)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("again", [("spread", 3), ("spread", 7), ("inline", 1)])
def test_a_rerun_has_the_results_that_were_used(tmp_path: Path, step: str, again: tuple[str, int]) -> None:
    log = tmp_path / "log"
    flow = flow_of(service(log), "named")
    with QueryScript(flow, tmp_path / "home", placement="spread", shards=3) as script:
        script.send("hits", *(hit(u) for u in range(6))).tick()
        script.send("hits", *(hit(u) for u in range(3, 12))).crash(at=step)
        with pytest.raises(Crash):
            script.tick()
        script.resume(placement=again[0], shards=again[1])
        script.tick()
        assert asked(log) == Counter(range(12)), "nothing was asked again"
        numbers = {r["user"]: r["number"] for r in script.rows("named") if r["name"] is not None}
        for line, users in enumerate(log.read_text().splitlines(), start=1):
            assert all(numbers[u] == line for u in json.loads(users) if u != 9)
        assert sorted(r["user"] for r in script.rows("named")) == sorted([*range(6), *range(3, 12)])


def test_results_of_the_driver_count_for_tasks(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with QueryScript(flow_of(service(log), "named"), tmp_path / "home") as script:
        script.send("hits", *(hit(u) for u in range(9))).crash(at="before commit")
        with pytest.raises(Crash):
            script.tick()
        script.resume(placement="spread", shards=3)
        script.tick()
        assert set(script.reports[-1].output.loads) == {"named"}
        assert asked(log) == Counter(range(9))
        for _ in range(10):
            script.send("hits", hit(100 + len(script.reports))).tick()
        kept = list((tmp_path / "home" / "flows" / "site" / "answers").glob("*/*"))
        assert 3 < len(kept) < 24, "the results of the last epochs"


@pytest.mark.parametrize(("placement", "shards"), PLACED)
def test_failures_are_handled_as_in_the_driver(
    tmp_path: Path, placement: str, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_calls, "FIRST_PAUSE", 0.0)
    log, where = tmp_path / "log", {"placement": placement, "shards": shards}
    bad = [hit(1), hit(-1), hit(2), hit(2)]
    flow = flow_of(service(log), "named", errors="quarantine", retries=0)
    with QueryScript(flow, tmp_path / "quarantine", **where) as script:  # type: ignore[arg-type]
        script.send("hits", *bad).tick()
        failed = {json.loads(r["raw"])["user"] for r in script.rows("named$errors")}
        assert -1 in failed
        assert {r["user"] for r in script.rows("named")} | failed == {1, -1, 2}
        assert "ConnectionError: no line" in script.rows("named$errors")[0]["reason"]
    flow = flow_of(service(log), "named", errors="skip", retries=0)
    with QueryScript(flow, tmp_path / "skip", **where) as script:  # type: ignore[arg-type]
        script.send("hits", *bad).tick()
        assert script.reports[0].errors == 4 - len(script.rows("named"))
    flow = flow_of(service(log), "named", retries=0)
    with QueryScript(flow, tmp_path / "fail", **where) as script:  # type: ignore[arg-type]
        script.send("hits", *bad)
        with pytest.raises(UserCodeFailed, match="ConnectionError: no line"):
            script.tick()


# ---------------------------------------------------------------- functions that cannot leave the driver


class Held:
    """A function with a lock in it."""

    def __init__(self, log: Path) -> None:
        self.lock, self.names = threading.Lock(), service(log)

    def __call__(self, users: list[int]) -> list[Any]:
        with self.lock:
            return self.names(users)


def test_a_function_that_cannot_be_pickled_stays_in_the_driver(
    tmp_path: Path, expected: dict[str, list[tuple[Any, ...]]]
) -> None:
    flow = flow_of(Held(tmp_path / "log"), *VIEWS)
    with QueryScript(flow, tmp_path / "home", shards=3) as script:
        first, *others = graph_of(script).reasons.values()
        assert "cannot be pickled" in first
        assert others and all("which runs there" in r for r in others), "what is downstream of it"
        for come in sent():
            script.send("hits", *come).tick()
        assert {v: rows(script, v, "number") for v in VIEWS} == expected
    assert "on the executors for large ones, if its function can be pickled" in str(explain(plan(flow)))


def test_a_function_is_sent_as_it_was_and_keeps_what_it_opens_in_its_process() -> None:
    class Client:
        connection: Any = None

        def __call__(self, keys: list[int]) -> list[Any]:
            self.connection = self.connection or threading.Lock()
            return [(id(self.connection),) for _ in keys]

    client = Client()
    sent_one = SentFunction.of(client)
    client([1])  # the driver's own copy holds a lock now, and could not be pickled
    first, second = sent_one.function, SentFunction(sent_one.pickled).function
    assert first([1]) == second([2])
    assert first is not client


# ---------------------------------------------------------------- attempts at a task


def lookup(function: Any, **more: Any) -> AsyncLookup:
    side = Side((), ("k",), append_only=True, types=(pa.int64(),))
    return AsyncLookup(
        "v", function, "f", Schema.parse("n BIGINT"), **more, sides=(side,), keys=("k",), fingerprint="f"
    )


def requests(*keys: int) -> pl.DataFrame:
    return pl.DataFrame({"$h": keys, "$a": keys, "k": keys}, schema=dict.fromkeys((*KEY, "k"), pl.Int64))


def results(frame: pl.DataFrame) -> dict[int, int]:
    return dict(zip(frame["$h"].to_list(), frame["@n"].to_list(), strict=True))


def test_another_attempt_at_a_task_has_the_results_of_the_first(tmp_path: Path) -> None:
    tasks = LookupTasks(LocalStorage(tmp_path), 4, 1, 3)
    first, second = (TaskServices(NO_SERVICES, tasks, 2, attempt) for attempt in (10, 11))
    one, other = lookup(lambda keys: [(k * 10,) for k in keys]), lookup(lambda keys: [(k * 100,) for k in keys])
    assert results(first.look_up(one, requests(1, 2))) == {1: 10, 2: 20}
    assert results(second.look_up(other, requests(1, 2, 3))) == {1: 10, 2: 20, 3: 300}
    assert second.files[:-1] == first.files
    elsewhere = TaskServices(NO_SERVICES, tasks, 1, 12)
    assert results(elsewhere.look_up(other, requests(1))) == {1: 100}, "another shard"


def test_of_two_attempts_at_once_the_first_that_is_recorded_counts(tmp_path: Path) -> None:
    tasks = LookupTasks(LocalStorage(tmp_path), 4, 1, 3)
    fast, slow = (TaskServices(NO_SERVICES, tasks, 0, attempt) for attempt in (11, 10))

    def overtaken(keys: list[int]) -> list[Any]:
        fast.look_up(lookup(lambda keys: [(k * 10,) for k in keys]), requests(1, 2))
        return [(k * 100,) for k in keys]

    assert results(slow.look_up(lookup(overtaken), requests(1, 2, 3))) == {1: 10, 2: 20, 3: 300}
    records = LookupRecords.of(tasks.storage, lookup(None), 4)
    found = records.read(slow.files)
    assert found is not None
    assert results(found) == {1: 10, 2: 20, 3: 300}, "what the driver records is what was used"


def test_calls_at_once_are_divided_over_the_tasks() -> None:
    tasks = LookupTasks(LocalStorage(Path()), 1, 1, 3)
    assert [tasks.share(lookup(None, parallel=n)).parallel for n in (8, 3, 2)] == [2, 1, 1]
