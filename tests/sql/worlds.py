"""What the tests of random queries share: worlds in which views live, and the batch that they are held against.

Without Spark: DuckDB computes the expressions between the stages, too, and everything else is the product. A failure
names the seed and the query.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pytest
import sqlglot

import millstream as ms
from millstream.home import Home
from millstream.model.flow import Flow
from millstream.plan.lowering import lower, stateful
from millstream.plan.planner import plan
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog
from millstream.sql.parse import statement_parser
from millstream.sql.parse.statement_values import Create
from millstream.sql.parse.text import Text
from millstream.sql.relations.relation import Relation
from tests.sql.engine import QueryEngine
from tests.sql.language import BASES, Deck, Making
from tests.sql.test_relations import BASE, KINDS, Script, row
from tests.unit.live.world import opened

VIEWS = 15
"""How many views of any kind share one flow."""
PARTS = {"whole": "true", "holds": "{}", "fails": "NOT ({})", "unknown": "({}) IS NULL"}
"""Views of the rows for which a condition is true, false and unknown: together they are the whole (SQLancer's TLP), and
a count of the first without its rows is their number (NoREC).
"""


WIDE_SCHEMA = (
    "k BIGINT, d DOUBLE, m DECIMAL(10, 2), f BOOLEAN, day DATE, t TIMESTAMP, l ARRAY<BIGINT>, "
    "r STRUCT<x: BIGINT, y: STRING>"
)
WIDE_KINDS = {
    "k": pa.int64(),
    "d": pa.float64(),
    "m": pa.decimal128(10, 2),
    "f": pa.bool_(),
    "day": pa.date32(),
    "t": pa.timestamp("us", tz="UTC"),
    "l": pa.list_(pa.int64()),
    "r": pa.struct([("x", pa.int64()), ("y", pa.string())]),
    "ts": pa.timestamp("us", tz="UTC"),
}
WIDE = [c for c in WIDE_KINDS if c != "ts"]
_PLAIN = "k BIGINT, v BIGINT, s STRING, ts TIMESTAMP"
SOURCES = {**{f"{n}_": _PLAIN for n in BASES}, "e": _PLAIN, "w_": f"{WIDE_SCHEMA}, ts TIMESTAMP"}


def multiset(rows: Iterable[Iterable[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(_plain(v) for v in r) for r in rows)


def _plain(value: Any) -> Any:
    return float(value) if type(value).__name__ == "Decimal" or isinstance(value, float) else value


@functools.cache
def _batch() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect(config={"threads": 1})
    made.execute("SET TimeZone = 'UTC'")
    made.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")  # as Spark has it
    return made


def batch() -> duckdb.DuckDBPyConnection:
    """What computes the right answers: one for the process, for it takes longer to open than most queries."""
    return _batch().cursor()


@contextmanager
def undurable() -> Iterator[None]:
    """Homes here need to survive a crash of their process at most, and no disk need be waited for."""
    kept = os.fsync
    os.fsync = lambda _: None
    try:
        yield
    finally:
        os.fsync = kept


def makings(kind: str, seed: int) -> dict[str, tuple[str, Making]]:
    """Views with their queries and what they are made of: some of any kind, some over the first of them or over
    windows, and some that partition the rows of one.
    """
    deck = Deck(2 * seed + (kind == "tables"))
    bases = [BASES if i < VIEWS - 3 else (*BASES, "v0", "v1") for i in range(VIEWS)]
    made = {f"v{i}": Making(random.Random(f"{kind} {seed} {i}"), bases=of, deck=deck) for i, of in enumerate(bases)}
    found = {name: (making.query(making.chance.choice((0, 1, 1, 2))), making) for name, making in made.items()}
    if kind == "sources":
        for name in ("v2", "v3"):
            found[name] = (made[name].windowed(), made[name])
    making = Making(random.Random(f"{kind} {seed} parts"))
    rows, condition = making.relation(1), making.expression("condition", 2, ())
    for name, where in PARTS.items():
        found[name] = (f"SELECT k, v, s FROM {rows} x WHERE {where.format(condition)}", making)
    found["unmoved"] = (
        f"SELECT k, v, s FROM (SELECT k, v, s, {condition} AS c FROM {rows} x) y WHERE c",
        making,
    )
    found["counted"] = (
        f"SELECT 1 AS k, count(*) AS v, 'n' AS s FROM {rows} x WHERE {condition} HAVING count(*) > 0",
        making,
    )
    return found


def queries(kind: str, seed: int) -> dict[str, str]:
    """Views with their queries."""
    return {name: sql for name, (sql, _) in makings(kind, seed).items()}


def used_by(kind: str, seed: int) -> list[str]:
    """The patterns in the views of a seed."""
    return [pattern for _, making in makings(kind, seed).values() for pattern in making.used]


def flow_of(views: dict[str, str], *, lateness: str = "1 hour", plainly: bool = False) -> Flow:
    """A flow with these views over views `a`, `b`, `c` and `w` and a source `e`, whose records are sent to sources in
    memory. `plainly`: joins take no keys out of OR.
    """
    flow = Flow("language")
    mark = "WATERMARK FOR ts AS ts - INTERVAL '1' HOUR"
    given = [f"CREATE SOURCE {n} ({schema}, {mark}) FROM LOG('{n}')" for n, schema in SOURCES.items()]
    given += [f"CREATE VIEW {n} AS SELECT k, v, s FROM {n}_" for n in BASES]
    given += [f"CREATE VIEW w AS SELECT {', '.join(WIDE)} FROM w_"]
    catalog = with_views(Catalog(), [*given, *(f"CREATE VIEW {n} AS {s}" for n, s in views.items())])
    binder = Binder(flow, catalog, {}, as_before=set(views) if plainly else ())
    for name, schema in SOURCES.items():
        stream = flow.source(name, ms.memory(), schema=schema, event_time="ts", lateness=lateness)
        binder._bound[name] = Relation(stream, times=frozenset({"ts"})).called(name)
    for name in views:
        binder.view(catalog.get(name))  # type: ignore[arg-type]
    return flow


def with_views(catalog: Catalog, statements: Iterable[str]) -> Catalog:
    """A catalog with more definitions."""
    for entry in statement_parser.read(Text(";\n".join(statements))):
        assert isinstance(entry, Create)
        catalog.add(entry)
    return catalog


def over_sources(path: Path, seed: int) -> None:
    """Views over sources whose records come in random epochs, with a crash in between. Of some seeds they are planned
    without what makes plans smaller.
    """
    chance, views = random.Random(f"sources {seed}"), queries("sources", seed)
    sent: dict[str, list[dict[str, Any]]] = {n: [] for n in SOURCES}
    right = batch()
    plainly = seed % 4 == 1
    with unoptimised() if plainly else nullcontext():
        script = Script(flow_of(views, plainly=plainly), path, shards=chance.choice([1, 3]))
    with script:
        for epoch in range(3):
            send(chance, script, sent, epoch)
            script.tick()
            take(right, sent)
            check(right, views, answers(script.home, views, seed), f"sources:{seed}", epoch, sent)
            if epoch == 1:
                script.crash()
                script.resume(shards=chance.choice([1, 3]))


def send(chance: random.Random, script: Any, sent: dict[str, list[dict[str, Any]]], epoch: int, after: int = 0) -> None:
    """Send some rows to the sources that are read; `after`: seconds to add to the times of each epoch."""
    read = {s.name for s in script._plan.sources}
    for name in (n for n in SOURCES if n in read):
        made = wide_row if name == "w_" else row
        come = [made(chance) for _ in range(chance.choice(SIZES[epoch]))]
        come = [{**r, "ts": r["ts"] + after * epoch} for r in come]
        sent[name] += come
        if come:
            script.send(name, *come)


def take(right: duckdb.DuckDBPyConnection, sent: dict[str, list[dict[str, Any]]]) -> None:
    """Give a batch the rows of the sources."""
    for name, rows in sent.items():
        kinds = WIDE_KINDS if name == "w_" else KINDS
        columns = {c: [r[c] for r in rows] for c in kinds}
        columns["ts"] = [t * 1_000_000 for t in columns["ts"]]
        table = pa.table(columns, schema=pa.schema(list(kinds.items())))
        right.register(name.rstrip("_"), table.drop_columns("ts") if name.endswith("_") else table)


@contextmanager
def unoptimised() -> Iterator[None]:
    """Plans that keep every column of a join, and perform each step again in every place."""
    fresh = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lower, "needed", lambda _: {})
        patch.setattr(stateful.StatefulLowering, "signature", lambda *_: str(next(fresh)))
        yield


def over_tables(path: Path, seed: int) -> None:
    """Views over stored tables whose rows come, change and go; of some seeds they are created by statements."""
    chance, views = random.Random(f"tables {seed}"), queries("tables", seed)
    right = batch()
    with opened(path) as home:
        for name in (*BASES, "w"):
            statement = f"CREATE TABLE {name} ({WIDE_SCHEMA if name == 'w' else 'k BIGINT, v BIGINT, s STRING'})"
            right.execute(in_duckdb(statement).replace("CREATE TABLE", "CREATE OR REPLACE TEMP TABLE"))
            home.say(statement)
        statements = {n: f"CREATE VIEW {n} WITH (flow = 'f', tables = 'live') AS {s}" for n, s in views.items()}
        if seed % 8 == 0:
            for statement in statements.values():
                home.say(statement)
            planned = home.live.planned("f")
        else:
            flow, catalog = Flow("f"), with_views(home.live.catalog.copy(), statements.values())
            binder = Binder(flow, catalog, {})
            for name in views:
                binder.view(catalog.get(name))  # type: ignore[arg-type]
            planned = plan(flow)
        running = home.home.loop(planned, engine=QueryEngine)
        done: list[str] = []
        for epoch in range(3):
            for statement in changes(chance, epoch):
                done.append(statement)
                home.say(statement)
                right.execute(in_duckdb(statement))
            while running.step() is not None:
                pass
            check(right, views, answers(home.home, views, seed), f"tables:{seed}", epoch, done)
            if epoch == 1:
                running.abandon()
                running = home.home.loop(planned, engine=QueryEngine)
        running.close()


LATE = {
    "tumbled": "SELECT k, count(*) AS v, max(s) AS s FROM TUMBLE(e, DESCRIPTOR(ts), INTERVAL '10' SECOND) "
    "GROUP BY k, window_start, window_end",
    "wider": "SELECT CAST(second(window_start) AS BIGINT) AS k, sum(v) AS v, string_agg(s, ',' ORDER BY s) AS s "
    "FROM TUMBLE(e, DESCRIPTOR(ts), INTERVAL '20' SECOND) GROUP BY window_start, window_end",
    "few": "SELECT k, count(*) AS v, min(s) AS s FROM TUMBLE(e, DESCRIPTOR(ts), INTERVAL '10' SECOND) WHERE v > 0 "
    "GROUP BY k, window_start, window_end",
}
"""Windows of records that may come too late."""


def with_late_rows(path: Path, seed: int) -> None:
    """Windows with a watermark that moves on: they have the records of a batch without those that were late for them,
    which are in `<view>$late`.
    """
    chance, right = random.Random(f"late {seed}"), batch()
    sent: dict[str, list[dict[str, Any]]] = {"e": []}
    lateness = chance.choice(["0 seconds", "5 seconds", "20 seconds"])
    with undurable(), Script(flow_of(LATE, lateness=lateness), path, shards=chance.choice([1, 3])) as script:
        for epoch in range(5):
            send(chance, script, sent, min(epoch, 2), after=chance.choice([5, 15]))
            script.tick()
            for name, sql in LATE.items():
                late = Counter(_record(orjson.loads(r["record"])) for r in script.rows(f"{name}$late"))
                assert not late - Counter(_record(r) for r in sent["e"]), f"late:{seed}: what nobody sent is late"
                kept = []
                for r in sent["e"]:
                    late[_record(r)] -= 1
                    kept += [r] if late[_record(r)] < 0 else []
                take(right, {"e": kept})
                found = [(r["k"], r["v"], r["s"]) for r in script.rows(name)]
                compare(right, found, sql, f"late:{seed}", epoch, sent)
            if epoch == 2:
                script.crash()
                script.resume()


def _record(row: dict[str, Any]) -> tuple[Any, ...]:
    at = row["ts"] if isinstance(row["ts"], int) else int(datetime.fromisoformat(row["ts"]).timestamp())
    return row.get("k"), row.get("v"), row.get("s"), at


SIZES = ((0, 0, 1, 5), (0, 1, 3, 6), (1, 3, 6))
"""How many rows an epoch may bring to a relation: at first there are often none, or one."""


def check(
    right: duckdb.DuckDBPyConnection,
    views: dict[str, str],
    rows: list[dict[str, Any]],
    name: str,
    epoch: int,
    given: Any,
) -> None:
    """Hold all views against batches over the same rows, and against one another."""
    found = by_view(rows)
    for view in ("v0", "v1"):  # which others read; as tables, since DuckDB has no ASOF JOIN in recursive queries
        right.execute(f"CREATE OR REPLACE TEMP TABLE {view} AS {in_duckdb(views[view])}")
    for view, sql in views.items():
        compare(right, found[view], sql, name, epoch, given)
    check_parts(found, name)


def answers(home: Home, views: Iterable[str], seed: int) -> list[dict[str, Any]]:
    """The rows of all views: a question of somebody for some seeds, of the store itself for the others, which is
    cheaper.
    """
    return home.query(together(views)).to_dicts() if seed % 8 == 0 else home.store.query(together(views)).to_pylist()


def together(views: Iterable[str]) -> str:
    """One question for the rows of all views."""
    return " UNION ALL ".join(f"SELECT '{n}' AS view_name, k AS k, v AS v, s AS s FROM {n}" for n in views)


def by_view(rows: Iterable[dict[str, Any]]) -> dict[str, list[tuple[Any, ...]]]:
    """The answer to that, view by view."""
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for r in rows:
        found[r["view_name"]].append((r["k"], r["v"], r["s"]))
    return found


def changes(chance: random.Random, epoch: int) -> list[str]:
    """Statements that change the tables."""
    made = []
    for name in (*BASES, "w"):
        wide = name == "w"
        condition = chance.choice(["k = 1", "f", "r.y = 'p'", "d > 1"] if wide else ["k = 1", "v IS NULL", "s = 'p'"])
        rows = [(wide_row if wide else row)(chance) for _ in range(chance.choice(SIZES[epoch]))]
        if rows:
            listed = ", ".join(f"({', '.join(_sql(v) for c, v in r.items() if c != 'ts')})" for r in rows)
            made.append(f"INSERT INTO {name} VALUES {listed}")
        if epoch:
            value = chance.choice(["d = d + 1", "f = NULL", "l = NULL"] if wide else ["v = v + 1", "v = k", "v = NULL"])
            some = [f"UPDATE {name} SET {value} WHERE {condition}", f"DELETE FROM {name} WHERE {condition}"]
            made += chance.choice([some[:1], some[1:], [], [f"DELETE FROM {name}"]])
    return made


def wide_row(chance: random.Random) -> dict[str, Any]:
    """A random row of `w`; sums of its fractions are exact."""
    some = chance.choice
    return {
        "k": some([None, 0, 1, 2]),
        "d": some([None, 0.0, 0.25, 1.5, -2.75, 4.0]),
        "m": some([None, Decimal("0.00"), Decimal("1.25"), Decimal("2.00"), Decimal("-3.50")]),
        "f": some([None, True, False]),
        "day": some([None, date(2026, 1, 1), date(2026, 1, 2), date(2026, 2, 3)]),
        "t": some([None, *(datetime(2026, 1, 1, 0, i, 7 * i, tzinfo=UTC) for i in range(3))]),
        "l": some([None, [1], [2, 3], [3, None, 2]]),
        "r": some([None, {"x": 1, "y": "p"}, {"x": None, "y": "q"}, {"x": 3, "y": None}]),
        "ts": BASE + chance.randrange(60),
    }


def _sql(value: Any) -> str:
    """A value as it is written in a statement."""
    if isinstance(value, list):
        return f"array({', '.join(map(_sql, value))})"
    if isinstance(value, dict):
        kinds = {"x": "BIGINT", "y": "STRING"}
        parts = [f"'{n}', CAST({_sql(v)} AS {kinds[n]})" for n, v in value.items()]
        return f"named_struct({', '.join(parts)})"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S}+00:00'"
    if isinstance(value, date):
        return f"DATE '{value}'"
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def check_parts(views: dict[str, list[Iterable[Any]]], name: str) -> None:
    """Hold views against one another that must fit together."""
    parts = {part: multiset(views[part]) for part in PARTS}
    together = parts["holds"] + parts["fails"] + parts["unknown"]
    assert together == parts["whole"], f"{name}: the parts of a view are not the whole of it: {parts}"
    counted = [tuple(r)[1] for r in views["counted"]]
    assert multiset(views["unmoved"]) == parts["holds"], (
        f"{name}: a condition gives other rows when it is computed first"
    )
    assert sum(counted) == parts["holds"].total(), f"{name}: counted {counted} rows of {parts['holds']}"


def compare(right: duckdb.DuckDBPyConnection, found: Any, sql: str, name: str, epoch: int, given: Any) -> None:
    """Hold the rows of a view against a batch over the same rows."""
    have, expected = multiset(found), multiset(right.execute(f"SELECT k, v, s FROM ({in_duckdb(sql)}) q").fetchall())
    assert have == expected, (
        f"{name}, epoch {epoch}: missing {list((expected - have).elements())[:5]}, "
        f"unexpected {list((have - expected).elements())[:5]}\n{sql}\n{given}"
    )


@functools.cache
def in_duckdb(sql: str) -> str:
    """A query in the words of DuckDB."""
    plain = _TIES.sub(r"QUALIFY rank() OVER (ORDER BY \1) <= 2", sql)  # DuckDB has no WITH TIES
    plain = _WINDOWS.sub(_windows, plain)
    (same,) = sqlglot.transpile(plain, read="spark", write="duckdb")
    return same


def _windows(found: re.Match[str]) -> str:
    """TUMBLE and HOP, which DuckDB does not have, as rows with the borders of their windows."""
    slide, size = int(found[1]), int(found[2] or found[1])
    starts = f"time_bucket(INTERVAL '{slide}' SECOND, ts) - i * INTERVAL '{slide}' SECOND"
    rows = f"SELECT *, {starts} AS window_start FROM e, (SELECT unnest(range({size // slide})) AS i) g"
    return f"(SELECT *, window_start + INTERVAL '{size}' SECOND AS window_end FROM ({rows}) y)"


_WINDOWS = re.compile(r"(?:TUMBLE|HOP)\(e, DESCRIPTOR\(ts\), INTERVAL '(\d+)' SECOND(?:, INTERVAL '(\d+)' SECOND)?\)")
_TIES = re.compile(r"ORDER BY ((?:(?!ORDER BY).)*?) FETCH FIRST 2 ROWS WITH TIES")

WORLDS = {"sources": over_sources, "tables": over_tables}


def play(kind: str, seeds: Iterable[int], path: Path) -> None:
    """Run the views of seeds, and hold them against batches. A failure does not keep other seeds from running."""
    failures: list[tuple[int, Exception]] = []
    with undurable():
        for seed in seeds:
            try:
                WORLDS[kind](path / str(seed), seed)
            except Exception as error:  # noqa: BLE001 - it is raised once the others have run
                failures.append((seed, error))
            shutil.rmtree(path / str(seed), ignore_errors=True)
    if failures:
        seen = "\n".join(f"{kind}:{seed}: {error}" for seed, error in failures)
        raise AssertionError(f"{len(failures)} seeds failed\n{seen}") from failures[0][1]
