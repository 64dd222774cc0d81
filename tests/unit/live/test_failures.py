"""A flow that has failed says so wherever a person looks, while its process lives and after it."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from millstream.cli.app import cli
from millstream.cli.connection import Connection, connected
from millstream.errors import (
    ConnectionLost,
    DefinitionError,
    MillstreamError,
    QueryError,
    RunError,
    SourceMissing,
    Unsupported,
    ViewFailed,
)
from millstream.home import Home
from millstream.live.definitions import Definitions
from millstream.live.session import Session
from millstream.plan.plan import Plan
from millstream.reader import Reader
from millstream.runtime.epoch.loop import FlowLoop
from millstream.runtime.flow_assembly import LoopOptions
from millstream.runtime.open_home import OpenHome
from millstream.runtime.supervision.run import Run
from millstream.serve.client import LocalClient
from tests.sql.engine import QueryEngine
from tests.unit.live.world import BIDS, HOT

GONE = "the folder of `bids` is gone"


class OpenFragile(OpenHome):
    """Its flows run without Spark, and fail when they are told to."""

    failing = False

    def loop(self, plan: Plan, options: LoopOptions) -> FlowLoop:
        return super().loop(plan, LoopOptions(engine=QueryEngine, failpoint=self.fail))

    def start(self, plan: Plan, options: LoopOptions, **more: Any) -> Run:
        return super().start(plan, options, **{"restarts": None, **more})  # a first failure is the last

    def fail(self, point: str) -> None:
        if self.failing:
            raise SourceMissing(GONE, detail="it was there", hint="put it back")


class Fragile(Home):
    """A home whose flows run without Spark, and fail when they are told to."""

    opens = OpenFragile
    open_home: OpenFragile

    @property
    def failing(self) -> bool:
        return self.open_home.failing

    @failing.setter
    def failing(self, failing: bool) -> None:
        self.open_home.failing = failing


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Fragile]:
    with Fragile(tmp_path / "home") as opened:
        yield opened


def speak(home: Home) -> Callable[[str], list[dict[str, Any]]]:
    session: Session = home.session()

    def say(sql: str) -> list[dict[str, Any]]:
        answers = list(session.execute(sql))
        return answers[-1].result.to_dicts() if answers[-1].result is not None else []

    return say


def break_down(home: Fragile) -> None:
    """Have the flow of `hot` take one record in, and fail for good on the next."""
    say = speak(home)
    say(f"{BIDS}; {HOT}; INSERT INTO bids VALUES (7, 1, TIMESTAMP '2026-01-01 00:00:00')")
    assert say("SELECT n FROM hot") == [{"n": 1}]
    home.failing = True
    run = home.session().deployment.runs["bids"]
    say("INSERT INTO bids VALUES (7, 1, TIMESTAMP '2026-01-01 00:00:01')")
    with pytest.raises(SourceMissing):
        run.wait(timeout=60)


def read(path: Path, sql: str) -> object:
    with Reader(path) as reader:
        return reader.query(sql)


def run_cli(*arguments: Any) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def test_every_listing_says_that_a_flow_has_failed_and_why(home: Fragile) -> None:
    break_down(home)
    say, failed = speak(home), f"failed: {GONE}"
    assert home.flows()[0]["state"] == failed == home.flow_state("bids")
    assert home.views()[0]["state"] == failed
    assert say("SHOW FLOWS")[0]["state"] == failed
    assert say("SHOW VIEWS")[0]["state"] == failed
    assert say("SHOW SOURCES")[0]["state"] == f"not read by the flow bids: {failed}"
    with Reader(home.path) as reader:
        assert reader.flows()[0]["state"] == reader.views()[0]["state"] == failed


def test_a_question_about_a_view_that_has_failed_is_an_error(home: Fragile) -> None:
    break_down(home)
    asks: list[Callable[[], object]] = [
        lambda: home.query("SELECT n FROM hot"),
        lambda: list(home.session().execute("SELECT n FROM hot")),
        lambda: list(home.session().execute("CREATE TABLE kept (n BIGINT); INSERT INTO kept SELECT n FROM hot")),
        lambda: read(home.path, "SELECT n FROM hot"),
    ]
    for ask in asks:
        with pytest.raises(ViewFailed, match="the view `hot` has failed") as failed:
            ask()
        assert failed.value.detail is not None and failed.value.hint is not None
        assert f"the flow `bids` failed: {GONE}" in failed.value.detail and "RESUME bids" in failed.value.hint
    done = run_cli("query", "SELECT n FROM hot", "--home", home.path)
    assert done.exit_code == ViewFailed.exit_code and GONE in done.output


def test_its_last_rows_come_with_a_warning_if_they_are_asked_for(home: Fragile) -> None:
    break_down(home)
    expected = re.compile(rf"the view `hot` has failed; its rows are \d+ \w+ old: the flow `bids` failed: {GONE}")
    given = [home.query("SELECT n FROM hot", failed_views="warn")]
    *_, answer = home.session().execute("SET failed_views = 'warn'; SELECT n FROM hot")
    given.append(answer.result)  # type: ignore[arg-type]
    with Reader(home.path) as reader:
        given.append(reader.query("SELECT n FROM hot", failed_views="warn"))
        assert reader.query("SELECT 1 AS n").warnings == ()
    with connected(home.path) as connection:
        *_, answer = connection.execute("SET failed_views = 'warn'; SELECT n FROM hot")
        given.append(answer.result)  # type: ignore[arg-type]
        assert connection.failing() == 1
    for result in given:
        (warning,) = result.warnings
        assert expected.fullmatch(warning) and result.to_dicts() == [{"n": 1}]
    done = run_cli("query", "SELECT n FROM hot", "--format", "csv", "--failed-views", "warn", "--home", home.path)
    assert done.stdout == "n\n1\n" and expected.search(done.stderr)


def test_what_was_set_aside_of_it_can_be_read(home: Fragile) -> None:
    break_down(home)
    assert home.query("SELECT * FROM hot$errors").to_dicts() == []
    speak(home)("DESCRIBE hot")


def test_unknown_ways_to_treat_it_are_refused(home: Fragile) -> None:
    with pytest.raises(DefinitionError, match="failed_views is 'ignore'"):
        speak(home)("SET failed_views = 'ignore'")
    with pytest.raises(DefinitionError, match="failed_views is 'ignore'"):
        home.query("SELECT 1 AS n", failed_views="ignore")


def test_other_views_and_tables_are_not_affected(home: Fragile) -> None:
    say = speak(home)
    say("CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (1)")
    say("CREATE VIEW other WITH (tables = 'live') AS SELECT a + 1 AS b FROM t; SELECT * FROM other")
    break_down(home)
    assert say("SELECT a FROM t") == [{"a": 1}] and say("SELECT b FROM other") == [{"b": 2}]


def test_a_view_that_fails_at_its_start_is_told_once(home: Fragile) -> None:
    say = speak(home)
    say("CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (1)")
    home.failing = True
    home.open_home.loop = lambda plan, options: home.open_home.fail("start")  # type: ignore[method-assign]
    session = home.session()
    *_, answer = session.execute(f"{BIDS}; {HOT}; SELECT a FROM t")
    assert answer.result is not None and answer.result.to_dicts() == [{"a": 1}]
    (warning,) = answer.result.warnings
    assert GONE in warning and "`hot`" in warning and "RESUME bids" in warning
    (answer,) = session.execute("SELECT a FROM t")
    assert answer.result is not None and answer.result.warnings == ()
    with pytest.raises(ViewFailed, match="the view `hot` has failed"):
        list(session.execute("SELECT n FROM hot"))


def test_a_view_that_cannot_be_started_stops_no_question(home: Fragile, monkeypatch: pytest.MonkeyPatch) -> None:
    session = home.session()
    list(session.execute("CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (1)"))
    start = home.open_home.start

    def refuse(plan: Any, options: Any, **more: Any) -> Any:
        raise Unsupported("no plan for it")

    monkeypatch.setattr(home.open_home, "start", refuse)
    *_, answer = session.execute(f"{BIDS}; {HOT}; SELECT a FROM t")
    assert answer.result is not None and answer.result.to_dicts() == [{"a": 1}]
    assert answer.result.warnings == ("the view `hot` does not work: no plan for it",)
    with pytest.raises(ViewFailed, match="the view `hot` does not work: no plan for it"):
        list(session.execute("RESUME hot"))
    monkeypatch.setattr(home.open_home, "start", start)
    (answer,) = session.execute("RESUME hot")
    assert answer.message == "the flow bids goes on"
    (answer,) = session.execute("SELECT n FROM hot")
    assert answer.result is not None and answer.result.to_dicts() == []


def test_resume_says_what_came_of_it(home: Fragile) -> None:
    break_down(home)
    session = home.session()
    with pytest.raises(ViewFailed, match=f"the flow `bids` failed again: {GONE}") as failed:
        list(session.execute("RESUME hot"))
    assert failed.value.detail is not None and failed.value.detail.startswith("it was there")
    home.failing = False
    (answer,) = session.execute("RESUME hot")
    assert answer.message == f"the flow bids goes on and has caught up; it was: failed: {GONE}"
    (answer,) = session.execute("SELECT n FROM hot")
    assert answer.result is not None and answer.result.to_dicts() == [{"n": 2}] and answer.result.warnings == ()


def test_a_subscription_ends_with_the_reason(home: Fragile) -> None:
    break_down(home)
    (answer,) = home.session().execute("SUBSCRIBE TO hot")
    assert answer.changes is not None
    with pytest.raises(QueryError, match=GONE) as ended:
        for _ in answer.changes:
            pass
    assert ended.value.detail == "it was there" and "RESUME bids" in str(ended.value.hint)


def test_it_is_remembered_until_the_flow_runs_again(tmp_path: Path) -> None:
    with Fragile(tmp_path) as home:
        break_down(home)
    with Reader(tmp_path) as reader:  # nobody owns the home now
        assert reader.flows()[0]["state"] == reader.views()[0]["state"] == f"failed: {GONE}"
        assert GONE in reader.query("SELECT n FROM hot", failed_views="warn").warnings[0]
    for command in ("views", "flows"):
        (row,) = json.loads(run_cli(command, "--home", tmp_path, "--format", "json").stdout)
        assert row["state"] == f"failed: {GONE}"
    with Fragile(tmp_path) as home:
        say = speak(home)
        run = home.session().deployment.runs["bids"]
        run.catch_up(60)
        assert say("SELECT n FROM hot") == [{"n": 2}] and home.query("SELECT n FROM hot").warnings == ()
    with Reader(tmp_path) as reader:
        assert reader.flows()[0]["state"] == "stopped"


def test_a_flow_that_never_came_up_is_listed_too(home: Fragile) -> None:
    home.failing = True
    say = speak(home)
    home.open_home.loop = lambda plan, options: home.open_home.fail("start")  # type: ignore[method-assign]
    say(f"{BIDS}; {HOT}")
    with pytest.raises(MillstreamError):
        home.session().deployment.runs["bids"].wait(timeout=60)
    assert [(f["flow"], f["state"]) for f in home.flows()] == [("bids", f"failed: {GONE}")]
    assert say("SHOW VIEWS")[0]["state"] == f"failed: {GONE}"


def test_who_waits_for_a_flow_that_was_stopped_is_told(home: Fragile) -> None:
    say = speak(home)
    say(f"{BIDS}; {HOT}; INSERT INTO bids VALUES (7, 1, TIMESTAMP '2026-01-01 00:00:00')")
    run = home.session().deployment.runs["bids"]
    run.stop()
    with pytest.raises(RunError, match="was stopped before it had caught up"):
        run.catch_up(60)


def test_a_flow_that_fails_does_not_disturb_questions_about_others(home: Fragile) -> None:
    say = speak(home)
    more = "CREATE VIEW more WITH (flow = 'other') AS SELECT auction, max(price) AS p FROM bids GROUP BY auction"
    say(f"{BIDS}; {HOT}; {more}")
    say("INSERT INTO bids VALUES (7, 1, TIMESTAMP '2026-01-01 00:00:00')")
    assert say("SELECT p FROM more") == [{"p": 1}] and say("SELECT n FROM hot") == [{"n": 1}]
    failing, other = (home.session().deployment.runs[flow] for flow in ("bids", "other"))
    assert other.loop is not None
    other.loop._fail = lambda _: None  # type: ignore[method-assign]
    failing._supervisor.restarts = type(failing._supervisor.restarts)(limit=0)
    home.failing = True
    say("INSERT INTO bids VALUES (7, 2, TIMESTAMP '2026-01-01 00:00:01')")
    assert say("SELECT p FROM more") == [{"p": 2}]


def test_dropping_a_view_forgets_that_its_flow_failed(home: Fragile) -> None:
    break_down(home)
    speak(home)("DROP VIEW hot")
    assert home.store.failures() == {} and home.query("SELECT 1 AS n").warnings == ()


def test_a_subscription_resumes_with_the_next_owner(tmp_path: Path) -> None:
    with Fragile(tmp_path) as home:
        say = speak(home)
        say(f"{BIDS}; {HOT}; INSERT INTO bids VALUES (7, 1, TIMESTAMP '2026-01-01 00:00:00'); SELECT n FROM hot")
        connection = remote(tmp_path)
        answers = connection.execute("SUBSCRIBE TO hot WITH SNAPSHOT")
        answer = next(answers)
        assert answer.changes is not None
        changes = (c for c in answer.changes if c.table is not None)
        assert next(changes).table.to_pylist() == [{"op": "+I", "auction": 7, "n": 1}]  # type: ignore[union-attr]
    with Fragile(tmp_path) as home:
        say = speak(home)
        assert say("SELECT n FROM hot") == [{"n": 1}]
        threading.Timer(0.0, lambda: say("INSERT INTO bids VALUES (7, 1, TIMESTAMP '2026-01-01 00:00:01')")).start()
        found = next(changes)
        assert found.table is not None and not found.snapshot
        assert found.table.to_pylist()[-1] == {"op": "+U", "auction": 7, "n": 2}
    home = Fragile(tmp_path)  # epochs that nobody has heard of are not kept
    try:
        session = home.session(start=False)
        planned = session.deployment.planned("bids")
        assert planned is not None
        home.topic("bids").append([{"auction": 8, "price": 1, "ts": datetime(2026, 1, 1, tzinfo=UTC)}])
        loop = home.loop(planned)
        assert loop.step() is not None
        loop.close()
    finally:
        home.close()
    with Fragile(tmp_path) as home:
        speak(home)("SHOW FLOWS")
        with pytest.raises(QueryError, match="are not kept any more"):
            next(changes)
    connection.close()


def test_a_subscription_to_a_topic_resumes_at_the_next_record(tmp_path: Path) -> None:
    with Fragile(tmp_path) as home:
        home.topic("t", schema="n BIGINT", partitions=2)
        home.topic("t").append([{"n": 1}], partition=1)
        assert home.store
        connection = remote(tmp_path)
        (answer,) = itertools.islice(connection.execute("SUBSCRIBE TO t WITH SNAPSHOT"), 1)
        assert answer.changes is not None
        changes = (c for c in answer.changes if c.table is not None)
        assert next(changes).table.to_pylist() == [{"op": "+I", "n": 1}]  # type: ignore[union-attr]
    with Fragile(tmp_path) as home:
        home.topic("t").append([{"n": 2}], partition=0)
        home.topic("t").append([{"n": 3}], partition=1)
        assert home.store
        found = [next(changes).table, next(changes).table]
        assert [row for t in found if t is not None for row in t.to_pylist()] == [
            {"op": "+I", "n": 2},
            {"op": "+I", "n": 3},
        ]
        for wrong, said in (
            ("OFFSETS (0)", "1 offsets for the 2 partitions"),
            ("OFFSETS (0, 9)", "does not go on at offset 9"),
            ("EPOCH 1", "has no epochs"),
        ):
            with pytest.raises(QueryError, match=said):
                for answer in home.session(start=False).execute(f"SUBSCRIBE TO t AS OF {wrong}"):
                    assert answer.changes is not None
                    next(answer.changes)
    connection.close()


@pytest.mark.parametrize(
    "waits", ["DROP VIEW hot", "PAUSE hot", "CREATE VIEW more WITH (start = 'now') AS SELECT price FROM bids"]
)
def test_questions_are_answered_while_a_statement_waits_for_a_long_epoch(home: Fragile, waits: str) -> None:
    say, other = speak(home), speak(home)
    say(f"{BIDS}; {HOT}; INSERT INTO bids VALUES (7, 1, TIMESTAMP '2026-01-01 00:00:00')")
    assert say("SELECT n FROM hot") == [{"n": 1}]
    begun, may_end = threading.Event(), threading.Event()

    def hold(point: str) -> None:
        begun.set()
        assert may_end.wait(60)

    home.open_home.fail = hold  # type: ignore[method-assign]
    home.session().deployment.restart("bids")
    home.topic("bids").append([{"auction": 7, "price": 1, "ts": datetime(2026, 1, 1, tzinfo=UTC)}])
    assert begun.wait(60)
    waiting = threading.Thread(target=say, args=(waits,))
    waiting.start()
    answers: list[list[dict[str, Any]]] = []
    insert = "INSERT INTO bids VALUES (8, 1, TIMESTAMP '2026-01-01 00:00:00')"
    asking = threading.Thread(
        target=lambda: answers.append(other(f"SET wait = 0; {insert}; SHOW VIEWS; SELECT 3 AS n"))
    )
    try:
        waiting.join(0.3)  # it waits for the epoch
        assert waiting.is_alive()
        asking.start()
        asking.join(20)
        assert answers == [[{"n": 3}]]
    finally:
        may_end.set()
        waiting.join(60)
        asking.join(60)
    assert not waiting.is_alive()
    live = home.session().deployment
    assert set(Definitions.load(home.path).entries) == set(live.catalog.entries) == set(live.definitions.entries)


def test_statements_that_were_interrupted_are_repeated_only_if_they_read(tmp_path: Path) -> None:
    with Fragile(tmp_path) as home:
        speak(home)("CREATE TABLE t (id BIGINT); INSERT INTO t VALUES (1)")
        connection = remote(tmp_path)
        assert len(list(connection.execute("SET wait = 5; SELECT id FROM t"))) == 2
    with Fragile(tmp_path) as home:
        assert home.store  # from now on it answers
        (answer,) = connection.execute("SELECT id FROM t")  # over a connection that has ended
        assert answer.result is not None and answer.result.to_dicts() == [{"id": 1}]
        (setting,) = connection.execute("SET wait")
        assert setting.result is not None and setting.result.to_dicts()[0]["value"] == "5"
    with Fragile(tmp_path) as home:
        assert home.store
        with pytest.raises(ConnectionLost, match="ended during the statement") as lost:
            list(connection.execute("INSERT INTO t VALUES (2)"))
        assert "may have been carried out" in str(lost.value.detail)
        (answer,) = connection.execute("SELECT id FROM t")
        assert answer.result is not None and answer.result.to_dicts() == [{"id": 1}]
    with pytest.raises(QueryError, match="no other one answers"):
        list(connection.execute("SELECT id FROM t"))
    connection.close()


def remote(home: Path) -> Connection:
    """A connection like that of a shell, through the process that owns the home."""

    def begin() -> tuple[Any, Callable[[], None]]:
        client = LocalClient(home)
        return client.session(), client.close

    return Connection(begin, hangs_up=True)
