"""Statements that must never get to Spark or DuckDB: refused.txt, each of them in every place where it could stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import millstream as ms
from millstream.engine.spark import session as spark_session
from millstream.errors import DefinitionError, MillstreamError, PlanError, QueryError
from millstream.home import Home
from millstream.live.session import Session
from tests.sql import kit

LIBRARY = re.compile(
    r"sqlglot|duckdb|pyarrow|polars|py4j|pyspark|orjson|Arrow[A-Z]|[A-Z]\w+Exception\b|[A-Z]\w+ Error: "
    r"|\b(Parse|Token|Attribute|Type|Key|Index|Value|Recursion|Compute)Error\b|site-packages|click/core"
)
"""What no message may show: names of libraries and of their classes, and files of theirs."""

REFUSALS = (DefinitionError, PlanError, QueryError)
"""The errors of definitions, of plans (Unsupported among them) and of questions (StatementRefused among them)."""


def _corpus() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    into: list[str] = []
    for line in (Path(__file__).parent / "refused.txt").read_text(encoding="utf-8").splitlines():
        if re.fullmatch(r"\[\w+\]", line):
            into = found.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            line = re.sub(r"\\u([0-9a-f]{4})", lambda m: chr(int(m[1], 16)), line)
            into.append(line.replace("\\n", "\n"))
    return found


CORPUS = _corpus()
EXPRESSIONS = (
    "SELECT {} AS x FROM hot",
    "SELECT n FROM hot WHERE {} IS NOT NULL",
    "SELECT max({}) AS x FROM hot",
    "SELECT n FROM hot GROUP BY n, {}",
    "SELECT n, count(*) AS c FROM hot GROUP BY n HAVING max({}) > 1",
    "SELECT n FROM hot ORDER BY {}",
    "SELECT n FROM hot LIMIT {}",
    "SELECT row_number() OVER (PARTITION BY {} ORDER BY n) AS r FROM hot",
    "SELECT h.n FROM hot AS h JOIN items AS i ON h.n = {}",
    "SELECT n FROM hot UNION ALL SELECT {} AS n FROM hot",
    "SELECT (SELECT max({}) FROM items) AS x FROM hot",
    "WITH x AS (SELECT {} AS y FROM hot) SELECT y FROM x",
    "SELECT t FROM hot LATERAL VIEW explode(array({})) e AS t",
    "SELECT * FROM VALUES ({}) AS t(a)",
    "VALUES ({})",
    "SELECT {} AS x FROM HISTORY OF bids",
    "SELECT auction FROM HISTORY OF bids WHERE {} IS NOT NULL",
    "EXPLAIN SELECT {} AS x FROM bids",
    "INSERT INTO items VALUES (1, {}, 2)",
    "INSERT INTO items VALUES (1, 'a', 2), (2, concat('x', {}), 2)",
    "INSERT INTO items SELECT 1, {}, 2 FROM hot",
    "INSERT INTO bids (auction) VALUES ({})",
    "INSERT INTO out SELECT {} AS x FROM bids",
    "INSERT INTO items VALUES (1, 'a', 2) ON CONFLICT (id) DO UPDATE SET name = {}",
    "MERGE INTO items USING hot ON items.id = {} WHEN MATCHED THEN DELETE",
    "MERGE INTO items USING hot ON items.id = hot.n WHEN MATCHED THEN UPDATE SET name = {}",
    "UPDATE items SET name = {} FROM hot WHERE items.id = hot.n",
    "UPDATE items SET name = {}",
    "UPDATE items SET price = price + 1, name = concat(name, {}) WHERE id = 1",
    "UPDATE items SET price = 1 WHERE {} IS NOT NULL",
    "DELETE FROM items WHERE id = 1 AND {} IS NOT NULL",
    "CREATE VIEW x AS SELECT {} AS x FROM bids",
    "CREATE VIEW x AS SELECT auction FROM bids WHERE {} IS NOT NULL",
    "CREATE VIEW x AS SELECT count(*) AS n FROM bids GROUP BY {}",
    "CREATE VIEW x AS SELECT max({}) AS m FROM bids GROUP BY auction",
    "CREATE VIEW x AS SELECT auction, count(*) FILTER (WHERE {} IS NOT NULL) AS n FROM bids GROUP BY auction",
    "CREATE VIEW x AS SELECT auction, count(*) AS n FROM bids GROUP BY auction HAVING {} IS NOT NULL",
    "CREATE VIEW x AS SELECT auction, count(*) AS n FROM bids GROUP BY auction, SESSION(ts, {})",
    "CREATE VIEW x AS SELECT auction FROM bids ORDER BY {} LIMIT 5",
    "CREATE VIEW x AS SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY ts) AS r FROM bids) "
    "WHERE r <= 2",
    "CREATE VIEW x AS SELECT b.auction, i.name FROM bids AS b JOIN items AS i ON i.id = {}",
    "CREATE VIEW x AS SELECT t FROM bids LATERAL VIEW explode(array({})) e AS t",
    "CREATE VIEW x AS WITH y AS (SELECT {} AS a FROM bids) SELECT a FROM y",
    "CREATE VIEW x AS SELECT a FROM (SELECT {} AS a FROM bids) WHERE a IS NOT NULL",
    "CREATE VIEW x AS SELECT channel FROM bids UNION ALL SELECT {} FROM bids",
    "CREATE VIEW x AS SELECT filter(tags, t -> t = {}) AS y FROM bids",
    "CREATE SINK x INTO LOG('x') AS SELECT {} AS x FROM bids",
    "CREATE SOURCE x (a INT, b AS {}) FROM LOG('x')",
)
RELATIONS = (
    "SELECT * FROM {}",
    "SELECT * FROM hot, {}",
    "SELECT * FROM hot JOIN {} ON true",
    "SELECT n FROM hot WHERE n IN (SELECT n FROM {})",
    "SELECT (SELECT count(*) FROM {}) AS x FROM hot",
    "SELECT n FROM hot UNION ALL SELECT * FROM {}",
    "WITH x AS (SELECT * FROM {}) SELECT * FROM x",
    "SELECT * FROM HISTORY OF {}",
    "SELECT * FROM HISTORY OF bids, {}",
    "SELECT auction FROM HISTORY OF bids WHERE auction IN (SELECT * FROM {})",
    "INSERT INTO items SELECT * FROM {}",
    "INSERT INTO items VALUES (1, (SELECT 'a' FROM {}), 1)",
    "INSERT INTO out SELECT * FROM {}",
    "UPDATE items SET name = (SELECT 'a' FROM {})",
    "DELETE FROM items WHERE id IN (SELECT 1 FROM {})",
    "DELETE FROM items USING {} WHERE true",
    "MERGE INTO items USING (SELECT * FROM {}) AS s ON true WHEN MATCHED THEN DELETE",
    "EXPLAIN SELECT * FROM {}",
    "CREATE VIEW x AS SELECT * FROM {}",
    "CREATE VIEW x AS SELECT auction FROM bids JOIN {} ON true",
    "CREATE VIEW x AS SELECT auction FROM bids UNION ALL SELECT * FROM {}",
    "CREATE VIEW x AS WITH y AS (SELECT * FROM {}) SELECT * FROM y",
    "CREATE VIEW x AS SELECT * FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' SECOND))",
    "CREATE VIEW x AS SELECT auction FROM bids WHERE EXISTS (SELECT 1 FROM {})",
    "CREATE SINK x INTO LOG('x') AS SELECT * FROM {}",
    "CREATE SINK x FROM {} INTO LOG('x')",
)
STATEMENTS = (
    "{}",
    "EXPLAIN {}",
    "CREATE VIEW x AS {}",
    "CREATE VIEW x AS SELECT * FROM ({})",
    "SELECT * FROM ({})",
    "INSERT INTO items {}",
    "WITH x AS ({}) SELECT * FROM x",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Home, Session]]:
    """A home with the definitions of kit.py, whose flows do not run, and a row in its table."""
    with ms.open(tmp_path_factory.mktemp("refused") / "home") as home:
        session = home.session(start=False)
        list(session.execute(kit.BIDS + kit.OTHERS + "; INSERT INTO items VALUES (1, 'violin', 5)"))
        yield home, session


@pytest.fixture
def refused(world: tuple[Home, Session], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says a statement, which must be refused while neither DuckDB nor Spark is asked anything."""
    home, session = world
    asked: list[str] = []

    def never(*given: object, **_: object) -> None:
        asked.append(str(given[0])[:200])
        msg = "the engine was asked"
        raise AssertionError(msg)

    monkeypatch.setattr(home.store, "query", never)
    monkeypatch.setattr(home.open_home, "store_table", never)
    monkeypatch.setattr(spark_session, "start", never)
    before = (list(session.deployment.catalog.entries), dict(session.settings))

    def say(sql: str) -> None:
        try:
            list(session.execute(sql))
        except REFUSALS as error:
            assert len(error.message) < 400
            for name in LIBRARY.finditer(str(error)):
                assert name[0].lower() in sql.lower(), str(error)
        except AssertionError:
            pytest.fail(f"the engine was asked {asked[-1]!r} by {sql!r}")
        except MillstreamError as error:
            pytest.fail(f"{type(error).__name__} for {sql!r}: {error}")
        else:
            pytest.fail(f"nobody refused {sql!r}")
        assert (list(session.deployment.catalog.entries), dict(session.settings)) == before, sql

    return say


def test_the_corpus_is_large_enough_to_mean_something() -> None:
    assert sum(len(set(c)) for c in CORPUS.values()) >= 300
    assert {len(c) == len(set(c)) for c in CORPUS.values()} == {True}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("turn", range(4))
def test_an_expression_is_refused_in_many_places(refused: Callable[[str], None], turn: int) -> None:
    """A quarter of all pairs: every expression in some ten places, every place with some thirty expressions."""
    for i, place in enumerate(EXPRESSIONS):
        for k, expression in enumerate(CORPUS["expressions"]):
            if (i + k) % 16 == turn:
                refused(place.replace("{}", expression))


@pytest.mark.slow
@pytest.mark.parametrize("place", EXPRESSIONS)
def test_an_expression_is_refused_wherever_it_stands(refused: Callable[[str], None], place: str) -> None:
    for expression in CORPUS["expressions"]:
        refused(place.replace("{}", expression))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("place", RELATIONS)
def test_rows_from_elsewhere_are_refused_wherever_they_stand(refused: Callable[[str], None], place: str) -> None:
    for relation in CORPUS["relations"]:
        refused(place.replace("{}", relation))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("place", STATEMENTS)
def test_a_statement_is_refused_alone_and_inside_others(refused: Callable[[str], None], place: str) -> None:
    for statement in CORPUS["statements"]:
        refused(place.replace("{}", statement))
