"""Random queries of the whole language (docs/language.md) as live views, against DuckDB after every epoch.

Without Spark: DuckDB computes the expressions between the stages, too, and everything else is the product. A failure
names the seed and the query.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot

import millstream as ms
from millstream.model.flow import Flow
from millstream.sql.bind import Binder
from millstream.sql.catalog import Catalog
from millstream.sql.relation import Relation
from tests.sql.kit import defined
from tests.sql.language import BASES, Making, patterns
from tests.sql.test_relations import KINDS, Script, row
from tests.unit.live.world import opened

VIEWS = 5
"""How many views of any kind share one flow."""
PARTS = {"whole": "true", "holds": "{}", "fails": "NOT ({})", "unknown": "({}) IS NULL"}
"""Views of the rows for which a condition is true, false and unknown: together they are the whole (SQLancer's TLP), and
a count of the first without its rows is their number (NoREC).
"""


def multiset(rows: Iterable[Iterable[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_plain(v) for v in r) for r in rows)


def _plain(value: Any) -> Any:
    return float(value) if type(value).__name__ == "Decimal" or isinstance(value, float) else value


def batch() -> duckdb.DuckDBPyConnection:
    """What computes the right answers."""
    made = duckdb.connect(config={"threads": 1})
    made.execute("SET TimeZone = 'UTC'")
    made.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")  # as Spark has it
    return made


def makings(kind: str, seed: int) -> dict[str, tuple[str, Making]]:
    """Views with their queries and what they are made of: some of any kind, and some that partition the rows of one."""
    made = {f"v{i}": Making(random.Random(f"{kind} {seed} {i}")) for i in range(VIEWS)}
    found = {name: (making.query(making.chance.choice((0, 1, 1, 2))), making) for name, making in made.items()}
    making = Making(random.Random(f"{kind} {seed} parts"))
    rows, condition = making.relation(1), making.expression("condition", 2, ())
    for name, where in PARTS.items():
        found[name] = (f"SELECT k, v, s FROM {rows} x WHERE {where.format(condition)}", making)
    found["counted"] = (
        f"SELECT 1 AS k, count(*) AS v, 'n' AS s FROM {rows} x WHERE {condition} HAVING count(*) > 0",
        making,
    )
    return found


def queries(kind: str, seed: int) -> dict[str, str]:
    """Views with their queries."""
    return {name: sql for name, (sql, _) in makings(kind, seed).items()}


def used_by(kind: str, seed: int) -> list[str]:
    return [pattern for _, making in makings(kind, seed).values() for pattern in making.used]


def flow_of(views: dict[str, str]) -> Flow:
    """A flow with these views over views `a`, `b` and `c`, whose records are sent to sources in memory."""
    flow, schema = Flow("language"), "k BIGINT, v BIGINT, s STRING, ts TIMESTAMP"
    mark = "WATERMARK FOR ts AS ts - INTERVAL '1' HOUR"
    given = [f"CREATE SOURCE {n}_ ({schema}, {mark}) FROM LOG('{n}')" for n in BASES]
    given += [f"CREATE VIEW {n} AS SELECT k, v, s FROM {n}_" for n in BASES]
    catalog = defined(";\n".join([*given, *(f"CREATE VIEW {n} AS {s}" for n, s in views.items())]), Catalog())
    binder = Binder(flow, catalog, {})
    for name in BASES:
        stream = flow.source(f"{name}_", ms.memory(), schema=schema, event_time="ts", lateness="1 hour")
        binder._bound[f"{name}_"] = Relation(stream, times=frozenset({"ts"})).called(f"{name}_")
    for name in views:
        binder.view(catalog.get(name))  # type: ignore[arg-type]
    return flow


def over_sources(path: Path, seed: int) -> None:
    """Views over sources whose records come in random epochs, with a crash in between."""
    chance, views = random.Random(f"sources {seed}"), queries("sources", seed)
    sent: dict[str, list[dict[str, Any]]] = {n: [] for n in BASES}
    right = batch()
    with Script(flow_of(views), path, shards=chance.choice([1, 3])) as script:
        read = {s.name for s in script._plan.sources}
        for epoch in range(3):
            for name in (n for n in BASES if f"{n}_" in read):
                come = [row(chance) for _ in range(chance.choice((0, 1, 3, 6)))]
                sent[name] += come
                if come:
                    script.send(f"{name}_", *come)
            script.tick()
            for name in BASES:
                columns = {c: [r[c] for r in sent[name]] for c in ("k", "v", "s")}
                right.register(name, pa.table(columns, schema=pa.schema([(c, KINDS[c]) for c in columns])))
            found = {name: [r.values() for r in script.rows(name)] for name in views}
            for name, sql in views.items():
                compare(right, found[name], sql, f"sources:{seed}", epoch, sent)
            check_parts(found, f"sources:{seed}")
            if epoch == 0:
                script.crash()
                script.resume(shards=chance.choice([1, 3]))


def over_tables(path: Path, seed: int) -> None:
    """Views over stored tables whose rows come, change and go."""
    chance, views = random.Random(f"tables {seed}"), queries("tables", seed)
    right = batch()
    with opened(path) as home:
        for name in BASES:
            right.execute(f"CREATE TABLE {name} (k BIGINT, v BIGINT, s STRING)")
            home.say(f"CREATE TABLE {name} (k BIGINT, v BIGINT, s STRING)")
        for name, sql in views.items():
            home.say(f"CREATE VIEW {name} WITH (flow = 'f', tables = 'live') AS {sql}")
        done: list[str] = []
        for epoch in range(3):
            for statement in changes(chance, first=epoch == 0):
                done.append(statement)
                home.say(statement)
                right.execute(statement)
            home.perform("f")
            found = {name: [r.values() for r in home.rows(f"SELECT k, v, s FROM {name}")] for name in views}
            for name, sql in views.items():
                compare(right, found[name], sql, f"tables:{seed}", epoch, done)
            check_parts(found, f"tables:{seed}")


def changes(chance: random.Random, *, first: bool) -> list[str]:
    """Statements that change the tables."""
    made = []
    for name in BASES:
        condition = chance.choice(["k = 1", "v IS NULL", "s = 'p'", "v > 1"])
        rows = [row(chance) for _ in range(chance.choice((0, 1, 3, 5)))]
        if rows:
            made.append(
                f"INSERT INTO {name} VALUES " + ", ".join(f"({', '.join(map(_sql, _values(r)))})" for r in rows)
            )
        if not first:
            made.append(
                chance.choice(
                    [
                        f"UPDATE {name} SET v = {chance.choice(['v + 1', '2', 'k', 'NULL'])} WHERE {condition}",
                        f"DELETE FROM {name} WHERE {condition}",
                        f"DELETE FROM {name}",
                    ]
                )
            )
    return made


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["k"], row["v"], row["s"]


def _sql(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def check_parts(views: dict[str, list[Iterable[Any]]], name: str) -> None:
    """Hold views against one another that must fit together."""
    parts = {part: multiset(views[part]) for part in PARTS}
    together = parts["holds"] + parts["fails"] + parts["unknown"]
    assert together == parts["whole"], f"{name}: the parts of a view are not the whole of it: {parts}"
    counted = [tuple(r)[1] for r in views["counted"]]
    assert sum(counted) == parts["holds"].total(), f"{name}: counted {counted} rows of {parts['holds']}"


def compare(right: duckdb.DuckDBPyConnection, found: Any, sql: str, name: str, epoch: int, given: Any) -> None:
    """Hold the rows of a view against a batch over the same rows."""
    plain = _TIES.sub(r"QUALIFY rank() OVER (ORDER BY \1) <= 2", sql)  # DuckDB has no WITH TIES
    (same,) = sqlglot.transpile(plain, read="spark", write="duckdb")
    have, expected = multiset(found), multiset(right.execute(same).fetchall())
    assert have == expected, (
        f"{name}, epoch {epoch}: missing {list((expected - have).elements())[:5]}, "
        f"unexpected {list((have - expected).elements())[:5]}\n{sql}\n{given}"
    )


_TIES = re.compile(r"ORDER BY ((?:(?!ORDER BY).)*?) FETCH FIRST 2 ROWS WITH TIES")

WORLDS = {"sources": over_sources, "tables": over_tables}


def play(kind: str, seeds: Iterable[int], path: Path) -> None:
    for seed in seeds:
        WORLDS[kind](path / str(seed), seed)


def test_every_pattern_of_the_page_is_used() -> None:
    used = Counter(u for kind in WORLDS for seed in range(100) for u in used_by(kind, seed))
    missing = {f"{k}: {p}" for k, lines in patterns().items() for p in lines} - set(used)
    assert not missing


@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_live_view_is_what_a_batch_gives(tmp_path: Path, kind: str, seed: int) -> None:
    play(kind, [seed], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("share", range(20))
def test_many_more_live_views_are_what_a_batch_gives(tmp_path: Path, kind: str, share: int) -> None:
    play(kind, range(1_000 + 50 * share, 1_050 + 50 * share), tmp_path)
