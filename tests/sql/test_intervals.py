"""Intervals and times without a zone in views: against DuckDB after every epoch, with changes, restarts and shards."""

# ruff: noqa: DTZ001 - times without a zone are what is tested
from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import Unsupported
from millstream.model.types.duckdb_values import arrow_table
from millstream.model.types.values import python_rows
from millstream.plan.planner import plan
from tests.sql.live_tables import LiveTables, normal, same
from tests.sql.test_shards import _Script

TABLES = {
    "t": "id INT, d INTERVAL DAY TO SECOND, n TIMESTAMP_NTZ, m TIMESTAMP_NTZ",
    "u": "id INT, d INTERVAL DAY TO SECOND, n TIMESTAMP_NTZ",
}
VIEWS = {
    "computed": "SELECT id, m - n AS took, d * 2 AS twice, -d AS back, n + d AS later, "
    "n - INTERVAL '1' HOUR AS before, d > INTERVAL '1' HOUR AS long, m > n AS forward FROM t",
    "extremes": "SELECT id, min(d) AS lo, max(d) AS hi, min(n) AS first_n, max(n) AS last_n, count(DISTINCT d) AS c "
    "FROM t GROUP BY id",
    "sums": "SELECT id, sum(d) AS s, sum(m - n) AS took FROM t GROUP BY id",
    "by_interval": "SELECT d, n, count(*) AS c FROM t GROUP BY d, n",
    "joined": "SELECT t.id, u.id AS other, t.d FROM t JOIN u ON t.d = u.d",
    "joined_n": "SELECT t.id, u.id AS other, t.n FROM t LEFT JOIN u ON t.n = u.n AND t.d >= u.d",
    "different": "SELECT DISTINCT d, n FROM t",
    "longest": "SELECT id, d FROM t ORDER BY d DESC, id LIMIT 2",
    "ranked": "SELECT id, d, rank() OVER (ORDER BY d) AS r, sum(d) OVER (PARTITION BY id ORDER BY n, d) AS s, "
    "lag(n) OVER (PARTITION BY id ORDER BY n, d) AS p FROM t",
    "near": "SELECT id, n, count(*) OVER (ORDER BY n RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) AS c "
    "FROM t",
    "united": "SELECT d, n FROM t UNION SELECT d, n FROM u",
    "of_sums": "SELECT max(s) AS most, sum(s) AS total FROM (SELECT id, sum(d) AS s FROM t GROUP BY id)",
}
SUM = "to_microseconds(CAST(sum(epoch_us({})) AS BIGINT))"
INSTEAD = {
    "sums": f"SELECT id, {SUM.format('d')} AS s, {SUM.format('m - n')} AS took FROM t GROUP BY id",
    "ranked": "SELECT id, d, rank() OVER (ORDER BY d) AS r, to_microseconds(CAST(sum(epoch_us(d)) OVER "
    "(PARTITION BY id ORDER BY n, d) AS BIGINT)) AS s, lag(n) OVER (PARTITION BY id ORDER BY n, d) AS p FROM t",
    "of_sums": f"SELECT max(s) AS most, {SUM.format('s')} AS total "
    f"FROM (SELECT id, {SUM.format('d')} AS s FROM t GROUP BY id)",
}
"""What DuckDB is asked where it has no sum of intervals."""


class _Tables(LiveTables):
    def __init__(self, path: Path) -> None:
        super().__init__(
            path, TABLES, VIEWS, types={"INTERVAL DAY TO SECOND": "INTERVAL", "TIMESTAMP_NTZ": "TIMESTAMP"}
        )

    def differences(self) -> dict[str, Any]:
        found = {}
        for name, query in self.views.items():
            expected = python_rows(arrow_table(self.duck.sql(INSTEAD.get(name, query))))
            have, should = normal(self.rows(name)), normal(tuple(r.values()) for r in expected)
            if not same(have, should):
                found[name] = (have, should)
        return found


def test_views_over_tables_that_change_are_what_duckdb_gives(tmp_path: Path) -> None:
    live = _Tables(tmp_path / "home")
    changes = [
        "INSERT INTO t VALUES (1, '1 hour', '2026-01-01 00:00:00', '2026-01-01 02:00:00'), "
        "(1, '25 hours 0.5 seconds', '2026-01-01 00:30:00', NULL), (2, '-1 microsecond', NULL, '2026-01-01 00:00:00'), "
        "(3, NULL, '2026-01-01 00:30:00', '2025-12-31 00:00:00')",
        "INSERT INTO u VALUES (7, '1 hour', '2026-01-01 00:30:00'), (8, '3650000 days', '2026-01-01 00:00:00')",
        "UPDATE t SET d = '3650000 days' WHERE id = 2",
        "INSERT INTO t VALUES (2, '1 hour', '0001-01-01 00:00:00', '9999-12-31 23:59:59.999999')",
        "DELETE FROM t WHERE id = 1",
        "UPDATE u SET n = NULL",
        "DELETE FROM t",
    ]
    try:
        for i, change in enumerate(changes):
            live.change(change)
            live.tick()
            assert live.differences() == {}, change
            if i in (1, 3):
                live.close()
                live.open()
                live.tick()
                assert live.differences() == {}, f"restarted after {change!r}"
    finally:
        live.close()


SCHEMA = "k BIGINT, d INTERVAL DAY TO SECOND, n TIMESTAMP_NTZ, ts TIMESTAMP_NTZ"


def rows_of(shards: int) -> list[str]:
    flow = ms.Flow("f")
    source = flow.source("s", ms.memory(), schema=SCHEMA, event_time="ts", lateness="4 seconds")
    kinds = {"s": ms.sum("d"), "m": ms.avg("d"), "lo": ms.min("d"), "hi": ms.max("n"), "l": ms.last("d"),
             "f": ms.first("n"), "c": ms.collect("d")}  # fmt: skip
    source.key_by("k").aggregate(**kinds).view("totals")
    source.key_by("k").window(ms.tumbling("1 minute")).aggregate(s=ms.sum("d")).view("by_window")
    hour = timedelta(hours=1)
    with tempfile.TemporaryDirectory() as folder, _Script(flow, folder, shards=shards) as script:
        for epoch in range(3):
            sent = [
                {"k": i % 5, "d": None if i == 3 else i * hour - epoch * timedelta(microseconds=1),
                 "n": datetime(2026, 1, 1 + i, epoch), "ts": datetime(2026, 1, 1, 0, epoch, i)}
                for i in range(9)
            ]  # fmt: skip
            script.send("s", *sent)
            script.tick()
            if epoch == 1:
                script.crash()
                script.resume(shards=shards)
        return sorted(repr(r) for v in ("totals", "by_window") for r in script.rows(v))


def test_sums_of_intervals_survive_a_crash_and_do_not_depend_on_shards() -> None:
    found = rows_of(1)
    assert found == rows_of(3)
    assert any("'m': datetime.timedelta" in r for r in found) and any("window_start" in r for r in found)


def test_a_sum_of_intervals_inside_a_loop_is_refused() -> None:
    flow = ms.Flow("f")
    source = flow.source("s", ms.memory(), schema=SCHEMA, event_time="ts", lateness="4 seconds")
    looped = source.select("k", "d").iterate(lambda rows: rows.key_by("k").aggregate(d=ms.sum("d")), most=3)
    looped.view("v")
    with pytest.raises(Unsupported, match="of intervals inside a loop"):
        plan(flow)
