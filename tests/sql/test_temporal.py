"""Conditions with now(): after each epoch a view is what DuckDB gives with the epoch's clock in the place of now()."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import millstream as ms
from millstream.clock import BEGINNING, ManualClock
from millstream.errors import MillstreamError
from millstream.home import Home
from millstream.kernels.changes import UNIQUE
from millstream.plan.planner import plan
from millstream.sql.catalog import Catalog
from millstream.state.shard import StateReader
from millstream.testing.script import STEPS, Crash
from tests.sql.engine import QueryEngine, QueryScript, with_topics
from tests.sql.kit import defined, flow_of, told, view_plan
from tests.sql.live_tables import LiveTables, normal, same

START = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)
HOUR = "INTERVAL '1' HOUR"

SHAPES = {
    "last_hour": f"SELECT id, ts FROM t WHERE ts > now() - {HOUR}",
    "valid": "SELECT id, k FROM t WHERE now() BETWEEN ts AND until_",
    "reached": "SELECT k FROM t WHERE ts <= now()",
    "today": "SELECT id FROM t WHERE CAST(ts AS DATE) = current_date AND k > 0",
    "counted": f"SELECT k, count(*) AS n, sum(id) AS s FROM t WHERE ts > now() - {HOUR} GROUP BY k",
    "had": f"SELECT k, max(ts) AS m FROM t GROUP BY k HAVING max(ts) > now() - {HOUR} AND count(*) > 0",
    "joined": f"SELECT t.id, u.name FROM t JOIN u ON t.k = u.k WHERE t.ts > now() - {HOUR} AND u.since <= now()",
    "on_right": f"SELECT u.k, t.id FROM u LEFT JOIN t ON t.k = u.k AND t.ts > now() - {HOUR}",
    "exists_": f"SELECT k FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.k = u.k AND t.ts > now() - {HOUR})",
    "united": f"SELECT id FROM t WHERE ts > now() - {HOUR} UNION ALL SELECT k FROM u WHERE since <= now()",
}
MORE = {
    **SHAPES,
    "total": f"SELECT count(*) AS n FROM t WHERE ts > now() - {HOUR}",
    "left_joined": f"SELECT t.id, u.name FROM t LEFT JOIN u ON t.k = u.k WHERE t.ts > now() - {HOUR}",
    "of_both": "SELECT t.id, u.name FROM t JOIN u ON t.k = u.k WHERE greatest(t.ts, u.since) <= now()",
    "full_joined": "SELECT t.id, u.name FROM t FULL JOIN u ON t.k = u.k WHERE coalesce(t.ts, u.since) <= now()",
    "not_in": f"SELECT name FROM u WHERE k NOT IN (SELECT k FROM t WHERE ts > now() - {HOUR} AND k IS NOT NULL)",
    "by_value": "SELECT name FROM u WHERE (SELECT max(until_) FROM t) > now()",
    "inside": f"SELECT k, count(*) AS n FROM (SELECT k FROM t WHERE ts > now() - {HOUR}) GROUP BY k",
    "unique_keys": f"SELECT DISTINCT k FROM t WHERE ts > now() - {HOUR}",
    "numbered": f"SELECT id, row_number() OVER (PARTITION BY k ORDER BY id) AS r FROM t WHERE ts > now() - {HOUR}",
    "first_rows": f"SELECT id FROM t WHERE ts > now() - {HOUR} ORDER BY id DESC, k LIMIT 2",
    "month": "SELECT id FROM t WHERE d + INTERVAL '1' MONTH > now()",
    "by_text": "SELECT id FROM t WHERE ts > now() - INTERVAL '1 hour 30 minutes'",
    "twice": f"SELECT id FROM t WHERE ts > now() - 2 * {HOUR} AND now() - until_ < 2 * {HOUR}",
    "never": "SELECT id FROM t WHERE NULL < now()",
    "of_a_text": "SELECT id FROM t WHERE '2026-03-02' <= now()",
    "once_more": "SELECT * FROM last_hour WHERE ts <= now()",
}
TABLES = {
    "t": "id BIGINT, k BIGINT, ts TIMESTAMPTZ, until_ TIMESTAMPTZ, d DATE",
    "u": "k BIGINT, name VARCHAR, since TIMESTAMPTZ",
}


def at_clock(query: str, now: datetime) -> str:
    """A query as it is at an instant."""
    instant, day = f"TIMESTAMPTZ '{now.isoformat()}'", f"DATE '{now.date().isoformat()}'"
    query = re.sub(r"now\(\)|current_timestamp", instant, query)
    return query.replace("current_date", day)


class TimedTables(LiveTables):
    """Tables and views under a clock that is moved by hand."""

    def __init__(self, path: Path, views: Mapping[str, str]) -> None:
        self.clock = ManualClock(_micros(START))
        super().__init__(path, TABLES, views)

    def open(self) -> None:
        self.home = Home(self.path, clock=self.clock)
        self.loop = self.home.loop(self.plan, engine=QueryEngine, failpoint=self.fail)

    crash_at = ""

    def fail(self, step: str) -> None:
        if step == self.crash_at:
            raise Crash(step)

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.clock.now() / 1e6, UTC)

    def differences(self) -> dict[str, tuple[list[Any], list[Any]]]:
        found = {}
        self.duck.execute(f"CREATE OR REPLACE TEMP VIEW last_hour AS {at_clock(SHAPES['last_hour'], self.now)}")
        for name, query in self.views.items():
            have = normal(self.rows(name))
            answer = self.duck.sql(at_clock(query, self.now)).to_arrow_table()
            should = normal(tuple(r.values()) for r in answer.to_pylist())
            if not same(have, should):
                found[name] = (have, should)
        return found


def _micros(ts: datetime) -> int:
    return round(ts.timestamp() * 1_000_000)


def _time(chance: random.Random, now: datetime) -> str:
    if chance.random() < 0.1:
        return "NULL"
    if chance.random() < 0.2:
        return f"TIMESTAMPTZ '{now.isoformat()}'"  # exactly now
    minutes = chance.choice([-1500, -90, -61, -60, -59, -20, -1, 0, 1, 30, 60, 90, 300, 1500])
    return f"TIMESTAMPTZ '{(now + timedelta(minutes=minutes)).isoformat()}'"


def _change(chance: random.Random, now: datetime, number: int) -> str:
    def row() -> str:
        day = "NULL" if chance.random() < 0.1 else f"DATE '{(now + timedelta(days=chance.randint(-40, 2))).date()}'"
        return f"({number}, {chance.randint(0, 3)}, {_time(chance, now)}, {_time(chance, now)}, {day})"

    kind = chance.random()
    if kind < 0.5:
        one = row()
        return f"INSERT INTO t VALUES {one}, {one if chance.random() < 0.3 else row()}"
    if kind < 0.65:
        return f"UPDATE t SET ts = {_time(chance, now)} WHERE id % 5 = {chance.randint(0, 4)}"
    if kind < 0.75:
        return f"DELETE FROM t WHERE id % 7 = {chance.randint(0, 6)}"
    if kind < 0.9:
        return f"INSERT INTO u VALUES ({chance.randint(0, 3)}, 'n{number}', {_time(chance, now)})"
    return f"DELETE FROM u WHERE k = {chance.randint(0, 3)}"


def _compared(path: Path, views: Mapping[str, str], seed: int, changes: int) -> None:
    """Change tables and move the clock; look at all views after each, also across a crash at any step."""
    chance = random.Random(seed)
    live = TimedTables(path / "home", views)
    try:
        for number in range(changes):
            live.change(*(_change(chance, live.now, 10 * number + i) for i in range(4)))
            live.tick()
            assert live.differences() == {}, f"after change {number}"
            live.clock.advance(chance.choice([1, 60_000_000, 1_800_000_000, 5_400_000_000, 86_400_000_000]))
            if number % 3 == 1:
                live.crash_at = chance.choice(STEPS)
                live.change(f"INSERT INTO u VALUES (1, 'crash', TIMESTAMPTZ '{live.now.isoformat()}')")
                with pytest.raises(Crash):
                    live.loop.step()
                live.crash_at = ""
                live.close()
                live.clock.advance(60_000_000)
                live.open()
            live.tick()  # rows come and go without a change of a table
            assert live.differences() == {}, f"after the clock moved, behind change {number}"
    finally:
        live.close()


def test_views_over_tables_are_what_duckdb_gives_at_the_clock_of_the_epoch(tmp_path: Path) -> None:
    _compared(tmp_path, SHAPES, 1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_more_views_over_tables_are_what_duckdb_gives(tmp_path: Path, seed: int) -> None:
    _compared(tmp_path, MORE, seed, 20)


SOURCE = """CREATE SOURCE s (k BIGINT, v BIGINT, tags ARRAY<STRING>, ts TIMESTAMP,
    WATERMARK FOR ts AS ts - INTERVAL '10' SECOND) FROM LOG('s');"""
OVER_A_SOURCE = {
    "recent": f"SELECT k, v, tags FROM s WHERE ts > now() - {HOUR}",
    "per_key": f"SELECT k, count(*) AS n, sum(v) AS t FROM s WHERE ts > now() - {HOUR} GROUP BY k",
    "due": "SELECT k, v FROM s WHERE ts <= now()",
    "windows": f"SELECT window_start, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '30' MINUTE) "
    f"WHERE ts > now() - {HOUR} GROUP BY window_start, window_end",
    "same_time": "SELECT a.v, b.v AS w FROM s a JOIN s b ON a.k = b.k AND b.ts BETWEEN a.ts AND "
    f"a.ts + INTERVAL '1' MINUTE WHERE a.ts > now() - {HOUR}",
}
AT_START = "2026-03-01T22:30:00Z"


def _script(path: Path, *views: str) -> QueryScript:
    names = views or tuple(OVER_A_SOURCE)
    text = SOURCE + "".join(f"CREATE VIEW {n} AS {OVER_A_SOURCE[n]};" for n in names)
    flow = flow_of(defined(text, Catalog()), *names)
    return QueryScript(flow, with_topics(path / "home", {"s": flow.sources[0].schema}), start=AT_START)


def _row(k: int, v: int, minutes: float) -> dict[str, Any]:
    return {"k": k, "v": v, "tags": ["x"], "ts": (START + timedelta(minutes=minutes)).isoformat()}


def test_rows_of_a_source_come_and_go_as_time_passes(tmp_path: Path) -> None:
    script = _script(tmp_path)
    rows = [_row(1, 10, 0), _row(1, 11, -59), _row(1, 11, -59), _row(2, 20, -61), _row(2, 21, 5)]
    script.home.topic("s").append(rows)
    script.tick()
    script.expect_rows("per_key", {"k": 1, "n": 3, "t": 32}, {"k": 2, "n": 1, "t": 21})
    script.expect_rows("due", *({"k": r["k"], "v": r["v"]} for r in rows[:4]))
    script.expect_rows("same_time", *({"v": v, "w": v} for v in (10, 11, 11, 11, 11, 21)))
    assert len(script.rows("recent")) == 4
    assert script.tick() == []  # nothing is due
    script.advance("59 seconds")
    assert script.tick() == []
    script.changes("recent")
    script.advance("1 second")  # two rows leave, without new data
    assert [r.rows for r in script.tick()] == [0]
    gone = ("-D", {"k": 1, "v": 11, "tags": ["x"]})
    script.expect_changes("recent", gone, gone)
    script.expect_rows("per_key", {"k": 1, "n": 1, "t": 10}, {"k": 2, "n": 1, "t": 21})
    script.expect_rows("same_time", {"v": 10, "w": 10}, {"v": 21, "w": 21})
    script.advance("4 minutes").tick()
    assert len(script.rows("due")) == 5  # the row of the future has come
    script.home.topic("s").append([_row(3, 30, -70), _row(3, 31, -30)])  # out of order: the first is past already
    script.tick()
    script.expect_rows("per_key", {"k": 1, "n": 1, "t": 10}, {"k": 2, "n": 1, "t": 21}, {"k": 3, "n": 1, "t": 31})
    assert sorted(r["n"] for r in script.rows("windows")) == [1, 2]
    script.advance("2 hours").tick()
    assert [script.rows(n) for n in ("recent", "per_key", "windows", "same_time")] == [[], [], [], []]
    script.stop()


@pytest.mark.parametrize("at", ["before work", "before commit", "after commit"])
def test_an_epoch_that_the_clock_began_is_the_same_after_a_crash(tmp_path: Path, at: str) -> None:
    script = _script(tmp_path, "per_key", "recent")
    script.home.topic("s").append([_row(1, 10, 0), _row(1, 11, -30)])
    script.tick()
    script.advance("30 minutes").crash(at)
    with pytest.raises(Crash):
        script.tick()
    script.advance("10 minutes")
    script.resume().tick()
    script.expect_rows("per_key", {"k": 1, "n": 1, "t": 10})
    script.advance("1 hour").stop().resume()
    script.tick()
    assert script.rows("recent") == script.rows("per_key") == []
    script.stop()


def test_state_forgets_rows_whose_time_is_past(tmp_path: Path) -> None:
    script = _script(tmp_path, "recent")
    for batch in range(30):
        script.home.topic("s").append([_row(i, batch, batch * 60) for i in range(20)])
        script.tick()
        script.advance("1 hour")
    assert script._loop is not None
    state = StateReader(script._loop.engine.cache, script._loop.version.of("recent"), UNIQUE)
    rows = state.scan(BEGINNING)
    assert rows is not None and len(rows.filter(~pl.col("$gone"))) == 20  # those that are still there
    assert script._loop.version.rows("recent") < 15 * 20  # rows that left, and marks of that, are cleared away
    script.stop()


def test_a_flow_over_an_ended_source_waits_for_rows_that_are_to_leave(tmp_path: Path) -> None:
    flow = ms.Flow("f")
    source = flow.source("s", ms.memory(), schema="v BIGINT, ts TIMESTAMP", event_time="ts")
    source.where("ts > now() - INTERVAL '1' HOUR").view("recent")
    with QueryScript(flow, tmp_path, start=AT_START) as script:
        script.send("s", {"v": 1, "ts": AT_START}).end("s").tick()
        assert script._loop is not None and not script._loop.finished
        script.expect_rows("recent", {"v": 1})
        script.advance("1 hour").tick()
        assert script._loop.finished
        script.expect_rows("recent")


REFUSED = {
    "SELECT now() AS n FROM t": "`now` cannot be used here",
    "SELECT k, count(*) AS n FROM t GROUP BY k, current_date": "`current_date` cannot be used here",
    "SELECT k FROM t ORDER BY now() LIMIT 1": "`now` cannot be used here",
    "SELECT t.k FROM t JOIN u ON t.k = u.k AND t.ts > now()": "`now` cannot be used here",
    "SELECT a.k FROM u LEFT JOIN t a ON a.k = u.k AND a.ts + (a.ts - u.since) > now()": "`now` cannot be used here",
    "SELECT max(now()) AS m FROM t": "`now` cannot be used here",
    "SELECT k, max(ts) OVER () AS r FROM t QUALIFY max(ts) OVER () > now()": "`now` cannot be used here",
    "SELECT k FROM t WHERE 'x' < now()": "`'x'`, which is not a time",
    "SELECT k FROM t WHERE '2026-02-30' < now()": "`'2026-02-30'`, which is not a time",
    "SELECT k FROM t WHERE ts > now() - INTERVAL '1 month 2 days'": "a month or a year has no fixed length",
    "SELECT k FROM t WHERE ts > now() OR k = 1": "cannot be used here",
    "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k AND t.ts > now())": "`now` cannot be used here",
}


@pytest.mark.parametrize("query", REFUSED)
def test_other_places_for_now_are_refused(query: str) -> None:
    with pytest.raises(MillstreamError, match=REFUSED[query]) as raised:
        text = ";".join(f"CREATE TABLE {n} ({c})" for n, c in TABLES.items())
        catalog = defined(f"{text}; CREATE VIEW v WITH (tables = 'live') AS {query}", Catalog())
        plan(flow_of(catalog, "v"))
    assert raised.value.hint and raised.value.origin is not None


def test_explain_tells_of_the_filter() -> None:
    shown = told(view_plan(f"SELECT auction FROM bids WHERE ts > now() - {HOUR}"))
    assert "kernel temporal filter" in shown
    assert "where      ts > NOW() - INTERVAL '1' HOUR" in shown
    assert "state      each row until its time is past" in shown
