"""Rows of stored tables that an expression fails on: set aside while they are there, and never in the way of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import DefinitionError, EngineFailed, Unsupported
from millstream.plan.planner import plan
from tests.sql.engine import QueryEngine
from tests.unit.live.world import BIDS, HOT, Spoken, opened

TABLE = "CREATE TABLE t (a INT, b INT, s STRING)"
DIVIDED = "CREATE VIEW v WITH (tables = 'live') AS SELECT a, 10/a x FROM t"


def rows(world: Spoken, sql: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in world.rows(sql))


def errors(world: Spoken, view: str = "v") -> list[tuple[dict[str, Any], str, str]]:
    """The rows set aside for a view, with their place and reason."""
    found = world.rows(f"SELECT raw, partition, reason FROM {view}$errors ORDER BY raw")
    return [(json.loads(r["raw"]), r["partition"], r["reason"]) for r in found]


def begun(world: Spoken, view: str = DIVIDED) -> None:
    world.say(TABLE, "INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')", view)


@pytest.mark.parametrize("mend", ["DELETE FROM t WHERE a = 0", "UPDATE t SET a = 5 WHERE a = 0"])
def test_a_bad_row_is_set_aside_until_it_is_corrected(tmp_path: Path, mend: str) -> None:
    with opened(tmp_path) as world:
        begun(world)
        world.perform("v")
        assert errors(world) == []
        world.say("INSERT INTO t VALUES (0, 3, 'z')")
        world.perform("v")
        assert rows(world, "SELECT * FROM v") == [(1, 10.0), (2, 5.0)]
        assert errors(world) == [({"a": 0, "b": 3, "s": "z"}, "t", "10 / a: Division by zero.")]
        assert world.home.views()[0]["errors"] == 1
    with opened(tmp_path) as world:  # another process knows of it
        world.say("INSERT INTO t VALUES (4, 4, 'w')")
        world.perform("v")
        assert rows(world, "SELECT a FROM v") == [(1,), (2,), (4,)] and len(errors(world)) == 1
        world.say(mend)
        world.perform("v")
        there = [(1,), (2,), (4,)] + ([(5,)] if mend.startswith("UPDATE") else [])
        assert rows(world, "SELECT a FROM v") == there and errors(world) == []
        assert world.home.views()[0]["errors"] == 0


def test_copies_of_a_bad_row_are_as_many_errors(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        begun(world)
        world.say("INSERT INTO t VALUES (0, 3, 'z'), (0, 3, 'z'), (0, 4, 'z')")
        world.perform("v")
        assert [r["b"] for r, _, _ in errors(world)] == [3, 3, 4]
        world.say("UPDATE t SET a = 1 WHERE b = 4")
        world.perform("v")
        assert [r["b"] for r, _, _ in errors(world)] == [3, 3]


PLACES = {
    "a condition": "SELECT a FROM t WHERE 10 / b > 0",
    "a key": "SELECT 10 / b AS k, count(*) AS n FROM t GROUP BY 10 / b",
    "an argument": "SELECT a, sum(10 / b) AS n FROM t GROUP BY a",
    "behind an aggregate": "SELECT a, 10 / sum(b) AS n FROM t GROUP BY a",
    "a condition on an aggregate": "SELECT a, sum(b) AS n FROM t GROUP BY a HAVING 10 / sum(b) > 0",
    "a column of a join": "SELECT x.a, 10 / y.b AS n FROM t x JOIN t y ON x.a = y.a",
    "a key of a join": "SELECT x.a FROM t x JOIN t y ON 10 / x.b = 10 / y.b",
    "a condition of a join": "SELECT x.a FROM t x JOIN t y ON x.a = y.a AND 10 / x.b > y.a - 100",
    "an order": "SELECT a, row_number() OVER (PARTITION BY s ORDER BY 10 / b) AS n FROM t",
    "a branch of a union": "SELECT a FROM t UNION ALL SELECT 10 / b FROM t",
    "distinct rows": "SELECT DISTINCT 10 / b AS k FROM t",
}


@pytest.mark.parametrize("place", PLACES)
def test_wherever_the_expression_stands(tmp_path: Path, place: str) -> None:
    with opened(tmp_path) as world:
        begun(world, f"CREATE VIEW v WITH (tables = 'live') AS {PLACES[place]}")
        world.perform("v")
        before = rows(world, "SELECT * FROM v")
        world.say("INSERT INTO t VALUES (3, 0, 'x')")
        world.perform("v")
        assert errors(world) and all("Division by zero" in reason for _, _, reason in errors(world))
        if "union" not in place:
            assert rows(world, "SELECT * FROM v") == before
        world.say("UPDATE t SET b = 5 WHERE b = 0")
        world.perform("v")
        assert errors(world) == []
        after = rows(world, "SELECT * FROM v")
        world.say(f"CREATE VIEW again WITH (tables = 'live') AS {PLACES[place]}")
        world.perform("again")
        assert rows(world, "SELECT * FROM again") == after and len(after) > len(before)


def test_a_row_that_fails_loses_its_place_in_the_view(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        begun(world, "CREATE VIEW v WITH (tables = 'live') AS SELECT a, 10 / sum(b) AS n FROM t GROUP BY a")
        world.perform("v")
        world.say("INSERT INTO t VALUES (1, -1, 'x')")
        world.perform("v")
        assert rows(world, "SELECT * FROM v") == [(2, 5.0)]
        assert [r["a"] for r, _, _ in errors(world)] == [1]
        world.say("INSERT INTO t VALUES (1, 5, 'x')")
        world.perform("v")
        assert rows(world, "SELECT * FROM v") == [(1, 2.0), (2, 5.0)] and errors(world) == []


def test_null_takes_null_for_the_expression_and_keeps_the_row(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        options = "WITH (tables = 'live', on_error = 'null')"
        begun(world, f"CREATE VIEW v {options} AS SELECT a, 10 / (a - 1) AS x, b FROM t WHERE 1 / b > -1")
        world.say("INSERT INTO t VALUES (3, 0, 'z')")
        world.perform("v")
        assert {r["a"]: r["x"] for r in world.rows("SELECT * FROM v")} == {1: None, 2: 10.0}
        assert errors(world) == []
        world.say("DELETE FROM t WHERE a = 1")
        world.perform("v")
        assert rows(world, "SELECT a, b FROM v") == [(2, 2)]


def test_fail_stops_the_view_and_a_corrected_row_lets_it_go_on(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        begun(world, "CREATE VIEW v WITH (tables = 'live', on_error = 'fail') AS SELECT a, 10/a x FROM t")
        world.perform("v")
        world.say("INSERT INTO t VALUES (0, 3, 'z')")
        with pytest.raises(EngineFailed):
            world.perform("v")
        assert rows(world, "SELECT a FROM v") == [(1,), (2,)]
        world.say("DELETE FROM t WHERE a = 0; INSERT INTO t VALUES (5, 3, 'z')")
        world.perform("v")
        assert rows(world, "SELECT a FROM v") == [(1,), (2,), (5,)]


def test_so_many_failures_are_the_fault_of_the_expression(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.say(TABLE, f"INSERT INTO t VALUES {', '.join(['(0, 1, NULL)'] * 101)}", DIVIDED)
        with pytest.raises(Exception, match="more than 100 rows of one epoch fail: "):
            world.perform("v")


def test_a_policy_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as world, pytest.raises(DefinitionError, match="on_error is 'ignore'"):
        begun(world, "CREATE VIEW v WITH (tables = 'live', on_error = 'ignore') AS SELECT a FROM t")


def test_a_dropped_view_leaves_no_errors_behind(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        begun(world)
        world.say("INSERT INTO t VALUES (0, 3, 'z')")
        world.perform("v")
        world.say("DROP VIEW v")
        assert "v$errors" not in world.home.store.tables()


def test_null_over_the_records_of_a_source_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.say(BIDS)
        plain = "SELECT auction, count(*) AS n FROM bids WHERE price > 3 GROUP BY auction HAVING 10 / count(*) > 0"
        world.say(f"CREATE VIEW fine WITH (on_error = 'null') AS {plain}")
        with pytest.raises(Unsupported, match="computes with records of the source `bids`") as refused:
            world.say("CREATE VIEW v WITH (on_error = 'null') AS SELECT 10 / price AS x FROM bids")
        assert "10 / price" in str(refused.value.detail) and "try_divide" in str(refused.value.hint)


def test_a_view_that_is_to_fail_shares_no_flow(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.say(BIDS, HOT, "CREATE VIEW strict WITH (on_error = 'fail') AS SELECT 10 / price AS x FROM bids")
        world.say("CREATE VIEW other AS SELECT price FROM bids")
        assert {v: world.live.flow_of(v) for v in ("hot", "strict", "other")} == {
            "hot": "bids",
            "strict": "strict",
            "other": "bids",
        }


def test_a_result_of_a_source_that_fails_is_set_aside_until_it_changes(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.say(BIDS, "CREATE VIEW v AS SELECT auction, 10 / (count(*) - 2) AS x FROM bids GROUP BY auction")
        found = []
        for second in range(3):
            world.say(f"INSERT INTO bids VALUES (7, 1, TIMESTAMP '2026-01-01 00:00:0{second}')")
            world.perform("bids")
            found.append((rows(world, "SELECT auction, x FROM v"), len(errors(world))))
        assert found == [([(7, -10.0)], 0), ([], 1), ([(7, 10.0)], 0)]


def test_it_is_asked_for_in_python_too(tmp_path: Path) -> None:
    flow = ms.Flow("numbers")
    table = flow.table("t", schema="a INT")
    table.select("a", x="10 / a").view("v", on_error="null")
    assert [v.on_error for v in plan(flow).views] == ["null"]
    with pytest.raises(DefinitionError, match="on_error is 'skip'"):
        table.view("w", on_error="skip")


@pytest.mark.parametrize("point", ["before commit", "after commit"])
def test_an_epoch_with_a_bad_row_that_is_repeated_gives_the_same(tmp_path: Path, point: str) -> None:
    class Died(Exception):
        pass

    def die(reached: str) -> None:
        if reached == point:
            raise Died

    with opened(tmp_path) as world:
        begun(world)
        world.perform("v")
        for change, there in (("INSERT INTO t VALUES (0, 3, 'z')", 1), ("UPDATE t SET a = 5 WHERE a = 0", 0)):
            world.say(change)
            loop = world.home.loop(world.live.planned("v"), engine=QueryEngine, failpoint=die)
            with pytest.raises(Died):
                loop.step()
            loop.abandon()
            world.perform("v")
            assert len(errors(world)) == there
        assert rows(world, "SELECT a FROM v") == [(1,), (2,), (5,)]
