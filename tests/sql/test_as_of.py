"""ASOF JOIN in SQL: after every epoch a view has the rows that DuckDB's ASOF JOIN gives. Without Spark."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from millstream.model.types.schema import Schema
from millstream.plan.operators.relations.as_of_join import AsOfJoin
from millstream.sql.catalog import Catalog
from millstream.sql.parse.statement_parser import read
from millstream.sql.parse.text import Text
from tests.sql.engine import QueryScript, with_topics
from tests.sql.kit import bound, defined, flow_of, view_plan, world
from tests.sql.live_tables import LiveTables

TABLES = {"a": "id BIGINT, k INT, t BIGINT, ts TIMESTAMPTZ, d DATE, x DOUBLE", "b": "k BIGINT, t BIGINT, w BIGINT"}
TIMES = "k BIGINT, ts TIMESTAMPTZ, d DATE, x DOUBLE, w BIGINT"
ROW = "SELECT a.id, a.k, a.t, b.k AS bk, b.t AS bt, b.w"
TIMED = "SELECT a.id, a.k, c.d AS cd, c.w"
HALF = "INTERVAL '30' MINUTE"
NEAR = (
    "SELECT id, k, t, bk, bt, w FROM (SELECT a.id, a.k, a.t, b.k AS bk, b.t AS bt, b.w, row_number() OVER "
    "(PARTITION BY a.rowid ORDER BY abs(a.t - b.t), b.t DESC) AS n FROM a LEFT JOIN b ON a.k = b.k{}) WHERE n = 1"
)
CASES: dict[str, tuple[str, str]] = {
    "backward": (f"{ROW} FROM a ASOF JOIN b ON a.k = b.k AND a.t >= b.t", ""),
    "backward_left": (f"{ROW} FROM a ASOF LEFT JOIN b ON a.k = b.k AND b.t <= a.t", ""),
    "strict": (f"{ROW} FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.t > b.t", ""),
    "forward": (f"{ROW} FROM a ASOF JOIN b ON a.k = b.k AND a.t <= b.t", ""),
    "forward_strict": (f"{ROW} FROM a ASOF LEFT JOIN b ON b.t > a.t AND a.k = b.k", ""),
    "no_key": (f"{ROW} FROM a ASOF LEFT JOIN (SELECT * FROM b WHERE k = 1) b ON a.t >= b.t", ""),
    "by_names": (f"{ROW} FROM a ASOF LEFT JOIN b USING (k, t)", ""),
    "computed": (f"{ROW} FROM a ASOF LEFT JOIN b ON a.k + 0 = b.k AND a.t + 2 >= b.t", ""),
    "one_side": (f"{ROW} FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.t >= b.t AND b.w > 20 AND a.id > 30", ""),
    "aggregate": (
        "SELECT a.id, a.t, g.t AS gt, g.n FROM a ASOF LEFT JOIN (SELECT t, count(*) AS n FROM b GROUP BY t) g "
        "ON a.t >= g.t",
        "",
    ),
    "behind": (
        "SELECT j.k, count(*) AS n, sum(j.w) AS s FROM (SELECT a.k, b.w FROM a ASOF JOIN b ON a.k = b.k "
        "AND a.t >= b.t) j GROUP BY j.k",
        "",
    ),
    "twice": (
        "SELECT a.id, a.t, b.t AS bt, e.t AS et FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.t >= b.t "
        "ASOF LEFT JOIN b e ON a.k = e.k AND a.t < e.t",
        "",
    ),
    "stated": (
        f"{ROW} FROM a ASOF LEFT JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k",
        f"{ROW} FROM a ASOF LEFT JOIN b ON a.t >= b.t AND a.k = b.k",
    ),
    "stated_using": (
        f"{ROW} FROM a ASOF JOIN b MATCH_CONDITION (b.t >= a.t) USING (k)",
        f"{ROW} FROM a ASOF JOIN b ON a.t <= b.t AND a.k = b.k",
    ),
    "tolerance": (
        f"{ROW} FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.t >= b.t AND b.t >= a.t - 3",
        f"{ROW} FROM a LEFT JOIN b ON a.k = b.k AND b.t = (SELECT max(t) FROM b c WHERE c.k = a.k AND c.t "
        "BETWEEN a.t - 3 AND a.t)",
    ),
    "tolerance_forward": (
        f"{ROW} FROM a ASOF JOIN b ON a.k = b.k AND b.t BETWEEN a.t AND a.t + 3",
        f"{ROW} FROM a JOIN b ON a.k = b.k AND b.t = (SELECT min(t) FROM b c WHERE c.k = a.k AND c.t "
        "BETWEEN a.t AND a.t + 3)",
    ),
    "nearest": (
        f"{ROW} FROM a ASOF LEFT JOIN b MATCH_CONDITION (NEAREST(a.t, b.t)) ON a.k = b.k",
        NEAR.format(" AND a.t IS NOT NULL AND b.t IS NOT NULL"),
    ),
    "nearest_within": (
        f"{ROW} FROM a ASOF LEFT JOIN b MATCH_CONDITION (NEAREST(a.t, b.t)) ON a.k = b.k "
        "AND b.t BETWEEN a.t - 1 AND a.t + 3",
        NEAR.format(" AND b.t BETWEEN a.t - 1 AND a.t + 3"),
    ),
    "timestamps": (f"{TIMED} FROM a ASOF LEFT JOIN c ON a.k = c.k AND a.ts >= c.ts", ""),
    "timestamps_within": (
        f"{TIMED} FROM a ASOF LEFT JOIN c ON a.k = c.k AND a.ts <= c.ts AND c.ts <= a.ts + {HALF}",
        f"{TIMED} FROM a LEFT JOIN c ON a.k = c.k AND c.ts = (SELECT min(ts) FROM c e WHERE e.k = a.k AND e.ts "
        f"BETWEEN a.ts AND a.ts + {HALF})",
    ),
    "timestamps_nearest": (
        f"{TIMED} FROM a ASOF JOIN c MATCH_CONDITION (NEAREST(c.ts, a.ts)) ON a.k = c.k",
        "SELECT id, k, cd, w FROM (SELECT a.id, a.k, c.d AS cd, c.w, row_number() OVER (PARTITION BY "
        "a.rowid ORDER BY abs(epoch_us(a.ts) - epoch_us(c.ts)), c.ts DESC) AS n FROM a JOIN c ON a.k = c.k "
        "AND a.ts IS NOT NULL AND c.ts IS NOT NULL) WHERE n = 1",
    ),
    "dates": ("SELECT a.id, a.d, c.d AS cd FROM a ASOF JOIN c ON a.k = c.k AND a.d > c.d", ""),
    "date_of_time": ("SELECT a.id, a.d, c.w FROM a ASOF JOIN c ON a.k = c.k AND a.d <= c.ts", ""),
    "doubles": ("SELECT a.id, a.x, c.x AS cx FROM a ASOF LEFT JOIN c ON a.k = c.k AND a.x >= c.x", ""),
    "number_and_double": ("SELECT a.id, a.t, c.x AS cx FROM a ASOF LEFT JOIN c ON a.k = c.k AND a.t <= c.x", ""),
}


def _statements(chance: random.Random, epoch: int, there: set[Any]) -> list[str]:
    """Rows that come, change and go. A key of the right has each time once: of two, DuckDB takes either."""
    made = []
    for _ in range(6):
        t = chance.choice(["NULL", *range(12)])
        made.append(
            f"INSERT INTO a VALUES ({chance.randrange(100)}, {chance.choice(['NULL', 1, 1, 2])}, {t}, "
            f"TIMESTAMPTZ '2026-01-01 00:00:00+00' + INTERVAL ({chance.randrange(12)}) HOUR, "
            f"DATE '2026-01-01' + {chance.randrange(4)}, {chance.randrange(12)} / 2)"
        )
    for _ in range(4):
        k, t = chance.choice(["NULL", 1, 1, 2]), chance.randrange(24)
        if (k, t) in there:
            continue
        there.add((k, t))
        made.append(f"INSERT INTO b VALUES ({k}, {t / 2 if t % 2 == 0 else 'NULL'}, {chance.randrange(50)})")
        made.append(
            f"INSERT INTO c VALUES ({k}, TIMESTAMPTZ '2026-01-01 00:00:00+00' + INTERVAL ({30 * t}) MINUTE, "
            f"DATE '2025-12-30' + {t}, {t} / 4, {chance.randrange(50)})"
        )
    made.append(f"DELETE FROM a WHERE id % 4 = {epoch % 4}")
    made.append(f"UPDATE a SET t = t + 1, k = 1 WHERE id % 3 = {epoch % 3}")
    made += [f"UPDATE {n} SET w = w + 1 WHERE w % 3 = {epoch % 3}" for n in "bc"]
    made += [f"DELETE FROM {n} WHERE w % 7 = {epoch % 7}" for n in "bc"]
    return made


def _follow(path: Path, cases: dict[str, tuple[str, str]], seed: int, epochs: int) -> None:
    """Tables change, and views of them with them; the flow starts again on the way."""
    chance, there = random.Random(seed), set[Any]()
    world = LiveTables(path, {**TABLES, "c": TIMES}, {n: q for n, (q, _) in cases.items()})
    world.views = {n: other or query for n, (query, other) in cases.items()}
    shown = dict.fromkeys(cases, 0)
    try:
        for epoch in range(epochs):
            world.change(*_statements(chance, epoch, there))
            world.tick()
            assert world.differences() == {}
            for name in cases:
                shown[name] += len(world.rows(name))
            if epoch == 1:
                world.close()
                world.open()
    finally:
        world.close()
    assert all(shown.values()), shown


def test_as_of_joins_of_tables_are_what_duckdb_gives(tmp_path: Path) -> None:
    quick = ("backward_left", "one_side", "nearest_within", "stated_using")
    _follow(tmp_path, {n: CASES[n] for n in quick}, seed=7, epochs=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_as_of_joins_of_all_forms_are_what_duckdb_gives(tmp_path: Path, seed: int) -> None:
    _follow(tmp_path, CASES, seed, epochs=5)


SOURCES = """
CREATE SOURCE l (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '20' SECOND) FROM LOG('l');
CREATE SOURCE r (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '20' SECOND) FROM LOG('r');
"""
JOIN = "SELECT l.k, l.v, l.ts, r.v AS rv FROM l ASOF LEFT JOIN r "
KEY = "ON l.k = r.k"
WAYS: dict[str, tuple[str, str, int | None]] = {
    "backward": (f"{KEY} AND l.ts >= r.ts", "backward", None),
    "strict": (f"{KEY} AND l.ts > r.ts", "backward", None),
    "within": (f"{KEY} AND l.ts >= r.ts AND r.ts >= l.ts - INTERVAL '5' SECOND", "backward", 5_000_000),
    "flipped": (f"{KEY} AND r.ts <= l.ts AND l.ts <= r.ts + INTERVAL '5' SECOND", "backward", 5_000_000),
    "open": (f"{KEY} AND l.ts >= r.ts AND r.ts > l.ts - INTERVAL '5' SECOND", "backward", 4_999_999),
    "between": (f"{KEY} AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '5' SECOND", "forward", 5_000_000),
    "nearest": (
        f"MATCH_CONDITION (NEAREST(l.ts, r.ts)) {KEY} AND r.ts BETWEEN l.ts - INTERVAL '5' SECOND AND l.ts + "
        "INTERVAL '5' SECOND",
        "nearest",
        5_000_000,
    ),
}
REVISED = {
    "forward": f"{KEY} AND l.ts <= r.ts",
    "forward_strict": f"{KEY} AND r.ts > l.ts",
    "nearest": f"MATCH_CONDITION (NEAREST(l.ts, r.ts)) {KEY}",
    "uneven": f"MATCH_CONDITION (NEAREST(l.ts, r.ts)) {KEY} AND r.ts >= l.ts - INTERVAL '5' SECOND",
    "months": f"{KEY} AND l.ts >= r.ts AND r.ts >= l.ts - INTERVAL '1' MONTH",
    "left_alone": f"{KEY} AND l.ts >= r.ts AND l.v > 1",
    "numbers": f"{KEY} AND l.v >= r.v",
}


def _kernels(query: str) -> list[AsOfJoin]:
    stages = [v.operator for v in view_plan(query, defined(SOURCES, Catalog())).views]
    return [s for s in stages if isinstance(s, AsOfJoin)]


@pytest.mark.parametrize("name", WAYS)
def test_event_times_that_can_be_waited_for_are_final(name: str) -> None:
    said, direction, tolerance = WAYS[name]
    (found,) = _kernels(JOIN + said)
    assert (found.direction, found.tolerance, found.strict) == (direction, tolerance, name == "strict")


@pytest.mark.parametrize("name", REVISED)
def test_the_others_are_revised(name: str) -> None:
    assert _kernels(JOIN + REVISED[name]) == []


def test_the_next_row_of_a_source_is_there_at_once_and_revised(tmp_path: Path) -> None:
    catalog = defined(SOURCES + f"CREATE VIEW v AS {JOIN}{REVISED['forward']};", Catalog())
    schema = Schema.parse("k BIGINT, v BIGINT, ts TIMESTAMP")
    flow = flow_of(catalog, "v")
    with QueryScript(flow, with_topics(tmp_path, {"l": schema, "r": schema})) as script:

        def shown() -> list[Any]:
            return sorted((r["v"], r["rv"]) for r in script.rows("v"))

        def send(topic: str, *rows: tuple[int | None, int, int]) -> None:
            at = [{"k": k, "v": v, "ts": f"2025-12-31T00:{minute:02}:00Z"} for k, v, minute in rows]
            script.home.topic(topic).append(at)

        send("l", (1, 1, 10), (1, 2, 20), (None, 3, 1))
        send("r", (1, 9, 50))
        script.tick()
        assert shown() == [(1, 9), (2, 9), (3, None)]
        send("r", (1, 8, 15))
        script.tick()
        assert shown() == [(1, 8), (2, 9), (3, None)], "no watermark holds it up, and nothing is late"
        script.crash()
        script.resume()
        send("r", (1, 7, 20))
        script.tick()
        assert shown() == [(1, 8), (2, 7), (3, None)]
        assert script.rows("v$late") == []


def test_questions_can_have_match_condition(tmp_path: Path) -> None:
    (statement,) = read(Text("SELECT h.n FROM hot h ASOF LEFT JOIN items i MATCH_CONDITION (h.n >= i.price)"))
    said = bound(statement, world())
    assert isinstance(said, str)
    assert "ASOF LEFT JOIN" in said and "MATCH_CONDITION" not in said and ">=" in said
