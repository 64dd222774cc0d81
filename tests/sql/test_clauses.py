"""Clauses of a SELECT that people meet first: what a view and a question make of them, and what they are told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import MillstreamError
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


def asked(world: Spoken, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a question, sorted."""
    return sorted((tuple(r.values()) for r in world.rows(sql)), key=repr)


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT a FROM t ORDER BY a NULLS LAST FETCH FIRST 1 ROWS WITH TIES", [(1,), (1,)]),
        ("SELECT a FROM t ORDER BY a NULLS LAST OFFSET 1 ROWS FETCH NEXT 1 ROWS WITH TIES", [(1,)]),
        ("SELECT b FROM t QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) > 1", [(3,)]),
        ("SELECT DISTINCT ON (a) b FROM t ORDER BY a, b DESC", [(1,), (3,), (5,)]),
        ("SELECT a, c FROM t NATURAL JOIN u", [(1, 7), (1, 7)]),
        ("SELECT * EXCEPT (a) REPLACE (b + 1 AS b) RENAME (s AS z) FROM t WHERE a = 2", [(6, "p")]),
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
    ],
)
def test_what_is_refused_is_named_and_says_what_to_write(query: str, parts: tuple[str, ...]) -> None:
    message = told(query)
    for part in parts:
        assert part in message, message


def test_a_question_refuses_what_the_store_would_ignore(world: Spoken) -> None:
    with pytest.raises(MillstreamError, match="PERCENT"):
        world.rows("SELECT a FROM t ORDER BY a LIMIT 50 PERCENT")
