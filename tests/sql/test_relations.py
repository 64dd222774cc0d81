"""Joins, sets, window functions and their chains in SQL: after every epoch a view is what DuckDB makes of the rows.

Without Spark: DuckDB computes the expressions between the stages, too, and everything else is the product.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.model.flow import Flow
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog
from millstream.sql.relations.relation import Relation
from tests.duck import connected
from tests.seeds import run_seed
from tests.sql.engine import QueryScript as Script
from tests.sql.kit import GENERATORS, defined

BASE = 1_767_225_600
SCHEMA = "k BIGINT, v BIGINT, s STRING, ts TIMESTAMP"
SOURCES = {
    n: f"CREATE SOURCE {n} ({SCHEMA}, WATERMARK FOR ts AS ts - INTERVAL '1' HOUR) FROM LOG('{n}')" for n in "abc"
}
KINDS = {"k": pa.int64(), "v": pa.int64(), "s": pa.string(), "ts": pa.timestamp("us", tz="UTC")}

# Each is a relation over a relation `{}` with the columns k, v, s, and gives the columns k, v, s again, so that all of
# them can be put behind one another. Those that change the rows they gave are what the others must withstand.
OPERATORS = {
    "where": "SELECT k, v, s FROM {} x WHERE v > 1",
    "project": "SELECT v AS k, k AS v, s || '!' AS s FROM {} x",
    "aggregate": "SELECT k, sum(v) AS v, max(s) AS s FROM {} x GROUP BY k",
    "counts": "SELECT v AS k, count(*) AS v, min(s) AS s FROM {} x GROUP BY v",
    "having": "SELECT k, count(DISTINCT v) AS v, max(s) AS s FROM {} x GROUP BY k HAVING count(*) > 1",
    "filter": "SELECT k, count(*) FILTER (WHERE v > 1) AS v, max(s) FILTER (WHERE v < 3) AS s FROM {} x GROUP BY k",
    "sets": "SELECT k, sum(v) AS v, s FROM {} x GROUP BY GROUPING SETS ((k), (s), ())",
    "distinct": "SELECT DISTINCT k, v, s FROM {} x",
    "top": "SELECT k, v, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST, s, k) AS n "
    "FROM {} y) x WHERE n <= 2",
    "limit": "SELECT k, v, s FROM {} x ORDER BY v NULLS FIRST, s NULLS FIRST, k NULLS FIRST LIMIT 3",
    "inner": "SELECT x.k, y.v, x.s FROM {} x JOIN b y ON x.k = y.k",
    "residual": "SELECT x.k, y.v, x.s FROM {} x JOIN b y ON x.k = y.k AND x.v < y.v",
    "left": "SELECT x.k, y.v, x.s FROM {} x LEFT JOIN b y ON x.k = y.k AND y.v > 0",
    "right": "SELECT y.k, x.v, y.s FROM {} x RIGHT JOIN b y ON x.k = y.k",
    "full": "SELECT coalesce(x.k, y.k) AS k, x.v, y.s FROM {} x FULL JOIN b y ON x.k = y.k AND x.v <> y.v",
    "semi": "SELECT k, v, s FROM {} x WHERE k IN (SELECT v FROM b)",
    "anti": "SELECT k, v, s FROM {} x WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = x.k AND b.v > x.v)",
    "to_aggregate": "SELECT x.k, t.n AS v, x.s FROM {} x LEFT JOIN (SELECT k, count(*) AS n FROM b GROUP BY k) t "
    "ON x.k = t.k",
    "self": "SELECT x.k, y.v, x.s FROM {} x JOIN {} y ON x.v = y.k",
    "three": "SELECT x.k, z.v, y.s FROM {} x JOIN b y ON x.k = y.k JOIN c z ON y.v = z.v AND x.k <= z.k",
    "value": "SELECT k, v, s FROM {} x WHERE v >= (SELECT avg(v) FROM b)",
    "value_of_each": "SELECT k, (SELECT count(*) FROM b WHERE b.k = x.k) AS v, s FROM {} x",
    "value_of_less": "SELECT k, (SELECT max(v) FROM b WHERE b.v < x.v) AS v, s FROM {} x",
    "not_in": "SELECT k, v, s FROM {} x WHERE k NOT IN (SELECT v FROM b WHERE v > 1)",
    "member": "SELECT k, CASE WHEN v IN (SELECT k FROM b) THEN v WHEN EXISTS (SELECT 1 FROM b WHERE b.k = x.k) THEN k "
    "END AS v, s FROM {} x",
    "total": "SELECT count(*) AS k, sum(v) AS v, max(s) AS s FROM {} x",
    "union": "SELECT k, v, s FROM {} x UNION ALL SELECT k, v, s FROM b",
    "union_once": "SELECT k, v, s FROM {} x UNION SELECT k, v, s FROM b",
    "intersect": "SELECT k, v, s FROM {} x INTERSECT SELECT k, v, s FROM b",
    "intersect_all": "SELECT k, v, s FROM {} x INTERSECT ALL SELECT k, v, s FROM b",
    "except": "SELECT k, v, s FROM {} x EXCEPT SELECT k, v, s FROM b",
    "except_all": "SELECT k, v, s FROM {} x EXCEPT ALL SELECT k, v, s FROM b",
    "ranks": "SELECT k, rank() OVER w + dense_rank() OVER w AS v, s FROM {} x WINDOW w AS (PARTITION BY k ORDER BY v)",
    "numbers": "SELECT k, row_number() OVER (PARTITION BY s ORDER BY v, k) AS v, s FROM {} x",
    "lag": "SELECT k, lag(v) OVER w AS v, lead(s, 1, 'none') OVER w AS s FROM {} x "
    "WINDOW w AS (PARTITION BY k ORDER BY v, s)",
    "rows": "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY v, s ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS v, "
    "max(s) OVER (PARTITION BY k ORDER BY v, s ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS s FROM {} x",
    "range": "SELECT k, count(*) OVER (PARTITION BY k ORDER BY v RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS v, s "
    "FROM {} x",
}
OPERATORS["recursive"] = (
    "WITH RECURSIVE r AS (SELECT k, v, s FROM {} x UNION SELECT r.k, y.v, r.s FROM r JOIN b y ON r.v = y.k) "
    "SELECT k, v, s FROM r"
)
OPERATORS["hops"] = (
    "WITH RECURSIVE r AS (SELECT k, v, s FROM {} x WHERE v < 3 UNION ALL "
    "SELECT r.k, r.v + 1, r.s FROM r WHERE r.v < 3) SELECT k, v, s FROM r"
)
NUMBERED = "(SELECT *, row_number() OVER (PARTITION BY k ORDER BY v, s) AS n FROM {} y) x"
OPERATORS["numbered_where"] = f"SELECT k, n AS v, s FROM {NUMBERED} WHERE k = 1"
OPERATORS["numbered_where_both"] = f"SELECT k, v, s FROM {NUMBERED} WHERE k >= 1 AND n > 1"
OPERATORS["numbered_bound_used"] = (
    f"SELECT k, max(N) AS v, min(s) AS s FROM {NUMBERED} WHERE n < 3 AND v > 0 GROUP BY k"
)
OPERATORS["product"] = "SELECT k, sum(k * v) AS v, max(s) AS s FROM {} x GROUP BY k"
OPERATORS["computed_key"] = "SELECT k + v AS k, count(*) AS v, min(s) AS s FROM {} x GROUP BY k + v"
OPERATORS["ahead"] = (
    "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY v, s ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING) AS v, s FROM {} x"
)
OPERATORS["over_join"] = "SELECT x.k, count(*) AS v, max(x.s) AS s FROM {} x JOIN c y ON x.k = y.k GROUP BY x.k"
OPERATORS["qualify_first"] = (
    "SELECT k, v, s FROM {} x QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST, s) <= 2 AND v > 0"
)
OPERATORS["qualify"] = (
    "SELECT k, row_number() OVER w AS v, s FROM {} x WHERE v >= 0 WINDOW w AS (PARTITION BY s ORDER BY v, k) "
    "QUALIFY v > 1 AND rank() OVER (PARTITION BY k ORDER BY v) < 3"
)
OPERATORS["qualify_groups"] = (
    "SELECT k, sum(v) AS v, max(s) AS s FROM {} x GROUP BY k QUALIFY rank() OVER (ORDER BY count(*) DESC) <= 2"
)
OPERATORS["windows_over_groups"] = (
    "SELECT k, rank() OVER (ORDER BY sum(v), k) + sum(count(*)) OVER (PARTITION BY max(s)) AS v, max(s) AS s "
    "FROM {} x GROUP BY k"
)
OPERATORS["distinct_on"] = "SELECT DISTINCT ON (k) k, v, s FROM {} x ORDER BY k, v DESC, s"
OPERATORS["distinct_on_limit"] = "SELECT DISTINCT ON (x.s, 1) k, v, s FROM {} x ORDER BY s, k, v LIMIT 2"
OPERATORS["offset"] = "SELECT k, v, s FROM {} x ORDER BY v, s, k LIMIT 2 OFFSET 1"
OPERATORS["offset_all"] = "SELECT k, v, s FROM {} x ORDER BY v, s, k OFFSET 2"
OPERATORS["ties"] = "SELECT k, v, s FROM {} x ORDER BY v DESC, k FETCH FIRST 2 ROWS WITH TIES"
OPERATORS["ties_offset"] = "SELECT k, v, s FROM {} x ORDER BY k OFFSET 1 ROW FETCH NEXT 2 ROWS WITH TIES"
OPERATORS["group_all"] = "SELECT k, count(*) AS v, s || 'x' AS s FROM {} x GROUP BY ALL"
OPERATORS["star_of"] = "SELECT y.* EXCEPT (ts) FROM {} x JOIN b y ON x.k = y.k"
OPERATORS["star_replace"] = "SELECT * REPLACE (k + 1 AS k) FROM (SELECT k, v, s FROM {} w) x"
OPERATORS["natural"] = "SELECT * FROM (SELECT k, v FROM {} w) x NATURAL JOIN (SELECT k, s FROM b) y"
OPERATORS["natural_full"] = "SELECT * FROM (SELECT k, v FROM {} w) x NATURAL FULL JOIN (SELECT k, s FROM b) y"
OPERATORS["using_right"] = "SELECT k, x.k AS v, y.s FROM {} x RIGHT JOIN b y USING (k)"
OPERATORS["using_full"] = "SELECT k, x.v, y.s FROM {} x FULL JOIN b y USING (k)"
OPERATORS["values"] = (
    "SELECT x.k, w.n AS v, x.s FROM {} x LEFT JOIN (VALUES (1, 'p'), (2, 'q'), (2, NULL)) AS w(n, s) ON x.v = w.n"
)
OPERATORS["and_a_row"] = "SELECT k, v, s FROM {} x UNION ALL SELECT 7, 7, 'seven'"
OPERATORS["series"] = (
    "SELECT g.i AS k, count(x.v) AS v, max(x.s) AS s FROM generate_series(0, 3) AS g(i) LEFT JOIN {} x ON x.k = g.i "
    "GROUP BY g.i"
)
OPERATORS["series_beside"] = (
    "SELECT x.k, g.i AS v, x.s FROM {} x CROSS JOIN LATERAL generate_series(1, CAST(floor(x.v) AS BIGINT)) AS g(i)"
)
OPERATORS["unnest"] = "SELECT x.k, u.e AS v, x.s FROM {} x CROSS JOIN UNNEST(array(x.k, x.v)) AS u(e) WHERE u.e > 0"
OPERATORS["unnest_on"] = "SELECT x.k, u.e AS v, x.s FROM {} x JOIN UNNEST(array(x.k, x.v)) AS u(e) ON u.e > x.k"
OPERATORS["in_order"] = (
    "SELECT k, len(array_agg(v ORDER BY v DESC)) + coalesce(array_agg(v ORDER BY v DESC)[0], 0) AS v, "
    "string_agg(s, '-' ORDER BY s DESC, v) AS s FROM {} x GROUP BY k"
)
OPERATORS["distinct_text"] = (
    "SELECT k, sum(DISTINCT v) AS v, string_agg(DISTINCT s, ',' ORDER BY s) FILTER (WHERE v > 0) AS s FROM {} x "
    "GROUP BY k"
)
OPERATORS["within"] = (
    "SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) + percentile_cont(0.3) WITHIN GROUP (ORDER BY v DESC) "
    "+ percentile_disc(0.7) WITHIN GROUP (ORDER BY v) FILTER (WHERE v < 3) AS v, max(s) AS s FROM {} x GROUP BY k"
)
OPERATORS["avg_distinct"] = "SELECT k, avg(DISTINCT v) AS v, max(s) AS s FROM {} x GROUP BY k"
OPERATORS["over_filter"] = (
    "SELECT k, count(*) FILTER (WHERE v > 1) OVER (PARTITION BY k) AS v, "
    "max(s) FILTER (WHERE v < 3) OVER (PARTITION BY k ORDER BY v) AS s FROM {} x"
)
OPERATORS["over_distinct"] = (
    "SELECT k, sum(DISTINCT v) OVER (PARTITION BY k ORDER BY v, s ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) + "
    "count(DISTINCT s) OVER (PARTITION BY k) AS v, s FROM {} x"
)
OPERATORS["over_groups"] = (
    "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY v DESC GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS v, "
    "min(s) OVER (PARTITION BY k ORDER BY v GROUPS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s FROM {} x"
)
OPERATORS["over_exclude"] = (
    "SELECT k, count(*) OVER (w GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE GROUP) + "
    "sum(v) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) AS v, "
    "max(s) OVER (w RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE TIES) AS s FROM {} x"
).replace("(w ", "(PARTITION BY k ORDER BY v ")
OPERATORS["ignore_nulls"] = (
    "SELECT k, lag(v, 2) IGNORE NULLS OVER w AS v, last_value(s) IGNORE NULLS OVER w AS s FROM {} x "
    "WINDOW w AS (PARTITION BY k ORDER BY s, v)"
)
OPERATORS["ignore_nulls_ahead"] = (
    "SELECT k, nth_value(v, 2) IGNORE NULLS OVER w AS v, lead(s, 1, 'none') IGNORE NULLS OVER w AS s FROM {} x "
    "WINDOW w AS (PARTITION BY k ORDER BY v, s)"
)
OPERATORS["pivot"] = (
    "SELECT k, coalesce(p, 0) + 10 * coalesce(other, 0) AS v, concat_ws('-', k) AS s FROM (SELECT k, v, s FROM {} w) "
    "PIVOT (sum(v) FOR s IN ('p', 'q' AS other))"
)
BATCH = {
    **OPERATORS,
    "pivot": "SELECT k, coalesce(sum(v) FILTER (s = 'p'), 0) + 10 * coalesce(sum(v) FILTER (s = 'q'), 0) AS v, "
    "concat_ws('-', k) AS s FROM {} x GROUP BY k",
    "ignore_nulls": OPERATORS["ignore_nulls"]
    .replace("(v, 2) IGNORE NULLS", "(v, 2 IGNORE NULLS)")
    .replace("(s) IGNORE NULLS", "(s IGNORE NULLS)"),
    "ignore_nulls_ahead": OPERATORS["ignore_nulls_ahead"]
    .replace("2) IGNORE NULLS", "2 IGNORE NULLS)")
    .replace("'none') IGNORE NULLS", "'none' IGNORE NULLS)"),
    "in_order": "SELECT k, count(v) + coalesce(max(v), 0) AS v, "
    "string_agg(s, '-' ORDER BY s DESC, v) AS s FROM {} x GROUP BY k",
    "unnest": "SELECT x.k, u.e AS v, x.s FROM {} x CROSS JOIN LATERAL (SELECT unnest([x.k, x.v]) AS e) u WHERE u.e > 0",
    "unnest_on": "SELECT x.k, u.e AS v, x.s FROM {} x JOIN LATERAL (SELECT unnest([x.k, x.v]) AS e) u ON u.e > x.k",
    "series_beside": "SELECT x.k, g.i AS v, x.s FROM {} x CROSS JOIN LATERAL "
    "(SELECT unnest(range(1, CAST(floor(x.v) AS BIGINT) + 1)) AS i) g",
    "ties": "SELECT k, v, s FROM {} x QUALIFY rank() OVER (ORDER BY v DESC, k) <= 2",
    "ties_offset": "SELECT k, v, s FROM {} x QUALIFY rank() OVER (ORDER BY k) <= 3 "
    "AND row_number() OVER (ORDER BY k, v, s) > 1",
}
"""The same for DuckDB, where it says a thing in another way."""
ORDERED = {
    "over_distinct",
    "over_exclude",
    "ignore_nulls",
    "ignore_nulls_ahead",
    "qualify_first",
    "qualify",
    "distinct_on",
    "distinct_on_limit",
    "offset",
    "offset_all",
    "ties_offset",
    "lag",
    "rows",
    "numbers",
    "limit",
    "top",
    "ahead",
    "numbered_where",
    "numbered_where_both",
    "numbered_bound_used",
}
"""Their answer depends on the order of rows that differ in nothing they name: only over rows that differ."""


def row(random_: random.Random) -> dict[str, Any]:
    small = [None, 0, 1, 1, 2, 3]
    return {
        "k": random_.choice(small),
        "v": random_.choice(small),
        "s": random_.choice([None, "p", "q", "r"]),
        "ts": BASE + random_.randrange(60),
    }


def sql_of(chain: Sequence[str], operators: Mapping[str, str] = OPERATORS) -> str:
    made = "a"
    for name in chain:
        made = f"({operators[name].replace('{}', made)})"
    return f"SELECT * FROM {made} z" if made.startswith("(") else made


def flow_of(views: dict[str, str]) -> Flow:
    flow = Flow("relations")
    catalog = defined(
        ";\n".join([*SOURCES.values(), *(f"CREATE VIEW {n} AS {s}" for n, s in views.items())]), Catalog()
    )
    binder = Binder(flow, catalog, GENERATORS)
    for name in SOURCES:  # in memory, so that rows can be sent by hand
        stream = flow.source(name, ms.memory(), schema=SCHEMA, event_time="ts", lateness="1 hour")
        binder._bound[name] = Relation(stream, times=frozenset({"ts"})).called(name)
    for name in views:
        binder.view(catalog.get(name))  # type: ignore[arg-type]
    return flow


def _plain(value: Any) -> Any:
    """Fractions to 12 digits: DuckDB interpolates percentiles with another formula than Spark and Millstream."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    return float(value) if type(value).__name__ == "Decimal" else value


def multiset(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_plain(v) for v in r) for r in rows)


def check(
    chains: dict[str, Sequence[str]], seed: int, *, epochs: int = 3, most: int = 6, shards: Sequence[int] = (1, 3)
) -> set[str]:
    """Run views over random epochs, with a crash between two of them, and hold each against DuckDB after each. The
    number of shards is one of `shards`. Returns the steps of joins that had hot keys.
    """
    split: set[str] = set()
    views = {n: sql_of(c) for n, c in chains.items()}
    chance = random.Random(seed)
    sent: dict[str, list[dict[str, Any]]] = {n: [] for n in SOURCES}
    used = [n for n in SOURCES if any(f" {n} " in f"{sql} ".replace(")", " ") for sql in views.values())]
    with tempfile.TemporaryDirectory() as folder, connected(as_spark=True) as batch:
        with Script(flow_of(views), folder, shards=chance.choice(shards)) as script:
            for number in range(epochs):
                for name in used:
                    come = [row(chance) for _ in range(chance.randrange(most + 1))]
                    sent[name] += come
                    if come:
                        script.send(name, *come)
                script.tick()
                for name in SOURCES:
                    columns = {c: [r[c] for r in sent[name]] for c in KINDS}
                    columns["ts"] = [t * 1_000_000 for t in columns["ts"]]
                    batch.register(name, pa.table(columns, schema=pa.schema(list(KINDS.items()))))
                for name, sql in views.items():
                    found = multiset(r.values() for r in script.rows(name))
                    expected = multiset(batch.execute(sql_of(chains[name], BATCH)).fetchall())
                    assert found == expected, (name, sql, sent)
                assert script._loop is not None
                split |= set(script._loop._hot)
                if number == epochs // 3:
                    script.crash()
                    script.resume(shards=chance.choice(shards))
    return split


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_an_operator_is_what_a_batch_gives_after_every_epoch(name: str) -> None:
    check({"v": ["distinct", name] if name in ORDERED else [name]}, seed=1)


@pytest.mark.parametrize("name", ["ahead", "numbered_where", "numbered_where_both"])
def test_an_operator_that_was_once_wrong_is_what_a_batch_gives(name: str) -> None:
    check({"v": ["distinct", name]}, seed=1)


PAIRS = list(itertools.product(sorted(OPERATORS), repeat=2))


def chained(first: str, second: str) -> list[str]:
    """Two operators behind one another; the order of equal rows is nobody's business."""
    return [*(["distinct"] if first in ORDERED else []), first, *(["distinct"] if second in ORDERED else []), second]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(5))
def test_pairs_of_operators_are_what_a_batch_gives(seed: int) -> None:
    chance = random.Random(seed)
    some = chance.sample(PAIRS, 4)
    check({f"v{i}": chained(*p) for i, p in enumerate(some)}, seed)


def test_a_number_may_have_the_name_of_a_column() -> None:
    check({"v": ["distinct", "numbers", "hops"]}, seed=916)


@pytest.mark.slow
@pytest.mark.parametrize("first", sorted(OPERATORS))
def test_all_pairs_of_operators_are_what_a_batch_gives(first: str) -> None:
    names, size = sorted(OPERATORS), 8
    for start in range(0, len(names), size):  # views of one flow: opening a home costs more than a view
        some = names[start : start + size]
        check({f"v{i}": chained(first, second) for i, second in enumerate(some)}, 100 * run_seed() + start)
