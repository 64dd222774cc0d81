"""Windows over times without a watermark: groups by borders, held against DuckDB after every epoch."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import MillstreamError
from millstream.model.flow import Flow
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog
from millstream.sql.relations.relation import Relation
from tests.duck import connected
from tests.sql.engine import QueryScript
from tests.sql.kit import GENERATORS, defined, view_plan, world
from tests.sql.live_tables import LiveTables, normal

SCHEMA = "id BIGINT, k BIGINT, made TIMESTAMP, v BIGINT, ts TIMESTAMP"
TABLES = {"t": "id BIGINT, k BIGINT, made TIMESTAMP, day DATE, v BIGINT", "u": "k BIGINT, name STRING"}

SESSIONS = """WITH marked AS (
    SELECT *, coalesce(made > lag(made) OVER w + INTERVAL '90 seconds', true) AS begins FROM t WHERE made IS NOT NULL
    WINDOW w AS (PARTITION BY {key} ORDER BY made, id)
), numbered AS (
    SELECT *, count(*) FILTER (WHERE begins) OVER (PARTITION BY {key} ORDER BY made, id) AS session FROM marked
)"""
ENDS = "min(made), max(made) + INTERVAL '90 seconds'"

VIEWS: Mapping[str, tuple[str, str]] = {
    "tumble": (
        "SELECT window_start, window_end, k, count(*) AS n, sum(v) AS s "
        "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(made), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, k",
        "SELECT time_bucket(INTERVAL '1 minute', made) AS w, w + INTERVAL '1 minute', k, count(*), sum(v) FROM t "
        "WHERE made IS NOT NULL GROUP BY w, k",
    ),
    "tumble_group": (
        "SELECT TUMBLE_START(made, INTERVAL '1' HOUR) AS s, max(v) AS m FROM t "
        "GROUP BY TUMBLE(made, INTERVAL '1' HOUR) EMIT ON CHANGE",
        "SELECT date_trunc('hour', made) AS s, max(v) FROM t WHERE made IS NOT NULL GROUP BY s",
    ),
    "hop": (
        "SELECT window_start, count(*) AS n FROM HOP(t, made, INTERVAL '1' MINUTE, INTERVAL '3' MINUTE) "
        "GROUP BY window_start, window_end",
        "SELECT time_bucket(INTERVAL '1 minute', made) - i * INTERVAL '1 minute' AS w, count(*) FROM t, range(3) r(i) "
        "WHERE made IS NOT NULL GROUP BY w",
    ),
    "cumulate": (
        "SELECT window_start, window_end, sum(v) AS s FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(made), "
        "INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)) GROUP BY window_start, window_end",
        "SELECT w, w + INTERVAL '1 minute' * i, sum(v) FROM (SELECT *, time_bucket(INTERVAL '2 minutes', made) AS w "
        "FROM t WHERE made IS NOT NULL), range(1, 3) r(i) WHERE made < w + i * INTERVAL '1 minute' GROUP BY w, i",
    ),
    "spark": (
        "SELECT window.start AS s, window.end AS e, k, count(*) AS n FROM t GROUP BY window(made, '5 minutes'), k",
        "SELECT time_bucket(INTERVAL '5 minutes', made) AS w, w + INTERVAL '5 minutes', k, count(*) FROM t "
        "WHERE made IS NOT NULL GROUP BY w, k",
    ),
    "berlin": (
        "SELECT window_start, window_end, count(*) AS n FROM TABLE(CALENDAR(TABLE t, DESCRIPTOR(made), 'day', "
        "'Europe/Berlin')) GROUP BY window_start, window_end",
        "SELECT w AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'UTC', (w + INTERVAL '1 day') AT TIME ZONE 'Europe/Berlin' "
        "AT TIME ZONE 'UTC', count(*) FROM (SELECT date_trunc('day', made AT TIME ZONE 'UTC' AT TIME ZONE "
        "'Europe/Berlin') AS w FROM t WHERE made IS NOT NULL) GROUP BY w",
    ),
    "months": (
        "SELECT window_start, window_end, count(*) AS n FROM t GROUP BY CALENDAR(made, 'month')",
        "SELECT date_trunc('month', made) AS w, w + INTERVAL '1 month', count(*) FROM t "
        "WHERE made IS NOT NULL GROUP BY w",
    ),
    "of_dates": (
        "SELECT window_start, window_end, count(*) AS n FROM t GROUP BY TUMBLE(day, INTERVAL '2' DAY)",
        "SELECT time_bucket(INTERVAL '2 days', CAST(day AS TIMESTAMP), TIMESTAMP '1970-01-01') AS w, "
        "w + INTERVAL '2 days', count(*) FROM t WHERE day IS NOT NULL GROUP BY w",
    ),
    "of_a_join": (
        "SELECT window_start, u.name, count(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(made), INTERVAL '1' MINUTE)) "
        "x LEFT JOIN u ON u.k = x.k GROUP BY window_start, u.name",
        "SELECT time_bucket(INTERVAL '1 minute', made) AS w, u.name, count(*) FROM t LEFT JOIN u ON u.k = t.k "
        "WHERE made IS NOT NULL GROUP BY w, u.name",
    ),
    "of_a_subquery": (
        "SELECT TUMBLE_START(latest, INTERVAL '1' MINUTE) AS w, count(*) AS keys FROM "
        "(SELECT k, max(made) AS latest FROM t GROUP BY k) GROUP BY TUMBLE(latest, INTERVAL '1' MINUTE)",
        "SELECT time_bucket(INTERVAL '1 minute', latest) AS w, count(*) FROM "
        "(SELECT k, max(made) AS latest FROM t GROUP BY k) WHERE latest IS NOT NULL GROUP BY w",
    ),
    "rows": (
        "SELECT id, window_start, window_end FROM TABLE(HOP(TABLE t, DESCRIPTOR(made), INTERVAL '1' MINUTE, "
        "INTERVAL '2' MINUTE))",
        "SELECT id, time_bucket(INTERVAL '1 minute', made) - i * INTERVAL '1 minute' AS w, w + INTERVAL '2 minutes' "
        "FROM t, range(2) r(i) WHERE made IS NOT NULL",
    ),
    "first_of_each": (
        "SELECT window_start, k, id FROM (SELECT *, row_number() OVER (PARTITION BY window_start, k ORDER BY v DESC "
        "NULLS LAST, id) AS place FROM TUMBLE(t, made, INTERVAL '1' MINUTE)) WHERE place = 1",
        "SELECT time_bucket(INTERVAL '1 minute', made) AS w, k, id FROM t WHERE made IS NOT NULL "
        "QUALIFY row_number() OVER (PARTITION BY w, k ORDER BY v DESC NULLS LAST, id) = 1",
    ),
    "sets": (
        "SELECT window_start, k, count(*) AS n FROM TUMBLE(t, made, INTERVAL '1' HOUR) "
        "GROUP BY window_start, window_end, ROLLUP (k)",
        "SELECT date_trunc('hour', made) AS w, k, count(*) FROM t WHERE made IS NOT NULL "
        "GROUP BY GROUPING SETS ((w, k), (w))",
    ),
    "sessions": (
        "SELECT window_start, window_end, k, count(*) AS n, sum(v) AS s FROM TABLE(SESSION(TABLE t PARTITION BY k, "
        "DESCRIPTOR(made), INTERVAL '90' SECOND)) GROUP BY window_start, window_end, k",
        SESSIONS.format(key="k") + f"SELECT {ENDS}, k, count(*), sum(v) FROM numbered GROUP BY k, session",
    ),
    "all_sessions": (
        "SELECT SESSION_START(made, INTERVAL '90' SECOND) AS s, SESSION_END(made, INTERVAL '90' SECOND) AS e, "
        "count(*) AS n FROM t GROUP BY session_window(made, '90 seconds')",
        SESSIONS.format(key="1") + f"SELECT {ENDS}, count(*) FROM numbered GROUP BY session",
    ),
    "session_of_computed_gap": (
        "SELECT window_start, window_end, k, count(*) AS n FROM t "
        "GROUP BY k, SESSION(made, CASE WHEN k = 9 THEN INTERVAL '1' SECOND ELSE INTERVAL '90' SECOND END)",
        SESSIONS.format(key="k") + f"SELECT {ENDS}, k, count(*) FROM numbered GROUP BY k, session",
    ),
    "session_rows": (
        "SELECT id, window_start, window_end FROM TABLE(SESSION(TABLE t PARTITION BY k, DESCRIPTOR(made), "
        "INTERVAL '90' SECOND))",
        SESSIONS.format(key="k") + "SELECT id, min(made) OVER p, max(made) OVER p + INTERVAL '90 seconds' "
        "FROM numbered WINDOW p AS (PARTITION BY k, session)",
    ),
}
START = datetime(2026, 3, 28, 22, 57, tzinfo=UTC).replace(tzinfo=None)
"""Near midnight in Berlin, in the night before its clocks change; in DuckDB times have no zone."""


def value(chance: random.Random) -> str:
    made = f"TIMESTAMP '{START}' + INTERVAL '{chance.randrange(0, 40) * 30 + chance.choice([0, 0, 90_000])} seconds'"
    day = f"DATE '2026-03-2{chance.randrange(7, 10)}'"
    return f"{chance.choice([made, made, made, made, 'NULL'])}, {chance.choice([day, day, 'NULL'])}"


def changes(chance: random.Random) -> list[str]:
    """Statements that insert, update and delete rows."""
    statements = []
    for _ in range(chance.randrange(1, 5)):
        known = "NULL" if chance.random() < 0.1 else str(chance.randrange(3))
        statements.append(
            f"INSERT INTO t SELECT coalesce(max(id), 0) + 1, {known}, {value(chance)}, {chance.randrange(5)} FROM t"
        )
    if chance.random() < 0.7:
        made, _, day = value(chance).rpartition(", ")
        statements.append(f"UPDATE t SET made = {made}, day = {day}, v = v + 1 WHERE id % 4 = {chance.randrange(4)}")
    if chance.random() < 0.5:
        statements.append(f"DELETE FROM t WHERE id % 5 = {chance.randrange(5)}")
    if chance.random() < 0.3:
        statements.append(f"INSERT INTO u VALUES ({chance.randrange(3)}, 'n{chance.randrange(3)}')")
    return statements


def _naive(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in r) for r in rows]


class _Tables(LiveTables):
    def rows(self, view: str) -> list[tuple[Any, ...]]:
        return _naive(super().rows(view))


def check(folder: Path, views: Mapping[str, tuple[str, str]], seed: int, epochs: int) -> None:
    """Change the tables at random, restart once, and hold all views against DuckDB after each epoch."""
    chance = random.Random(seed)
    live = _Tables(folder, TABLES, {n: ours for n, (ours, _) in views.items()})
    live.views = {n: theirs for n, (_, theirs) in views.items()}
    try:
        for number in range(epochs):
            live.change(*changes(chance), *changes(chance), *changes(chance))
            if number == 1:
                live.close()
                live.open()
            live.tick()
            assert live.differences() == {}, number
        live.change("DELETE FROM t")
        live.tick()
        assert live.differences() == {}
    finally:
        live.close()


def test_windows_over_a_table_are_what_duckdb_makes_of_its_rows(tmp_path: Path) -> None:
    check(tmp_path / "home", VIEWS, seed=1, epochs=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 10))
def test_windows_over_a_table_stay_so_for_many_changes(tmp_path: Path, seed: int) -> None:
    check(tmp_path / "home", VIEWS, seed, epochs=6)


SOURCE = """CREATE SOURCE s (id BIGINT, k BIGINT, made TIMESTAMP, v BIGINT, ts TIMESTAMP,
WATERMARK FOR ts AS ts - INTERVAL '4' SECOND) FROM LOG('s')"""
OF_A_SOURCE = ("tumble", "hop", "sessions", "berlin", "session_rows", "first_of_each")
"""Views over the table that a source with the same columns can have, too."""


def test_windows_over_another_column_of_a_source_take_every_row(tmp_path: Path) -> None:
    """They are groups, and nothing is late for them; the event time of the source goes on to close its own windows."""
    ours = {n: VIEWS[n][0].replace("TABLE t", "TABLE s").replace("(t, ", "(s, ") for n in OF_A_SOURCE}
    ours["per_minute"] = (
        "SELECT window_start, count(*) AS n FROM TUMBLE(s, ts, INTERVAL '1' MINUTE) "
        "GROUP BY window_start, window_end EMIT ON CLOSE"
    )
    flow = Flow("f")
    catalog = defined(";\n".join([SOURCE, *(f"CREATE VIEW {n} AS {sql}" for n, sql in ours.items())]), Catalog())
    binder = Binder(flow, catalog, GENERATORS)
    stream = flow.source(
        "s", ms.memory(), schema=SCHEMA, event_time="ts", lateness="4 seconds", future_bound="365 days"
    )
    binder._bound["s"] = Relation(stream, times=frozenset({"ts"})).called("s")
    for name in ours:
        binder.view(catalog.get(name))  # type: ignore[arg-type]
    chance, rows = random.Random(5), []
    with QueryScript(flow, str(tmp_path / "home"), shards=3) as script, connected(as_spark=True) as batch:
        for number in range(3):
            late = [120 * number] * 4 + [0] * number  # some of them far behind the watermark
            come = [
                {
                    "id": len(rows) + i,
                    "k": chance.choice([None, 1, 2]),
                    "made": chance.choice([None, *[START + timedelta(seconds=30 * chance.randrange(20))] * 4]),
                    "v": chance.choice([None, 1, 2, 3]),
                    "ts": START + timedelta(seconds=at),
                }
                for i, at in enumerate(late)
            ]
            rows += come
            script.send("s", *({**r, **{c: r[c] and r[c].replace(tzinfo=UTC) for c in ("made", "ts")}} for r in come))
            script.tick()
            columns = {c: [r[c] for r in rows] for c in ("id", "k", "made", "v", "ts")}
            batch.register("t", pa.table(columns))
            for name in OF_A_SOURCE:
                found = normal(_naive([tuple(r.values()) for r in script.rows(name)]))
                assert found == normal(batch.execute(VIEWS[name][1]).fetchall()), (number, name)
            if number == 0:
                script.crash()
                script.resume(shards=1)
        closed = [r["n"] for r in script.rows("per_minute")]
        assert closed == [5, 4]  # the late rows are not among them
        assert len(script.rows("per_minute$late")) == 2


OTHERS = """CREATE SOURCE visits (who BIGINT, left_at TIMESTAMP, page STRUCT<at: TIMESTAMP>) FROM LOG('visits');
CREATE SOURCE seen (who BIGINT, ts TIMESTAMP, p AS PROCTIME(), WATERMARK FOR ts AS ts) FROM LOG('seen');"""
REFUSED = {
    "SELECT count(*) AS n FROM visits GROUP BY TUMBLE(left_at, '1 minute') EMIT ON CLOSE": (
        "need a watermark, and `left_at` has none"
    ),
    "SELECT count(*) AS n FROM visits GROUP BY TUMBLE(left_at, '1 minute') ALLOWED LATENESS INTERVAL '1' MINUTE": (
        "need a watermark, and `left_at` has none"
    ),
    "SELECT count(*) AS n FROM visits GROUP BY SESSION(left_at, '1 minute') EMIT EVERY 10 ROWS": (
        "need a watermark, and `left_at` has none"
    ),
    "SELECT count(*) AS n FROM visits GROUP BY TUMBLE(left_at, '1 minute') DISCARDING": "triggers need a watermark",
    "SELECT count(*) AS n FROM visits GROUP BY TUMBLE(who, '1 minute')": (
        "a window needs a TIMESTAMP or a DATE, but `who` is BIGINT"
    ),
    "SELECT count(*) AS n FROM visits GROUP BY TUMBLE(page.at, '1 minute')": "a field of a column",
    "SELECT count(*) AS n FROM seen GROUP BY TUMBLE(p, '1 minute') EMIT ON CLOSE": "need a watermark, and `p` has none",
    "SELECT window_start, count(*) AS n FROM COUNT_WINDOW(items, 3) GROUP BY window_start, window_end, window_index": (
        "COUNT_WINDOW needs a GROUP BY over append-only rows with a watermark"
    ),
    "SELECT count(*) AS n FROM (SELECT bidder, max(ts) AS ts FROM bids GROUP BY bidder) "
    "GROUP BY SESSION(ts, '1 minute') EMIT ON CLOSE": "lateness and triggers need a watermark",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_needs_a_watermark_is_refused_without_one(query: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        view_plan(query, defined(OTHERS, world()))
    assert REFUSED[query] in str(refused.value)
    assert refused.value.origin is not None


@pytest.mark.parametrize("rows", ["w", "(SELECT ts, made AS window_end FROM (SELECT ts, window_start AS made FROM w))"])
def test_a_column_of_a_table_is_not_taken_for_a_border(rows: str) -> None:
    catalog = defined("CREATE TABLE w (id BIGINT, ts TIMESTAMP, window_start TIMESTAMP);", world())
    grouped = "SELECT window_start AS s, count(*) AS n FROM TUMBLE(TABLE r, DESCRIPTOR(ts), INTERVAL '1' MINUTE) "
    with pytest.raises(MillstreamError, match="is a column of the rows, and of their windows"):
        view_plan(f"WITH r AS (SELECT * FROM {rows}) {grouped} GROUP BY window_start, window_end", catalog)
    renamed = f"WITH r AS (SELECT ts, window_start AS other FROM w) {grouped} GROUP BY window_start, window_end"
    assert view_plan(renamed, catalog).views


def test_python_names_the_column_that_windows_go_by() -> None:
    flow = Flow("shop")
    orders = flow.source("orders", ms.memory(), schema="id BIGINT, ts TIMESTAMP, shipped TIMESTAMP", event_time="ts")
    per_hour = orders.key_by("id").window(ms.tumbling("1 hour"), time="shipped").aggregate(n=ms.count())
    assert per_hour.schema.names == ("window_start", "window_end", "id", "n")
    with pytest.raises(ms.MillstreamError, match="there is no column `sent`"):
        orders.key_by("id").window(ms.tumbling("1 hour"), time="sent").aggregate(n=ms.count())
