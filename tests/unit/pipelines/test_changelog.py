"""A changelog holds every change of its input: replayed, it gives the rows after every epoch. Without Spark."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import MillstreamError, SchemaError, Unsupported
from millstream.plan.explain.plan_tree import explain, text
from millstream.testing.script import Crash
from tests.sql.kit import view_plan, world
from tests.sql.live_tables import LiveTables
from tests.unit.pipelines.test_joins import Script, at, two

TABLES = {"a": "id BIGINT, k BIGINT, v BIGINT", "b": "k BIGINT, w BIGINT"}
VIEWS = {
    "sums": "SELECT k, sum(v) AS s, count(*) AS n FROM a GROUP BY k",
    "some": "SELECT k, n > 1 AS many FROM sums WHERE s > 5",
    "pairs": "SELECT a.id, a.v, b.w FROM a LEFT JOIN b ON a.k = b.k",
    "best": "SELECT k, v FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS n FROM a) "
    "WHERE n <= 2",
    "both": "SELECT k, s AS x FROM sums UNION ALL SELECT k, w FROM b",
    "rows_of_a": "SELECT * FROM a",
}
LOGS = {f"log_{n}": f"SELECT * FROM CHANGELOG OF {n}" for n in VIEWS if n != "rows_of_a"}
LOGS |= {
    "log_rows_of_a": "SELECT * FROM CHANGELOG(TABLE a)",
    "log_inline": "SELECT op, epoch, k, s FROM CHANGELOG OF (SELECT k, sum(v) AS s FROM a GROUP BY k) AS c",
    "log_named": "SELECT kind, e, key FROM TABLE(TO_CHANGELOG(TABLE sums)) AS c(kind, e, seen, key, s, n)",
    "per_epoch": "SELECT epoch, count(*) AS n FROM CHANGELOG OF sums WHERE op IN ('+U', '+I') GROUP BY epoch",
    "joined": "SELECT c.op, c.k, b.w FROM CHANGELOG OF sums c JOIN b ON b.k = c.k",
}
OF = {"log_inline": "sums", **{f"log_{n}": n for n in VIEWS}}


def statements(chance: random.Random, epoch: int) -> list[str]:
    made = [
        f"INSERT INTO a VALUES ({10 * epoch + i}, {chance.choice([1, 1, 2, 'NULL'])}, {chance.randrange(6)})"
        for i in range(4)
    ]
    made += [
        f"INSERT INTO b VALUES (1, {8 + epoch})",
        f"INSERT INTO b VALUES ({chance.randrange(3)}, {chance.randrange(4)})",
    ]
    made += [f"UPDATE a SET v = v + 1 WHERE id % 5 = {epoch}", f"DELETE FROM a WHERE id % 7 = {epoch}"]
    return [*made, f"DELETE FROM b WHERE w = {epoch}"]


def replayed(rows: list[tuple[Any, ...]], names: list[str], columns: int) -> Counter[tuple[Any, ...]]:
    """What a changelog comes to; every update has both halves, and no row goes that was not there."""
    there: Counter[tuple[Any, ...]] = Counter()
    op, epoch = names.index("op"), names.index("epoch")
    for number in sorted({r[epoch] for r in rows}):
        of = [r for r in rows if r[epoch] == number]
        assert sum(r[op] == "-U" for r in of) == sum(r[op] == "+U" for r in of)
        for row in of:
            there[row[-columns:]] += 1 if row[op] in ("+I", "+U") else -1
        assert all(n >= 0 for n in there.values()), number
    return +there


def test_a_changelog_replayed_gives_the_rows_after_every_epoch(tmp_path: Path) -> None:
    world = LiveTables(tmp_path, TABLES, {**VIEWS, **LOGS})
    chance = random.Random(3)
    try:
        for epoch in range(3):
            world.change(*statements(chance, epoch))
            world.tick()
            if epoch == 1:
                world.close()
                world.open()
                world.tick()
            for log, view in OF.items():
                table = world.home.query(f"SELECT * FROM {log}").to_dicts()
                columns = 2 if log == "log_inline" else len(table[0]) - 3
                expected = Counter(r[:columns] for r in world.rows(view))
                assert replayed([tuple(r.values()) for r in table], list(table[0]), columns) == expected, (epoch, log)
        log = world.home.query("SELECT * FROM log_sums").to_dicts()
        revised = Counter(r["epoch"] for r in log if r["op"] in ("+U", "+I"))
        assert Counter(dict(world.rows("per_epoch"))) == revised, "it is aggregated like any stream that only grows"
        assert Counter(k for _, _, k in world.rows("log_named")) == Counter(r["k"] for r in log)
        assert {op for op, *_ in world.rows("joined")} >= {"+I", "-U", "+U"}
    finally:
        world.close()


def test_a_view_of_one_row_is_updated(tmp_path: Path) -> None:
    views = {
        "total": "SELECT count(*) AS n FROM a",
        "top": "SELECT id, v FROM a ORDER BY v DESC LIMIT 1",
        "log_total": "SELECT op, n FROM CHANGELOG OF total",
        "log_top": "SELECT op, id FROM CHANGELOG OF top",
    }
    world = LiveTables(tmp_path, {"a": TABLES["a"]}, views)
    try:
        world.tick()
        for i in range(2):
            world.change(f"INSERT INTO a VALUES ({i}, 1, {i})")
            world.tick()
        world.change("DELETE FROM a")
        world.tick()
        total = [("+I", 0), ("-U", 0), ("+U", 1), ("-U", 1), ("+U", 2), ("-U", 2), ("+U", 0)]
        assert Counter(world.rows("log_total")) == Counter(total)
        assert Counter(world.rows("log_top")) == Counter([("+I", 0), ("-U", 0), ("+U", 1), ("-D", 1)])
    finally:
        world.close()


@pytest.mark.parametrize("step", ["before sinks", "before commit", "after commit", "before close"])
def test_an_epoch_that_is_run_again_logs_the_same_changes(tmp_path: Path, step: str) -> None:
    flow, a, _ = two()
    a.key_by("k").aggregate(n=ms.count()).changelog().view("log")
    found = []
    for crash in (False, True):
        with Script(flow, tmp_path / str(crash)) as script:
            script.send("a", *(at(k, 0, 0) for k in (3, 1, 2))).tick()
            script.send("a", *(at(k, 0, 0) for k in (2, 4, 1)))
            if crash:
                script.crash(at=step)
                with pytest.raises(Crash):
                    script.tick()
                script.resume()
            script.tick()
            found.append([(r["op"], r["epoch"], r["k"], r["n"]) for r in script.rows("log")])
        flow, a, _ = two()
        a.key_by("k").aggregate(n=ms.count()).changelog().view("log")
    assert found[0] == found[1]
    assert found[0][3:] == [("-U", 2, 1, 1), ("+U", 2, 1, 2), ("-U", 2, 2, 1), ("+U", 2, 2, 2), ("+I", 2, 4, 1)]


def test_updates_that_show_nothing_are_no_changes(tmp_path: Path) -> None:
    views = {
        "counts": "SELECT k, count(*) AS n FROM a GROUP BY k",
        "many": "SELECT * EXCEPT (epoch, changed_at) FROM CHANGELOG OF (SELECT k, n > 1 AS many FROM counts) AS c",
        "three": "SELECT op, k, n FROM CHANGELOG OF (SELECT k, n FROM counts WHERE n BETWEEN 2 AND 3) AS c",
    }
    world = LiveTables(tmp_path, {"a": TABLES["a"]}, views)
    try:
        for i in range(4):
            world.change(f"INSERT INTO a VALUES ({i}, 1, 0)")
            world.tick()
        assert Counter(world.rows("many")) == Counter([("+I", 1, False), ("-U", 1, False), ("+U", 1, True)])
        assert Counter(world.rows("three")) == Counter([("+I", 1, 2), ("-U", 1, 2), ("+U", 1, 3), ("-D", 1, 3)])
    finally:
        world.close()


def test_the_epoch_and_its_time_are_those_of_the_clock(tmp_path: Path) -> None:
    flow, a, _ = two()
    a.key_by("k").aggregate(n=ms.count()).changelog().view("log")
    a.changelog(op="what", epoch="nr", time="seen").select("what", "nr", "v").view("raw")
    with Script(flow, tmp_path) as script:
        script.send("a", at(1, 5, 0), at(2, 6, 0)).tick()
        script.advance("1 hour")
        script.send("a", at(1, 7, 1)).tick()
        rows = script.rows("log")
        assert [(r["op"], r["k"], r["n"]) for r in rows] == [("+I", 1, 1), ("+I", 2, 1), ("-U", 1, 1), ("+U", 1, 2)]
        first, last = (rows[i]["epoch"] for i in (0, 3))
        assert first < last and (rows[3]["changed_at"] - rows[0]["changed_at"]).total_seconds() >= 3600
        assert [(r["what"], r["v"]) for r in script.rows("raw")] == [("+I", 5), ("+I", 6), ("+I", 7)]


def test_names_that_meet_and_panes_that_are_not_retracted_are_refused() -> None:
    _, a, _ = two()
    with pytest.raises(SchemaError, match="`op` is already a column of a changelog"):
        a.select("k", op="v").changelog()
    assert a.select("k", op="v").changelog(op="kind").schema.names == ("kind", "epoch", "changed_at", "k", "op")
    discarding = a.window(ms.tumbling("1 minute"), accumulation=ms.discarding()).aggregate(n=ms.count())
    with pytest.raises(Unsupported, match="a changelog cannot follow an aggregate whose panes are"):
        discarding.changelog()
    with pytest.raises(MillstreamError, match="`epoch` is already a column of a changelog") as error:
        view_plan("SELECT * FROM CHANGELOG OF (SELECT auction AS epoch FROM bids)", world())
    assert error.value.origin is not None and error.value.origin.column
    with pytest.raises(MillstreamError, match="CHANGELOG OF takes one view, table or source"):
        view_plan("SELECT * FROM CHANGELOG(hot, items)", world())


def test_explain_says_what_it_gives() -> None:
    told = text(explain(view_plan("SELECT * FROM CHANGELOG OF hot", world())))
    assert "kernel changelog" in told.lower()
    assert "each change as a row: op is its kind, epoch and changed_at are when it happened" in told
