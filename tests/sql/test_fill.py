"""FILL: after each epoch a view has the rows that DuckDB makes with generate_series, also when rows come late or go."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

import millstream as ms
from millstream.errors import MillstreamError
from millstream.model.python.function import Function
from millstream.sql.catalog import Catalog
from tests.sql.engine import QueryScript, with_topics
from tests.sql.kit import defined, flow_of, view_plan, world
from tests.sql.live_tables import normal, same

HOURS = "FROM TUMBLE(t, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, window_end"
RECENT = "FROM TUMBLE(t, DESCRIPTOR(ts), INTERVAL '1' HOUR) WHERE ts > now() - INTERVAL '12' HOUR"
VIEWS = {
    "previous": f"SELECT window_start, k, sum(v) AS total, max(s) AS s {HOURS}, k FILL (PREVIOUS)",
    "each": f"SELECT k, window_end, count(*) AS n, sum(v) AS total, avg(v) + 1 AS a, max(s) AS s {HOURS}, k "
    "FILL (n 0, total PREV, A LINEAR, s 'none')",
    "nothing": f"SELECT window_start AS w, sum(v) AS total {HOURS} FILL (NULL)",
    "bounded": f"SELECT window_start, k, count(*) AS n {HOURS}, k FILL (-1) FOR INTERVAL '2' HOUR",
    "hops": "SELECT window_start, k, sum(v) AS total FROM HOP(t, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '3' HOUR) "
    "GROUP BY window_start, window_end, k FILL (LINEAR)",
    "inside": f"SELECT k, total FROM (SELECT k, sum(v) AS total, window_start {HOURS}, k) WHERE total > 3 FILL (9)",
    "leaving": f"SELECT window_start, k, sum(v) AS total {RECENT} GROUP BY window_start, window_end, k FILL (PREVIOUS)",
}
GROUPS = """g AS (SELECT time_bucket(INTERVAL 1 HOUR, ts) AS w, {keys} count(*) AS n, sum(v) AS t, avg(v) + 1 AS a,
    max(s) AS s FROM t {where} GROUP BY ALL)"""
HOPS = """g AS (SELECT w, k, sum(v) AS t FROM (SELECT k, v, unnest([time_bucket(INTERVAL 1 HOUR, ts)
    - INTERVAL 1 HOUR * i FOR i IN [0, 1, 2]]) AS w FROM t) GROUP BY ALL)"""
SERIES = "x AS (SELECT {keys} unnest(generate_series(min(w), max(w), INTERVAL 1 HOUR)) AS w FROM g {by})"
LINE = """CASE WHEN p.w = x.w THEN p.{0} ELSE p.{0} + (q.{0} - p.{0}) * (epoch(x.w) - epoch(p.w))
    / (epoch(q.w) - epoch(p.w)) END"""


def _oracle(select: str, *, key: str = "k", groups: str = GROUPS, where: str = "") -> str:
    keys, by = ("k,", "GROUP BY k") if key == "k" else ("1 AS one,", "")
    named = groups.format(keys=keys, where=where)
    around = f"x ASOF JOIN g p ON x.{key} = p.{key} AND x.w >= p.w ASOF JOIN g q ON x.{key} = q.{key} AND x.w <= q.w"
    return f"WITH {named}, {SERIES.format(keys=keys, by=by)} SELECT {select} FROM {around}"


ORACLES = {
    "previous": _oracle("x.w, x.k, p.t, p.s"),
    "each": _oracle(
        "x.k, x.w + INTERVAL 1 HOUR, CASE WHEN p.w = x.w THEN p.n ELSE 0 END, p.t, "
        f"{LINE.format('a')}, CASE WHEN p.w = x.w THEN p.s ELSE 'none' END"
    ),
    "nothing": _oracle("x.w, CASE WHEN p.w = x.w THEN p.t END", key="one"),
    "bounded": _oracle("x.w, x.k, CASE WHEN p.w = x.w THEN p.n ELSE -1 END") + " WHERE x.w <= p.w + INTERVAL 2 HOUR",
    "hops": _oracle(f"x.w, x.k, {LINE.format('t')}", groups=HOPS),
    "inside": f"SELECT * FROM ({_oracle('x.k, CASE WHEN p.w = x.w THEN p.t ELSE 9 END AS t')}) WHERE t > 3",
    "leaving": _oracle("x.w, x.k, p.t", where="WHERE ts > $now - INTERVAL 12 HOUR"),
}
SOURCE = """CREATE SOURCE t (k BIGINT, v BIGINT, s STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '9' DAY)
    FROM LOG('t');"""


def test_filled_windows_are_what_duckdb_gives(tmp_path: Path) -> None:
    chance = random.Random(2)
    flow = flow_of(defined(SOURCE + "".join(f"CREATE VIEW {n} AS {q};" for n, q in VIEWS.items()), Catalog()), *VIEWS)
    home = with_topics(tmp_path / "home", {"t": flow.sources[0].schema})
    duck = duckdb.connect(config={"threads": 1})
    duck.execute("SET TimeZone = 'UTC'; CREATE TABLE t (k BIGINT, v BIGINT, s VARCHAR, ts TIMESTAMPTZ)")
    with QueryScript(flow, home, start="2026-01-02T00:00:00Z") as script:
        for number in range(4):
            rows = [_random(chance) for _ in range(3)]
            script.home.topic("t").append(rows)
            duck.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [list(r.values()) for r in rows])
            script.tick()
            script.advance("3 hours").tick()
            now = f"make_timestamptz({script.clock.now()})"
            for name, query in ORACLES.items():
                answer = duck.sql(query.replace("$now", now)).to_arrow_table()
                have = normal(tuple(r.values()) for r in script.rows(name))
                should = normal(tuple(r.values()) for r in answer.to_pylist())
                assert same(have, should), (number, name, have, should)
            if number == 2:
                script.crash()
                script.resume()


def _random(chance: random.Random) -> dict[str, Any]:
    v = None if chance.random() < 0.1 else chance.randint(0, 9)
    at = f"2026-01-01T{chance.randint(0, 23):02d}:{chance.randint(0, 59):02d}:00Z"
    return {"k": chance.randint(1, 2), "v": v, "s": chance.choice("abc"), "ts": at}


def _flow(how: object, **more: object) -> ms.Flow:
    flow = ms.Flow("f")
    source = flow.source(
        "s", ms.memory(), schema="k STRING, v BIGINT, ts TIMESTAMP", event_time="ts", lateness="1 hour"
    )
    keyed = source.key_by("k")
    hours = keyed.window(ms.tumbling("1 hour"), **more)  # type: ignore[arg-type]
    hours.aggregate(t=ms.sum("v"), n=ms.count()).fill(how).view("filled")
    return flow


def _row(hour: int, v: int) -> dict[str, object]:
    return {"k": "a", "v": v, "ts": f"2026-01-01T{hour:02d}:10:00Z"}


def _filled(script: QueryScript) -> list[tuple[int, object, object]]:
    return sorted((r["window_start"].hour, r["t"], r["n"]) for r in script.rows("filled"))


def test_a_late_record_revises_what_was_filled(tmp_path: Path) -> None:
    with QueryScript(
        _flow({"t": "previous", "n": 0}, lateness="9 hours"), tmp_path, start="2026-01-02T00:00:00Z"
    ) as script:
        script.send("s", _row(1, 5), _row(4, 8)).tick()
        assert _filled(script) == [(1, 5, 1), (2, 5, 0), (3, 5, 0), (4, 8, 1)]
        script.changes("filled")
        script.send("s", _row(2, 7)).tick()
        assert _filled(script) == [(1, 5, 1), (2, 7, 1), (3, 7, 0), (4, 8, 1)]
        assert len(script.changes("filled")) == 4  # two rows, each taken back and given anew: the others stay
        script.crash()
        script.resume()
        script.send("s", _row(6, 1)).tick()
        assert _filled(script)[3:] == [(4, 8, 1), (5, 8, 0), (6, 1, 1)]


def test_windows_that_answer_when_they_close_are_filled_then(tmp_path: Path) -> None:
    with QueryScript(_flow("linear", trigger=ms.on_close()), tmp_path, start="2026-01-02T00:00:00Z") as script:
        script.send("s", _row(1, 5), _row(4, 8)).tick()
        assert _filled(script) == [(1, 5.0, 1.0)]
        script.send("s", _row(7, 0)).tick()
        assert _filled(script) == [(1, 5.0, 1.0), (2, 6.0, 1.0), (3, 7.0, 1.0), (4, 8.0, 1.0)]


def test_filled_rows_go_when_their_retention_is_over(tmp_path: Path) -> None:
    flow = ms.Flow("f")
    source = flow.source("s", ms.memory(), schema="k STRING, v BIGINT, ts TIMESTAMP", event_time="ts")
    hours = source.key_by("k").window(ms.tumbling("1 hour")).aggregate(n=ms.count())
    hours.fill(0).view("filled", retention="3 hours")
    with QueryScript(flow, tmp_path, start="2026-01-02T00:00:00Z") as script:
        script.send("s", _row(1, 5), _row(4, 8)).tick()
        script.send("s", _row(7, 0)).tick()
        script.send("s", _row(7, 0)).tick()
        assert sorted((r["window_start"].hour, r["n"]) for r in script.rows("filled")) == [
            (4, 1),
            (5, 0),
            (6, 0),
            (7, 2),
        ]


def test_a_gap_that_is_too_long_is_left_open(tmp_path: Path) -> None:
    with QueryScript(_flow(None), tmp_path, start="2026-01-02T00:00:00Z") as script:
        script.send("s", {"k": "a", "v": 1, "ts": "1990-01-01T00:00:00Z"}, _row(1, 5)).tick()
        assert len(script.rows("filled")) == 2


BY_MINUTE = (
    "SELECT auction, max(channel) AS c, count(*) AS n FROM bids GROUP BY auction, TUMBLE(ts, INTERVAL '1' MINUTE)"
)
REFUSED = {
    "SELECT auction, count(*) AS n FROM bids GROUP BY auction FILL (0)": "this query has none",
    "SELECT auction FROM bids FILL (0)": "this query has none",
    "SELECT auction, count(*) AS n FROM bids GROUP BY auction, SESSION(ts, INTERVAL '1' MINUTE) FILL (0)": "session",
    "SELECT auction, count(*) AS n FROM CALENDAR(bids, ts, 'month') GROUP BY auction, window_start, window_end "
    "FILL (0)": "calendar month",
    f"{BY_MINUTE} FILL (c LINEAR)": "`c` is STRING",
    f"{BY_MINUTE} FILL (auction 0)": "`auction` is not a column that can be filled",
    f"{BY_MINUTE} FILL ()": "what to fill with is expected here",
    f"{BY_MINUTE} FILL (n)": "what to fill with is expected here",
    f"{BY_MINUTE} FILL (n 1 c 2)": "not expected here",
    f"{BY_MINUTE} FILL (0) FILL (1)": "specified twice",
    f"{BY_MINUTE} FILL (0) FOR INTERVAL '1' MONTH": "no fixed length",
    f"{BY_MINUTE} DISCARDING FILL (0)": "discarding",
    "SELECT auction, row_number() OVER (ORDER BY auction) AS r, count(*) AS n FROM bids GROUP BY auction, "
    "TUMBLE(ts, INTERVAL '1' MINUTE) FILL (0)": "window functions",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_cannot_be_filled_is_refused(query: str) -> None:
    with pytest.raises(MillstreamError, match=REFUSED[query]) as raised:
        view_plan(query)
    assert raised.value.origin is not None


def test_python_refuses_what_cannot_be_filled() -> None:
    source = ms.Flow("f").source("s", ms.memory(), schema="k STRING, v BIGINT, ts TIMESTAMP", event_time="ts")
    hours = source.key_by("k").window(ms.tumbling("1 hour")).aggregate(t=ms.sum("v"))
    for wrong, message in (
        (lambda: source.fill(0), "windows of the aggregate"),
        (lambda: source.key_by("k").aggregate(t=ms.sum("v")).fill(0), "windows of the aggregate"),
        (lambda: hours.fill("next"), "not a value to fill with"),
        (lambda: hours.fill({"x": 0}), "not a column that can be filled"),
        (lambda: hours.fill(ms.col("t")), "refers to columns"),
        (lambda: hours.fill(0, longest="0 seconds"), "longest"),
    ):
        with pytest.raises(MillstreamError, match=message):
            wrong()


def test_a_function_of_that_name_is_no_clause() -> None:
    catalog = world()
    catalog.functions["fill"] = Function("fill", abs, "BIGINT")
    made = view_plan(
        "SELECT auction, fill(price) AS p FROM bids WHERE fill (price) > 1 AND fill (auction) < 9", catalog
    )
    assert "FILL(`price`)" in repr(made.scans).upper().replace("PRICE", "price")
