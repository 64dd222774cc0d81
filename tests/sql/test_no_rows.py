"""An aggregate without GROUP BY has one row, also over no rows, and so has the set () of ROLLUP and its like; with
other keys or a window there is none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql.engine import QueryScript, with_topics
from tests.sql.kit import defined, flow_of, world
from tests.sql.live_tables import LiveTables

TABLES = {"t": "a INT, b INT, s STRING, d DOUBLE", "u": "x INT, y INT"}
VIEWS = {
    "kinds": "SELECT count(*) AS n, count(a) AS c, sum(a) AS t, avg(d) AS v, sum(d) AS f, min(s) AS least, "
    "max(s) AS most, count(DISTINCT a) AS different, stddev(d) AS dev, median(d) AS mid, bool_and(a > 1) AS every, "
    "first(s) AS any FROM t WHERE a < 2",
    "left_join": "SELECT x, n FROM u LEFT JOIN (SELECT count(*) AS n FROM t) c ON true",
    "cross_join": "SELECT x, n FROM u CROSS JOIN (SELECT count(*) AS n, sum(a) AS t FROM t) c",
    "compared": "SELECT x FROM u WHERE y >= (SELECT count(*) FROM t)",
    "having_some": "SELECT count(*) AS n FROM t HAVING count(*) > 1",
    "having_none": "SELECT count(*) AS n FROM t HAVING count(*) = 0",
    "of_a_total": "SELECT count(*) AS n, max(n) AS m FROM (SELECT count(*) AS n FROM t WHERE a > 7)",
    "exists_total": "SELECT x FROM u WHERE EXISTS (SELECT count(*) FROM t)",
    "exists_having": "SELECT x FROM u WHERE EXISTS (SELECT count(*) FROM t HAVING count(*) > 1)",
    "grouped": "SELECT a, count(*) AS n FROM t GROUP BY a",
    "rolled_up": "SELECT a, b, count(*) AS n, sum(d) AS t, max(s) AS m FROM t GROUP BY ROLLUP (a, b)",
    "cubed": "SELECT a, s, grouping(a) AS g, count(*) AS n FROM t WHERE a < 9 GROUP BY CUBE (a, s)",
    "two_totals": "SELECT a, count(*) AS n FROM t GROUP BY GROUPING SETS ((), (a), ())",
    "of_a_rollup": "SELECT count(*) AS n, sum(n) AS t FROM (SELECT a, count(*) AS n FROM t GROUP BY ROLLUP (a))",
    "exists_rollup": "SELECT x FROM u WHERE EXISTS (SELECT count(*) FROM t GROUP BY ROLLUP (a))",
    "rollup_having": "SELECT a, count(*) AS n FROM t GROUP BY ROLLUP (a) HAVING count(*) > 1",
    "in_groups": "SELECT a, s, count(*) AS n FROM t GROUP BY a, ROLLUP (s)",
    "united": "SELECT count(*) AS n FROM t UNION ALL SELECT sum(y) FROM u",
}


def test_views_over_tables_have_the_row_before_the_first_and_behind_the_last_row(tmp_path: Path) -> None:
    live = LiveTables(tmp_path / "home", TABLES, VIEWS)
    changes = [
        "",
        "INSERT INTO u VALUES (1, 0), (2, 1), (3, 5)",
        "INSERT INTO t VALUES (1, 2, 'x', 1.5), (NULL, 3, 'y', 2.5), (8, 1, NULL, NULL)",
        "UPDATE t SET a = 9",
        "DELETE FROM t",
        "INSERT INTO t VALUES (1, 1, 'z', 0.5)",
        "DELETE FROM u; DELETE FROM t",
    ]
    try:
        for i, change in enumerate(changes):
            live.change(change)
            live.tick()
            assert live.differences() == {}, change
            if i in (0, 3, 4):  # the row is given once, and not again after a restart
                live.close()
                live.open()
                live.tick()
                assert live.differences() == {}, f"restarted after {change!r}"
    finally:
        live.close()


def test_a_view_over_a_view_of_no_rows_has_its_row(tmp_path: Path) -> None:
    views = {"inner_total": "SELECT count(*) AS n FROM t", "outer_total": "SELECT sum(n + 1) AS s FROM inner_total"}
    live = LiveTables(tmp_path / "home", {"t": "a INT"}, views)
    live.tick()
    assert (live.rows("inner_total"), live.rows("outer_total")) == ([(0,)], [(1,)])
    live.close()


SOURCE = (
    "CREATE SOURCE s (k BIGINT, v DOUBLE, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '4' SECOND) FROM LOG('s');"
)
OVER_A_SOURCE = {
    "total": "SELECT count(*) AS n, sum(v) AS t, max(k) AS m, first(k) AS f FROM s",
    "filtered": "SELECT count(*) AS n FROM s WHERE v > 100",
    "of_groups": "SELECT count(*) AS n FROM (SELECT k, count(*) AS n FROM s GROUP BY k)",
    "rolled_up": "SELECT k, count(*) AS n, sum(v) AS t FROM s GROUP BY ROLLUP (k)",
    "by_key": "SELECT k, count(*) AS n FROM s GROUP BY k",
    "by_window": "SELECT window_start, count(*) AS n FROM TUMBLE(s, DESCRIPTOR(ts), INTERVAL '1' MINUTE) "
    "GROUP BY window_start, window_end",
}


@pytest.mark.parametrize("shards", [1, 2])
def test_views_over_a_source_have_the_row_from_the_first_epoch_on(tmp_path: Path, shards: int) -> None:
    text = SOURCE + "".join(f"CREATE VIEW {n} AS {q};" for n, q in OVER_A_SOURCE.items())
    catalog = defined(text, world())
    flow = flow_of(catalog, *OVER_A_SOURCE)
    home = with_topics(tmp_path / "home", {"s": flow.sources[0].schema})
    script = QueryScript(flow, home, shards=shards)
    script.tick()
    assert {n: script.rows(n) for n in OVER_A_SOURCE} == {
        "total": [{"n": 0, "t": None, "m": None, "f": None}],
        "filtered": [{"n": 0}],
        "of_groups": [{"n": 0}],
        "rolled_up": [{"k": None, "n": 0, "t": None}],
        "by_key": [],
        "by_window": [],
    }
    script.stop().resume()
    assert script.tick() == []  # there is nothing more to do
    script.home.topic("s").append([{"k": 3, "v": 0.5, "ts": "2026-01-01T00:00:00Z"}])
    script.tick()
    assert script.rows("total") == [{"n": 1, "t": 0.5, "m": 3, "f": 3}]
    assert (script.rows("filtered"), script.rows("of_groups")) == ([{"n": 0}], [{"n": 1}])
    assert sorted(script.rows("rolled_up"), key=str) == [{"k": 3, "n": 1, "t": 0.5}, {"k": None, "n": 1, "t": 0.5}]
    assert script.changes("total")[-2:] == [
        ("-U", {"n": 0, "t": None, "m": None, "f": None}),
        ("+U", {"n": 1, "t": 0.5, "m": 3, "f": 3}),
    ]
    script.stop()
