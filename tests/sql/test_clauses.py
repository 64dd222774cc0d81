"""Clauses of a SELECT that people meet first: what a view and a question make of them, and what they are told."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import MillstreamError
from millstream.model.functions import AGGREGATE, SCALAR
from millstream.model.types.schema import ddl_type
from millstream.sql.catalog import schema_of
from millstream.sql.dialects.function_names import FORMS
from millstream.sql.parse import queries
from millstream.sql.parse.text import Text, tokens
from millstream.sql.query import clauses
from tests.sql import kit
from tests.unit.live.world import Spoken, opened

TABLES = (
    "CREATE TABLE t (a INT, b INT, s STRING)",
    "CREATE TABLE u (a INT, c INT, tags ARRAY<STRING>)",
    "INSERT INTO t VALUES (1, 2, 'p'), (1, 3, 'q'), (2, 5, 'p'), (NULL, 1, 'z')",
    "INSERT INTO u VALUES (1, 7, array('g', 'h')), (3, 3, array())",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoken]:
    with opened(tmp_path_factory.mktemp("clauses") / "home") as found:
        found.say(*TABLES)
        yield found


DAYS = [(date(2026, 1, 30),), (date(2026, 1, 31),)]


def asked(world: Spoken, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a question, sorted."""
    return sorted((tuple(r.values()) for r in world.rows(sql)), key=repr)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT a FROM t ORDER BY a NULLS LAST FETCH FIRST 1 ROWS WITH TIES", [(1,), (1,)]),
        ("SELECT a FROM t ORDER BY a NULLS LAST OFFSET 1 ROWS FETCH NEXT 1 ROWS WITH TIES", [(1,)]),
        ("SELECT b FROM t ORDER BY b LIMIT 50 PERCENT", [(1,), (2,)]),
        ("SELECT b FROM t QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) > 1", [(3,)]),
        ("SELECT DISTINCT ON (a) b FROM t ORDER BY a, b DESC", [(1,), (3,), (5,)]),
        ("SELECT a, c FROM t NATURAL JOIN u", [(1, 7), (1, 7)]),
        ("SELECT * EXCEPT (a) REPLACE (b + 1 AS b) RENAME (s AS z) FROM t WHERE a = 2", [(6, "p")]),
        ("SELECT * FROM generate_series(1, 3) AS g(i)", [(1,), (2,), (3,)]),
        ("SELECT * FROM generate_series(3, 1)", []),
        ("SELECT g FROM generate_series(3, 1, -2) g", [(1,), (3,)]),
        ("SELECT id FROM range(2)", [(0,), (1,)]),
        ("SELECT i FROM range(4, 1, -2) AS r(i)", [(2,), (4,)]),
        ("SELECT b, i FROM t, range(t.a) AS r(i)", [(2, 0), (3, 0), (5, 0), (5, 1)]),
        ("SELECT d FROM generate_series(DATE '2026-01-30', DATE '2026-01-31', INTERVAL '1' DAY) AS g(d)", DAYS),
        ("SELECT c, tag FROM u LATERAL VIEW explode(tags) w AS tag", [(7, "g"), (7, "h")]),
        ("SELECT c, tag FROM u LATERAL VIEW OUTER explode(tags) w AS tag", [(3, None), (7, "g"), (7, "h")]),
        ("SELECT c, tag, n FROM u, unnest(tags) WITH ORDINALITY AS w(tag, n)", [(7, "g", 1), (7, "h", 2)]),
        ("SELECT * FROM t PIVOT (sum(b) FOR s IN ('p', 'q' AS other)) WHERE a = 1", [(1, 2, 3)]),
        ("SELECT s, rank() OVER (ORDER BY sum(b)) AS r FROM t WHERE a = 1 GROUP BY ALL", [("p", 1), ("q", 2)]),
        ("SELECT dayofweek(DATE '2026-03-05'), date_part('dow', DATE '2026-03-05')", [(5, 5)]),
        ("SELECT trunc(-1.7D), trunc(2.567D, 2), date_trunc('month', DATE '2026-03-05') IS NULL", [(-1, 2.56, False)]),
        ("SELECT percentile(b, 0.5) FROM t WHERE a = 1", [(2.5,)]),
        ("SELECT t.a FROM t GROUP BY t.a ORDER BY sum(t.b) DESC, t.a LIMIT 1", [(1,)]),
        ("SELECT t.a AS x FROM t GROUP BY t.a ORDER BY max(t.s) = 'p', x DESC, t.a + 1 LIMIT 1", [(1,)]),
        ("SELECT s FROM t ORDER BY (SELECT max(c) FROM u), b LIMIT 1", [("z",)]),
        ("SELECT *, s AS z FROM t ORDER BY (SELECT max(c) FROM u), t.b DESC LIMIT 1", [(2, 5, "p", "p")]),
        ("SELECT b, s AS order_by_1 FROM t ORDER BY (SELECT max(c) FROM u), 1 LIMIT 1", [(1, "z")]),
        ("""SELECT '{"2024":"z"}' ->> '2024', '{"a.b":1}' ->> 'a.b', '["p","q"]' ->> 1""", [("z", "1", "q")]),
        ("""SELECT '{"0":"z"}' #>> '{0}', json_extract_path_text('{"a":["p","q"]}', 'a', '1')""", [("z", "q")]),
        ("VALUES (1, 'x')", [(1, "x")]),
        ("SELECT col2 FROM VALUES (1, 'x'), (2, 'y')", [("x",), ("y",)]),
    ],
)
def test_a_question_keeps_every_clause(world: Spoken, sql: str, rows: list[tuple[Any, ...]]) -> None:
    assert asked(world, sql) == rows


def told(query: str) -> str:
    """What is said against a view."""
    catalog = kit.defined(";".join(t for t in TABLES if t.startswith("CREATE")), kit.world())
    with pytest.raises(MillstreamError) as error:
        kit.view_plan(query, catalog)
    return str(error.value)


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        ("SELECT * FROM bids x JOIN clicks y ON x.bidder = y.bidder", ("`bidder`", "`ts`", "EXCEPT (bidder, ts)")),
        ("SELECT * EXCEPT (nope) FROM bids", ("no column `nope`", "there are: auction")),
        ("SELECT * REPLACE (1 AS nope) FROM bids", ("no column `nope`",)),
        ("SELECT z.* FROM bids x", ("nothing called `z` in FROM", "there are: x")),
        ("SELECT * FROM bids NATURAL JOIN readings", ("no column in common", "CROSS JOIN")),
        ("SELECT DISTINCT ON (auction) price FROM bids", ("DISTINCT ON without ORDER BY", "add ORDER BY")),
        ("SELECT price FROM bids LIMIT 2 OFFSET 1", ("without ORDER BY", "add ORDER BY")),
        ("SELECT price FROM bids ORDER BY price LIMIT 50 PERCENT", ("PERCENT", "percent_rank()")),
        ("SELECT price FROM bids ORDER BY price LIMIT 1 OFFSET -1", ("OFFSET needs a whole number",)),
        ("SELECT sum(price ORDER BY ts) AS x FROM bids GROUP BY auction", ("has no order", "array_agg(x ORDER BY y)")),
        ("SELECT stddev(DISTINCT price) AS x FROM bids GROUP BY auction", ("DISTINCT in stddev", "SELECT DISTINCT")),
        ("SELECT first(price ORDER BY ts) AS x FROM bids GROUP BY auction", ("min_by(x, y)",)),
        ("SELECT percentile_cont(0.5) AS x FROM bids GROUP BY auction", ("WITHIN GROUP (ORDER BY x)",)),
        (
            "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY price DESC) AS x FROM bids GROUP BY auction",
            ("DESC in", "ORDER BY -x"),
        ),
        ("SELECT rank(1) WITHIN GROUP (ORDER BY price) AS x FROM bids GROUP BY auction", ("mode() can precede",)),
        ("SELECT string_agg(channel, channel) AS x FROM bids GROUP BY auction", ("separator", "must be a string")),
        ("SELECT rank() FILTER (WHERE price > 1) OVER (ORDER BY ts) AS x FROM bids", ("FILTER on rank", "count, sum")),
        ("SELECT sum(price) IGNORE NULLS OVER (ORDER BY ts) AS x FROM bids", ("IGNORE NULLS on sum", "lag, lead")),
        ("SELECT first_value(DISTINCT price) OVER (ORDER BY ts) AS x FROM bids", ("DISTINCT in first_value",)),
        ("SELECT stddev(price) OVER (ORDER BY ts) AS x FROM bids", ("`STDDEV(price)` OVER", "one of: row_number")),
        ("SELECT auction FROM bids WHERE rank() OVER (ORDER BY ts) = 1", ("SELECT and in QUALIFY",)),
        ("SELECT * FROM t PIVOT (sum(b) FOR s IN (SELECT s FROM t))", ("a stated list of values",)),
        ("SELECT * FROM t PIVOT (sum(b) FOR a IN (1, 2))", ("needs a name", "1 AS first")),
        ("SELECT * FROM t PIVOT (sum(b), count(*) FOR s IN ('p'))", ("several aggregates in PIVOT need names",)),
        ("SELECT * FROM t PIVOT (upper(s) FOR s IN ('p'))", ("is not an aggregate",)),
        ("SELECT age(ts, ts) AS x FROM bids", ("function `age`", "timestampdiff(DAY, a, b)")),
        ("SELECT regexp_replac(channel, 'a', 'b') AS x FROM bids", ("did you mean `regexp_replace`?",)),
        ("SELECT regexp_replace(channel, 'a', 'b', 'x') AS x FROM bids", ("the flags 'x'", "write 'g' or 'gi'")),
        ("SELECT EXTRACT(MILLISECONDS FROM ts) AS x FROM bids", ("MILLISECONDS", "unix_millis(ts)")),
        ("SELECT truncate(price, auction) AS x FROM bids", ("a whole number of digits",)),
        ("SELECT * FROM generate_series(1, 9000000)", ("more than 1,000,000",)),
        ("SELECT * FROM generate_series(1, 9, 0)", ("the step of a series is 0",)),
        ("SELECT * FROM bids, generate_series(1, 9, price) g", ("must be a constant",)),
        ("SELECT range(3) AS x FROM bids", ("`range` turns one row into several",)),
        ("SELECT * FROM (VALUES (1, 2), (3)) AS v", ("2 and 1 columns",)),
        ("SELECT b.auction, x FROM bids b LEFT JOIN UNNEST(b.tags) AS u(x) ON x = 'a'", ("LEFT JOIN ... ON true",)),
        ("SELECT * FROM bids, UNNEST(tags, tags) AS u(x)", ("UNNEST of several arrays", "arrays_zip")),
    ],
)
def test_what_is_refused_is_named_and_says_what_to_write(query: str, parts: tuple[str, ...]) -> None:
    message = told(query)
    for part in parts:
        assert part in message, message


CONSTANT = {
    "SELECT 1 AS x, upper('ab') AS y": [(1, "AB")],
    "SELECT count(*) AS n": [(1,)],
    "SELECT 1 AS x WHERE 1 > 2": [],
    "VALUES (1, 'a'), (2, NULL)": [(1, "a"), (2, None)],
    "SELECT x, count(*) AS n FROM (VALUES (1), (2), (2)) AS v(x) GROUP BY x": [(1, 1), (2, 2)],
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT n FROM r": [
        (1,),
        (2,),
        (3,),
        (4,),
    ],
    "SELECT * FROM range(3, 9, 3)": [(3,), (6,)],
    "SELECT tag, n FROM unnest(array('g', 'h')) WITH ORDINALITY AS w(tag, n)": [("g", 1), ("h", 2)],
}


def test_a_view_of_constants_has_its_rows_from_the_first_epoch_on(world: Spoken) -> None:
    for number, (sql, rows) in enumerate(CONSTANT.items()):
        world.say(f"CREATE VIEW constant_{number} AS {sql}")
        world.perform(f"constant_{number}")
        assert asked(world, f"SELECT * FROM constant_{number}") == rows, sql
        world.perform(f"constant_{number}")  # and no more of them later
        assert asked(world, f"SELECT * FROM constant_{number}") == rows, sql


AGGREGATES = (
    "first(s) FILTER (WHERE b = 5) AS f",
    "last(s) FILTER (WHERE b = 5) AS l",
    "any_value(a) IGNORE NULLS AS i",
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY b) AS d",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY b) AS c",
    "mode() WITHIN GROUP (ORDER BY s) AS m",
    "array_agg(s ORDER BY b DESC) AS r",
    "array_agg(DISTINCT s ORDER BY s) AS o",
    "listagg(b, '+') WITHIN GROUP (ORDER BY b) AS t",
    "sum(DISTINCT CAST(a AS DECIMAL(10, 2))) AS e",
    "sum(DISTINCT CAST(a AS DOUBLE)) AS g",
)


def test_aggregates_of_some_rows_and_in_an_order_of_their_own(tmp_path: Path) -> None:
    with opened(tmp_path / "home") as world:
        world.say(*TABLES)
        world.say(f"CREATE VIEW v AS SELECT a IS NULL AS n, {', '.join(AGGREGATES)} FROM t GROUP BY a IS NULL")
        world.perform("v")
        first, second = world.rows("SELECT * EXCEPT (n) FROM v ORDER BY n")
        assert (first["f"], first["l"], first["d"], first["c"], first["m"]) == ("p", "p", 3, 3, "p")
        assert (first["r"], first["o"], first["t"]) == (["p", "q", "p"], ["p", "q"], "2+3+5")
        assert (first["e"], first["g"], second["e"], second["f"]) == (3, 3.0, None, None)
        world.say("DELETE FROM t WHERE b = 5", "UPDATE t SET s = 'a' WHERE b = 3")
        world.perform("v")
        first = world.rows("SELECT * FROM v ORDER BY n")[0]
        assert (first["f"], first["i"], first["d"], first["c"], first["r"]) == (None, 1, 2, 2.5, ["a", "p"])


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("ROW<x INT, y STRING>", "STRUCT<`x`: INT, `y`: STRING>"),
        ("ROW(x INT, y DECIMAL(10, 2))", "STRUCT<`x`: INT, `y`: DECIMAL(10, 2)>"),
        ("ARRAY<ROW<x ROW(y INT)>>", "ARRAY<STRUCT<`x`: STRUCT<`y`: INT>>>"),
    ],
)
def test_types_of_other_systems(written: str, meant: str) -> None:
    catalog = kit.defined(f"CREATE TABLE other (a {written})", kit.world())
    schema = schema_of(catalog, catalog.get("other"))  # type: ignore[arg-type]
    assert schema is not None
    assert ddl_type(schema.fields[0].type) == meant


@pytest.mark.parametrize(
    ("written", "instead"),
    [("INTERVAL YEAR TO MONTH", "write INT"), ("INTERVAL MONTH", "write INT"), ("UUID", "write STRING")],
)
def test_a_type_that_is_not_there_says_what_to_write(written: str, instead: str) -> None:
    with pytest.raises(MillstreamError, match=instead):
        kit.defined(f"CREATE TABLE other (a {written})", kit.world())


def test_a_constant_row_meets_rows_that_come_go_and_change(world: Spoken) -> None:
    query = (
        "SELECT v.name, count(t.a) AS n FROM (VALUES (1, 'one'), (2, 'two'), (4, 'four')) AS v(id, name) LEFT JOIN t "
    )
    world.say(f"CREATE VIEW named WITH (tables = 'live') AS {query} ON t.a = v.id GROUP BY v.name")
    for statement in (
        "INSERT INTO t VALUES (4, 4, 'x'), (1, 1, 'y')",
        "UPDATE t SET a = 2 WHERE s = 'y'",
        "DELETE FROM t WHERE s IN ('x', 'y')",
    ):
        world.say(statement)
        world.perform("named")
        assert asked(world, "SELECT * FROM named") == asked(world, f"{query} ON t.a = v.id GROUP BY v.name")


def test_no_form_replaces_a_function_of_spark() -> None:
    """The text of an expression is part of what a view is known by."""
    assert not set(FORMS) & (SCALAR | AGGREGATE)


@pytest.mark.parametrize("call", ["months_between(DATE '2026-01-02', DATE '2026-01-01')", "skewness(1)"])
def test_a_question_refuses_what_the_store_computes_otherwise(world: Spoken, call: str) -> None:
    with pytest.raises(MillstreamError, match="would compute something else"):
        world.rows(f"SELECT {call} AS x")


def test_a_question_refuses_ties_that_it_cannot_tell(world: Spoken) -> None:
    with pytest.raises(MillstreamError, match="WITH TIES needs ORDER BY"):
        world.rows("SELECT DISTINCT a FROM t ORDER BY a FETCH FIRST 1 ROWS WITH TIES")


def test_a_question_to_a_history_keeps_its_ties() -> None:
    text = Text("SELECT a FROM HISTORY OF t ORDER BY a FETCH FIRST 2 ROWS WITH TIES")
    query = queries.parse(text, tuple(tokens(text)))
    clauses.without_ties(query)
    assert "RANK() OVER (ORDER BY a)" in query.sql(dialect="spark")
