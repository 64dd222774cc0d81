"""Queries of every kind whose names can be replaced by others, and what they give: rows, changes and sink records.

A query is written with plain names in braces. `given` runs all queries of a flow at once, so that what one of them does
to the others shows, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import millstream as ms
from millstream import col
from millstream.errors import MillstreamError
from millstream.home import Home
from millstream.model.streams.stream import Stream
from millstream.model.types.schema import TIMESTAMP
from millstream.plan.planner import plan
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog
from millstream.sql.parse import statement_parser
from millstream.sql.parse.text import Text
from tests.sql.engine import QueryScript

COLUMNS = ("k", "v", "s", "g", "t", "u")
"""Roles of columns of the sources."""
ALIASES = ("o", "p")
"""Roles of columns that queries make."""
RELATIONS = ("A", "B", "x", "y", "c", "V")
"""Roles of sources, aliases, CTEs and views."""
PLAIN = {n: n if n.islower() else f"rel_{n.lower()}" for n in (*COLUMNS, *ALIASES, *RELATIONS)}

SOURCES = {
    "A": "CREATE SOURCE {A} ({k} BIGINT, {v} BIGINT, {s} STRING, {g} ARRAY<STRING>, {t} TIMESTAMP, "
    "WATERMARK FOR {t} AS {t} - INTERVAL '5' SECOND) FROM LOG('topic_a')",
    "B": "CREATE SOURCE {B} ({k} BIGINT, {v} BIGINT, {s} STRING, {u} TIMESTAMP, "
    "WATERMARK FOR {u} AS {u} - INTERVAL '5' SECOND) FROM LOG('topic_b')",
    "C": "CREATE SOURCE revised ({k} BIGINT PRIMARY KEY, {v} BIGINT, {s} STRING, {t} TIMESTAMP, "
    "WATERMARK FOR {t} AS {t} - INTERVAL '5' SECOND) FROM LOG('topic_c') WITH (op = '{s!s}')",
}
_TUMBLE = "TABLE(TUMBLE(TABLE {A}, DESCRIPTOR({t}), INTERVAL '10' SECOND))"
QUERIES = {
    "rows": "SELECT * FROM {A}",
    "filter": "SELECT * FROM {A} {x} WHERE {x}.{v} > 1",
    "project": "SELECT {k}, {v} + 1 AS {o}, upper({s}) AS {p} FROM {A}",
    "swap": "SELECT {k} AS {v}, {v} AS {k} FROM {A}",
    "renamed": "SELECT {k} AS plain_k, {v} AS plain_v, {s} AS plain_s, {t} AS plain_t FROM {A} WHERE {v} > 0",
    "explode": "SELECT {k}, {o} FROM {A} LATERAL VIEW explode({g}) {x} AS {o}",
    "unnest": "SELECT {k}, {x}.{o} FROM {A} CROSS JOIN UNNEST({g}) AS {x}({o})",
    "group": "SELECT {k}, count(*) AS {o}, sum({v}) AS {p}, max({s}) AS {s} FROM {A} GROUP BY {k}",
    "group_hidden": "SELECT count(*) AS {o}, avg({v}) AS {p} FROM {A} GROUP BY {k}",
    "group_own_name": "SELECT {k}, sum({v}) AS {v}, min({s}) AS {s} FROM {A} GROUP BY {k}",
    "group_expression": "SELECT {v} % 2 AS {o}, count(DISTINCT {k}) AS {p} FROM {A} GROUP BY {v} % 2",
    "having": "SELECT {k}, count(*) AS {o} FROM {A} GROUP BY {k} HAVING count(*) > 1",
    "sets": "SELECT {k}, {s}, count(*) AS {o} FROM {A} GROUP BY GROUPING SETS (({k}), ({s}), ())",
    "again": "SELECT {o}, count(*) AS {p} FROM (SELECT {k}, count(*) AS {o} FROM {A} GROUP BY {k}) {x} GROUP BY {o}",
    "first_last": "SELECT {k}, first({s}) AS {o}, collect_list({v}) AS {p} FROM {A} GROUP BY {k}",
    "tumble": "SELECT window_start, window_end, {k}, count(*) AS {o} FROM " + _TUMBLE + " "
    "GROUP BY window_start, window_end, {k}",
    "tumble_close": "SELECT window_end, {k} AS {p}, sum({v}) AS {o} FROM " + _TUMBLE + " "
    "GROUP BY window_start, window_end, {k} EMIT ON CLOSE",
    "tumble_only": "SELECT {k}, count(*) AS {o} FROM " + _TUMBLE + " GROUP BY window_start, window_end, {k} "
    "RETAIN INTERVAL '1' DAY",
    "panes": "SELECT window_start, {k}, sum({v}) AS {o} FROM " + _TUMBLE + " "
    "GROUP BY window_start, window_end, {k} EMIT EVERY 1 ROWS ACCUMULATING",
    "discard": "SELECT window_start, {k}, sum({v}) AS {o} FROM " + _TUMBLE + " "
    "GROUP BY window_start, window_end, {k} EMIT EVERY 1 ROWS DISCARDING",
    "hop": "SELECT window_start, {s}, count(*) AS {o} FROM HOP({A}, {t}, INTERVAL '5' SECOND, INTERVAL '10' SECOND) "
    "GROUP BY window_start, window_end, {s}",
    "cumulate": "SELECT window_end, max({v}) AS {o} FROM TABLE(CUMULATE(DATA => TABLE {A}, TIMECOL => DESCRIPTOR({t}), "
    "STEP => INTERVAL '5' SECOND, SIZE => INTERVAL '20' SECOND)) GROUP BY window_start, window_end",
    "session": "SELECT window_start, window_end, {k}, count(*) AS {o} FROM TABLE(SESSION(TABLE {A} PARTITION BY {k}, "
    "DESCRIPTOR({t}), INTERVAL '3' SECOND)) GROUP BY window_start, window_end, {k}",
    "count_window": "SELECT {k}, avg({v}) AS {o} FROM TABLE(COUNT_WINDOW(TABLE {A}, 2, 1)) GROUP BY window_index, {k}",
    "window_function": "SELECT window.start AS {o}, {k}, count(*) AS {p} FROM {A} "
    "GROUP BY window({t}, '10 seconds'), {k}",
    "distinct": "SELECT DISTINCT {k}, {s} FROM {A}",
    "top": "SELECT {k}, {v} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {k} ORDER BY {v} DESC, {s}, {t}) AS {o} "
    "FROM {A}) {x} WHERE {o} <= 2",
    "top_rank": "SELECT {k}, {v}, {o} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {k} ORDER BY {v} DESC, {s}, {t}) "
    "AS {o} FROM {A}) {x} WHERE {o} <= 2",
    "limit": "SELECT {k}, {v}, {s} FROM {A} ORDER BY {v}, {s}, {k} LIMIT 3",
    "over": "SELECT {k}, lag({v}) OVER (PARTITION BY {k} ORDER BY {t}, {v}) AS {o}, sum({v}) OVER (PARTITION BY {s} "
    "ORDER BY {t}, {v}) AS {p} FROM {A}",
    "numbers": "SELECT {k}, row_number() OVER (PARTITION BY {k} ORDER BY {t}, {v}, {s}) AS {o} FROM {A}",
    "join": "SELECT {x}.{k}, {y}.{v} AS {o}, {x}.{v} AS {p} FROM {A} {x} JOIN {B} {y} ON {x}.{k} = {y}.{k}",
    "join_star": "SELECT {x}.*, {y}.{v} AS {o} FROM {A} {x} JOIN {B} {y} ON {x}.{k} = {y}.{k} AND {x}.{v} < {y}.{v}",
    "join_unaliased": "SELECT {A}.{k}, {B}.{v} AS {o} FROM {A} JOIN {B} ON {A}.{k} = {B}.{k}",
    "join_using": "SELECT {k}, {x}.{v} AS {o}, {y}.{v} AS {p} FROM {A} {x} JOIN {B} {y} USING ({k})",
    "left": "SELECT {x}.{k}, {y}.{s} AS {o} FROM {A} {x} LEFT JOIN {B} {y} ON {x}.{k} = {y}.{k} AND {y}.{v} > 1",
    "full": "SELECT {x}.{k} AS {o}, {y}.{k} AS {p}, {x}.{v} FROM {A} {x} FULL JOIN {B} {y} ON {x}.{k} = {y}.{k}",
    "timed": "SELECT {x}.{k}, {y}.{v} AS {o} FROM {A} {x} LEFT JOIN {B} {y} ON {x}.{k} = {y}.{k} AND {y}.{u} BETWEEN "
    "{x}.{t} - INTERVAL '2' SECOND AND {x}.{t} + INTERVAL '2' SECOND",
    "as_of": "SELECT {x}.{k}, {y}.{v} AS {o} FROM {A} {x} ASOF LEFT JOIN {B} {y} ON {x}.{k} = {y}.{k} "
    "AND {x}.{t} >= {y}.{u}",
    "self_join": "SELECT {x}.{k}, {y}.{v} AS {o} FROM {A} {x} JOIN {A} {y} ON {x}.{v} = {y}.{k}",
    "semi": "SELECT {k}, {v} FROM {A} {x} WHERE {k} IN (SELECT {k} FROM {B})",
    "two_semi": "SELECT {k}, {v} FROM {A} {x} WHERE {k} IN (SELECT {k} FROM {B}) AND {v} IN (SELECT {v} FROM {B})",
    "anti": "SELECT {k}, {v} FROM {A} {x} WHERE NOT EXISTS (SELECT 1 FROM {B} {y} WHERE {y}.{k} = {x}.{k} "
    "AND {y}.{v} > {x}.{v})",
    "value": "SELECT {k}, {v} FROM {A} WHERE {v} >= (SELECT avg({v}) AS {o} FROM {B})",
    "two_values": "SELECT {k}, {v} FROM {A} WHERE {v} >= (SELECT min({v}) FROM {B}) "
    "AND {k} <= (SELECT max({k}) FROM {B})",
    "cte": "WITH {c} AS (SELECT {k}, sum({v}) AS {o} FROM {A} GROUP BY {k}) "
    "SELECT {x}.{k}, {x}.{o} AS {p} FROM {c} {x}",
    "recursive": "WITH RECURSIVE {c} AS (SELECT {k}, {v} FROM {A} UNION SELECT {c}.{k}, {y}.{v} FROM {c} JOIN {B} {y} "
    "ON {c}.{v} = {y}.{k}) SELECT {k}, {v} FROM {c}",
    "union": "SELECT {k}, {v} AS {o} FROM {A} UNION ALL SELECT {k}, {v} FROM {B}",
    "union_once": "SELECT {k}, {s} FROM {A} UNION SELECT {k}, {s} FROM {B}",
    "intersect": "SELECT {k}, {v} FROM {A} INTERSECT ALL SELECT {k}, {v} FROM {B}",
    "except": "SELECT {k} FROM {A} EXCEPT SELECT {k} FROM {B}",
    "match": "SELECT {k}, {o}, {p} FROM {A} MATCH_RECOGNIZE (PARTITION BY {k} ORDER BY {t} MEASURES m_.{v} AS {o}, "
    "LAST(n_.{v}) AS {p} ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (m_ n_) WITHIN INTERVAL '1' HOUR "
    "DEFINE m_ AS m_.{v} > 0, n_ AS n_.{v} >= 1)",
    "corrections": "SELECT window_start, {k} % 2 AS {o}, sum({v}) AS {p} FROM "
    "TABLE(TUMBLE(TABLE revised, DESCRIPTOR({t}), INTERVAL '10' SECOND)) GROUP BY window_start, window_end, {k} % 2",
    "conditional": "SELECT CASE WHEN {v} > 1 THEN {s} ELSE 'none' END AS {o}, coalesce({v}, 0) * 2 AS {p} FROM {A} "
    "WHERE {s} IS NOT NULL AND {v} BETWEEN 0 AND 9",
    "lambda": "SELECT {k}, transform({g}, an_element -> concat(an_element, {s})) AS {o} FROM {A}",
}


class Running(ms.Process):
    """Numbers the rows of a key."""

    state = "seen BIGINT"

    def on_row(self, row: Any, state: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        state.seen = (state.seen or 0) + 1
        yield (row[0], state.seen)


Make = Callable[[Stream, Stream, Mapping[str, str]], Stream]
_PATTERN = ms.pattern().then("m_", "TRUE").then("n_", "TRUE").within("1 hour")
STREAMS: dict[str, Make] = {
    "rows": lambda a, b, n: a,
    "where": lambda a, b, n: a.where(col(n["v"]) > 1),
    "renamed": lambda a, b, n: a.select(plain_k=col(n["k"]), plain_s=col(n["s"]), plain_t=col(n["t"])),
    "renamed_group": lambda a, b, n: (
        a.select(plain_k=col(n["k"]), plain_v=col(n["v"])).key_by("plain_k").aggregate(n=ms.sum("plain_v"))
    ),
    "with_columns": lambda a, b, n: a.with_columns(**{n["o"]: col(n["v"]) * 2}),
    "replaced": lambda a, b, n: a.with_columns(**{n["v"]: col(n["v"]) + 1}),
    "flat_map": lambda a, b, n: a._flattened(n["o"], col(n["g"])),
    "union": lambda a, b, n: b.union(b.where(col(n["v"]) > 1)),
    "merge": lambda a, b, n: ms.merge(b, b.where(col(n["v"]) > 1)),
    "distinct": lambda a, b, n: b.distinct(),
    "top": lambda a, b, n: b.top(3, col(n["u"]), col(n["v"]), rank=n["o"]),
    "top_by": lambda a, b, n: b.key_by(col(n["k"])).top(1, col(n["v"]), col(n["u"])),
    "over": lambda a, b, n: b.key_by(col(n["s"])).over(col(n["u"]), **{n["o"]: ms.lag(col(n["v"])), n["p"]: ms.rank()}),
    "group": lambda a, b, n: a.key_by(col(n["k"])).aggregate(
        **{n["o"]: ms.count(), n["p"]: ms.avg(col(n["v"])), "last_": ms.last(col(n["s"]))}
    ),
    "group_twice": lambda a, b, n: (
        a.key_by(col(n["k"]))
        .aggregate(**{n["o"]: ms.max(col(n["v"]))})
        .key_by(col(n["o"]))
        .aggregate(**{n["p"]: ms.count()})
    ),
    "group_hidden": lambda a, b, n: (
        a.key_by(col(n["k"])).aggregate(**{n["o"]: ms.count()}).select(col(n["o"])).where(col(n["o"]) > 1)
    ),
    "moments": lambda a, b, n: a.key_by(col(n["k"])).aggregate(
        **{n["o"]: ms.stddev(col(n["v"])), n["p"]: ms.count_distinct(col(n["s"]))}
    ),
    "window": lambda a, b, n: (
        a.key_by(col(n["k"])).window(ms.tumbling("10 seconds")).aggregate(**{n["o"]: ms.sum(col(n["v"]))})
    ),
    "window_again": lambda a, b, n: (
        a.key_by(col(n["k"]))
        .window(ms.tumbling("5 seconds"))
        .aggregate(**{n["o"]: ms.sum(col(n["v"]))})
        .select(col(n["k"]), col(n["o"]), ended="window_end")
        .key_by(col(n["k"]))
        .window(ms.hopping("20 seconds", "10 seconds"))
        .aggregate(**{n["p"]: ms.sum(col(n["o"]))})
    ),
    "session": lambda a, b, n: (
        a.key_by(col(n["k"])).window(ms.session("3 seconds")).aggregate(**{n["o"]: ms.collect(col(n["v"]))})
    ),
    "count_window": lambda a, b, n: (
        a.key_by(col(n["k"])).window(ms.count_window(2)).aggregate(**{n["o"]: ms.first(col(n["v"]))})
    ),
    "panes": lambda a, b, n: (
        a.key_by(col(n["k"]))
        .window(ms.tumbling("10 seconds"), trigger=ms.on_close(), lateness="5 seconds", panes="1 hour")
        .aggregate(**{n["o"]: ms.sum(col(n["v"]))})
    ),
    "join": lambda a, b, n: a.join(b, on={n["k"]: col(n["k"])}),
    "join_one": lambda a, b, n: a.join(b, on=n["k"], how="left"),
    "join_where": lambda a, b, n: a.join(b, on=n["k"], where=col(n["v"]) > 1, how="full"),
    "within": lambda a, b, n: a.join(b, on=n["k"], within="2 seconds", how="left"),
    "semi": lambda a, b, n: a.join(b, on=n["k"], how="semi"),
    "anti": lambda a, b, n: a.join(b, on=n["k"], how="anti"),
    "as_of": lambda a, b, n: a.join_as_of(b, on=n["k"]),
    "intersect": lambda a, b, n: b.intersect(b.where(col(n["v"]) > 1)),
    "subtract": lambda a, b, n: b.subtract(b.where(col(n["v"]) > 1)),
    "iterate": lambda a, b, n: b.iterate(lambda r: r.where(col(n["v"]) > 1)),
    "settled": lambda a, b, n: (
        a.key_by(col(n["k"])).window(ms.tumbling("10 seconds")).aggregate(**{n["o"]: ms.count()}).settled("window_end")
    ),
    "deduplicate": lambda a, b, n: b.deduplicate(n["k"]),
    "deduplicate_within": lambda a, b, n: b.deduplicate(n["k"], within="10 seconds"),
    "process": lambda a, b, n: a.key_by(col(n["k"])).process(Running(), schema="key BIGINT, number BIGINT"),
    "process_named": lambda a, b, n: a.key_by(col(n["k"])).process(
        Running(), schema=f"`{n['o']}` BIGINT, `{n['p']}` BIGINT", ordered=True
    ),
    "match": lambda a, b, n: a.key_by(col(n["k"])).match(
        _PATTERN, **{n["o"]: f"m_.`{n['v']}`", n["p"]: f"n_.`{n['v']}`"}
    ),
    "match_all": lambda a, b, n: b.match(_PATTERN, **{"rows": "all", n["o"]: "count(m_.*)"}),
}
"""Streams that are made in Python, of two sources."""


@dataclass
class Given:
    """What queries gave, by their plain names; and those that were refused, with the reason."""

    rows: dict[str, Counter[Any]] = field(default_factory=dict)
    changes: dict[str, Counter[Any]] = field(default_factory=dict)
    records: dict[str, Counter[Any]] = field(default_factory=dict)
    columns: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def written(template: str, names: Mapping[str, str]) -> str:
    """A statement with names put in, in backquotes."""
    plain = template.replace("{s!s}", names["s"].replace("\\", "\\\\").replace("'", "\\'"))
    return plain.format_map({role: f"`{name}`" for role, name in names.items()})


def records(names: Mapping[str, str]) -> dict[str, list[list[dict[str, Any]]]]:
    """Records by topic, in three epochs."""
    k, v, s, g, t, u = (names[c] for c in COLUMNS)
    a = [(1, 1, "p", 1), (1, 2, "q", 2), (2, 3, "p", 3), (3, None, None, 4), (1, 5, "r", 11), (2, 1, "q", 12),
         (None, 2, "p", 13), (2, 4, "p", 14), (1, 3, "q", 31), (3, 3, "s", 32), (4, 4, "t", 33)]  # fmt: skip
    b = [(1, 2, "p", 1), (2, 3, "p", 2), (3, 1, "z", 12), (5, 5, "q", 13), (1, 4, "q", 30), (2, None, None, 34)]
    c = [(1, 5, "I", 1), (2, 3, "I", 2), (1, 7, "U", 3), (2, 0, "D", 4), (3, 1, "I", 12), (4, 1, "I", 40)]

    def at(second: int) -> str:
        return f"2026-01-01T00:00:{second:02d}Z"

    rows_a = [{k: kk, v: vv, s: ss, g: ["m", "n"][: second % 3], t: at(second)} for kk, vv, ss, second in a]
    rows_b = [{k: kk, v: vv, s: ss, u: at(second)} for kk, vv, ss, second in b]
    rows_c = [{k: kk, v: vv, s: ss, t: at(second)} for kk, vv, ss, second in c]
    return {
        "topic_a": [rows_a[:4], rows_a[4:8], rows_a[8:]],
        "topic_b": [rows_b[:2], rows_b[2:4], rows_b[4:]],
        "topic_c": [rows_c[:3], rows_c[3:5], rows_c[5:]],
    }


def _plain(value: Any) -> Any:
    return tuple(_plain(v) for v in value) if isinstance(value, list | tuple) else value


def _bag(rows: Any) -> Counter[Any]:
    return Counter(tuple(_plain(v) for v in row) for row in rows)


def given(folder: Path, names: Mapping[str, str], queries: Mapping[str, str] = QUERIES) -> Given:
    """Define and run all queries with these names."""
    found = Given()
    catalog = Catalog()
    views: dict[str, str] = {}
    _define(catalog, [written(s, names) for s in SOURCES.values()])
    for query, template in queries.items():
        view = names["V"] if query == "group" else f"view_{query}"
        sql = written(template, names)
        trial = catalog.copy()
        try:
            sink = f"CREATE SINK sink_{query} FROM `{view}` INTO LOG('out_{query}')"
            _define(trial, [f"CREATE VIEW `{view}` AS {sql}", sink])
        except MillstreamError as error:
            found.refused[query] = f"{type(error).__name__}: {error.message}"
            continue
        catalog, views[query] = trial, view
    flow = ms.Flow("tested")
    binder = Binder(flow, catalog, {})
    for entry in catalog.entries.values():
        binder.definition(entry)
    return _performed(flow, folder, names, views, found)


def given_python(folder: Path, names: Mapping[str, str], queries: Mapping[str, Make] | None = None) -> Given:
    """The same for streams that are made in Python."""
    found, views = Given(), {}
    flow = ms.Flow("tested")
    sources = _sources(flow, names)
    for query, make in (queries or STREAMS).items():
        view = f"view_{query}"
        try:
            trial = ms.Flow("trial")
            make(*_sources(trial, names), names).view(view)
            plan(trial)
        except MillstreamError as error:
            found.refused[query] = f"{type(error).__name__}: {error.message}"
            continue
        make(*sources, names).view(view, changes_to=ms.log(f"out_{query}"))
        views[query] = view
    return _performed(flow, folder, names, views, found)


def _sources(flow: ms.Flow, names: Mapping[str, str]) -> tuple[Stream, Stream]:
    k, v, s, g, t, u = (names[c] for c in COLUMNS)
    first = [(k, pa.int64()), (v, pa.int64()), (s, pa.string()), (g, pa.list_(pa.string())), (t, TIMESTAMP)]
    second = [(k, pa.int64()), (v, pa.int64()), (s, pa.string()), (u, TIMESTAMP)]
    return (
        flow.source("a", ms.log("topic_a"), schema=pa.schema(first), event_time=t, lateness="5 seconds"),
        flow.source("b", ms.log("topic_b"), schema=pa.schema(second), event_time=u, lateness="5 seconds"),
    )


def _performed(flow: ms.Flow, folder: Path, names: Mapping[str, str], views: Mapping[str, str], found: Given) -> Given:
    """Run a flow over the records, and see what its views hold, what changed and what its sinks got."""
    home = Home(folder)
    for source in flow.sources:
        home.topic(source.connector.topic, schema=source.schema)  # type: ignore[union-attr]
    home.close()
    with QueryScript(flow, folder, start="2026-01-01T00:01:00Z") as script:
        sent = records(names)
        topics = [s.connector.topic for s in flow.sources]  # type: ignore[union-attr]
        for epoch in range(3):
            for topic in topics:
                script.home.topic(topic).append(sent[topic][epoch])
            script.tick()
        for query, view in views.items():
            shown = script.home.query(f"SELECT * FROM `{view}`")
            found.columns[query] = shown.columns
            found.rows[query] = _bag(r.values() for r in shown.to_dicts())
            found.changes[query] = _bag((op, *row.values()) for op, row in script.changes(view))
            found.records[query] = _bag(r.values() for r in script.written(f"out_{query}"))
    return found


def _define(catalog: Catalog, statements: list[str]) -> None:
    for statement in statements:
        (entry,) = statement_parser.read(Text(statement), functions=catalog.functions)
        catalog.check_free(entry)  # type: ignore[arg-type]
        catalog.add(entry)  # type: ignore[arg-type]
        trial = ms.Flow("trial")
        if Binder(trial, catalog, {}).definition(entry) is not None:  # type: ignore[arg-type]
            plan(trial)
