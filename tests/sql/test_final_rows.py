"""EMIT ON CLOSE without GROUP BY: rows come once, never change, and are in the end what the view has without it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.model.flow import Flow
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog
from millstream.sql.relations.relation import Relation
from tests.sql.engine import QueryScript
from tests.sql.kit import GENERATORS, defined

BASE = 1_767_225_600
SCHEMA = "k BIGINT, v BIGINT, ts TIMESTAMP"
SOURCES = "".join(
    f"CREATE SOURCE {n} ({SCHEMA}, WATERMARK FOR ts AS ts - INTERVAL '10' SECOND) FROM LOG('{n}');\n" for n in "ab"
)
COUNTS = """CREATE VIEW counts AS SELECT window_start, window_end, k, count(*) AS n, sum(v) AS s
FROM HOP(a, ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND) GROUP BY window_start, window_end, k;
CREATE VIEW others AS SELECT window_end, k, max(v) AS m FROM TUMBLE(b, ts, '10 seconds')
GROUP BY window_start, window_end, k;
"""
QUERIES = {
    "projected": "SELECT k, n + s AS x FROM counts WHERE n > 1",
    "best": "SELECT window_end, k, n FROM (SELECT *, row_number() OVER (PARTITION BY window_end ORDER BY n DESC, k) "
    "AS r FROM counts) WHERE r <= 2",
    "ranked": "SELECT k, n, rank() OVER (PARTITION BY window_start, window_end ORDER BY s) AS r FROM counts",
    "joined": "SELECT c.k, c.n, o.m FROM counts c LEFT JOIN others o ON o.k = c.k AND o.window_end = c.window_end",
    "near": "SELECT x.k, x.v, y.v AS w FROM a x JOIN b y ON x.k = y.k AND "
    "y.ts BETWEEN x.ts - INTERVAL '5' SECOND AND x.ts",
    "firsts": "SELECT window_start, k, v FROM TUMBLE(a, ts, '10 seconds') "
    "QUALIFY row_number() OVER (PARTITION BY window_start, window_end, k ORDER BY ts, v) = 1",
    "lagged": "SELECT k, v, lag(v) OVER (PARTITION BY window_start, window_end, k ORDER BY ts, v) AS before "
    "FROM TUMBLE(a, ts, '10 seconds')",
    "distinct": "SELECT DISTINCT k, window_end FROM TUMBLE(a, ts, '10 seconds')",
    "minus": "SELECT k, ts FROM a EXCEPT SELECT k, ts FROM b",
    "united": "SELECT window_end, k FROM counts UNION ALL SELECT window_end, k FROM others",
    "plain": "SELECT k, v FROM a WHERE v > 1",
    "grouped": "SELECT window_end, count(*) AS c, sum(n) AS t FROM counts GROUP BY window_end HAVING count(*) > 1",
    "grouped_unseen": "SELECT max(m) AS m FROM (SELECT * FROM others WHERE k < 4) AS o GROUP BY window_end, k",
}


def flow_of() -> Flow:
    flow = Flow("f")
    views = {**QUERIES, **{f"{n}_closed": f"{sql} EMIT ON CLOSE" for n, sql in QUERIES.items()}}
    text = SOURCES + COUNTS + ";\n".join(f"CREATE VIEW {n} AS {sql}" for n, sql in views.items())
    catalog = defined(text, Catalog())
    binder = Binder(flow, catalog, GENERATORS)
    for name in "ab":
        stream = flow.source(name, ms.memory(), schema=SCHEMA, event_time="ts", lateness="10 seconds")
        binder._bound[name] = Relation(stream, times=frozenset({"ts"})).called(name)
    for name in views:
        binder.view(catalog.get(name))  # type: ignore[arg-type]
    return flow


def rows_of(script: QueryScript, view: str) -> Counter[str]:
    return Counter(repr(r) for r in script.rows(view))


def check(folder: Path, seed: int, epochs: int) -> None:
    chance = random.Random(seed)
    with QueryScript(flow_of(), str(folder), shards=chance.choice([1, 3])) as script:
        for number in range(epochs + 1):
            last = number == epochs
            for name in "ab":
                # at most 10 seconds behind the newest; in the end both sources leave all of it behind
                at = [500] if last else [10 * number + chance.randrange(10) for _ in range(chance.randrange(1, 7))]
                sent: list[dict[str, Any]] = [
                    {"k": chance.randrange(3), "v": chance.choice([None, 1, 2, 3]), "ts": BASE + t} for t in at
                ]
                script.send(name, *sent)
            script.tick()
            for view in QUERIES:
                assert {op for op, _ in script.changes(f"{view}_closed")} <= {"+I"}, (number, view)
                if number == 0:
                    assert not script.rows(f"{view}_closed"), view
            if number == 1:
                script.crash()
                script.resume(shards=chance.choice([1, 3]))
        for view in QUERIES:
            now, final = rows_of(script, view), rows_of(script, f"{view}_closed")
            later = now - final
            assert final <= now, view
            assert sum(later.values()) <= 6, (view, later)  # those of the last two records
            assert final, view


def test_final_rows_come_once_and_are_those_without_emit(tmp_path: Path) -> None:
    check(tmp_path / "home", seed=1, epochs=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_final_rows_of_many_streams(tmp_path: Path, seed: int) -> None:
    check(tmp_path / "home", seed, epochs=6)
