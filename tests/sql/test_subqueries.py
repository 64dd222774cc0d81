"""Subqueries everywhere in a query, over tables that change: what views show is what DuckDB computes anew."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.seeds import run_seed
from tests.sql.kit import told, view_plan
from tests.sql.live_tables import LiveTables

TABLES = {"t": "a INT, b INT, d DOUBLE", "u": "x INT, y INT, z INT", "w": "k INT, z INT"}
QUERIES = [
    line for line in (Path(__file__).parent / "subqueries.sql").read_text().splitlines() if not line.startswith("--")
]


def _changes(rng: random.Random, rounds: int) -> list[list[str]]:
    """Inserts, updates and deletes with few different values, NULLs among them, until no row is left."""

    def value() -> str:
        return rng.choice(["NULL", "0", "1", "2", "3", "4"])

    def rows(columns: str) -> str:
        width = len(columns.split(","))
        return ", ".join("(" + ", ".join(value() for _ in range(width)) + ")" for _ in range(rng.randint(1, 4)))

    found: list[list[str]] = [[]]
    for _ in range(rounds):
        found.append([f"INSERT INTO {name} VALUES {rows(TABLES[name])}" for name in TABLES if rng.random() < 0.8])
        update = f"UPDATE t SET b = {value()}, d = {value()} WHERE a = {value()}"
        delete = f"DELETE FROM {rng.choice(['u', 'w'])} WHERE z = {value()}"
        found.append([update, delete, rng.choice(["DELETE FROM u WHERE x IS NULL", "UPDATE u SET x = 2 WHERE y = 3"])])
    return [*found, ["DELETE FROM u"], ["DELETE FROM t", "DELETE FROM w"]]


def _follow(path: Path, seed: int, rounds: int, stride: int = 1) -> None:
    print(f"seed {seed}")  # noqa: T201
    live = LiveTables(path, TABLES, {f"v{i}": query for i, query in enumerate(QUERIES[::stride])})
    try:
        for number, changes in enumerate(_changes(random.Random(seed), rounds)):
            live.change(*changes)
            live.tick()
            wrong = {live.views[name]: rows for name, rows in live.differences().items()}
            assert not wrong, (seed, number, wrong)
    finally:
        live.close()


def test_subqueries_are_right_after_every_change(tmp_path: Path) -> None:
    _follow(tmp_path / "home", 5, 1, stride=3)  # all of them in the slow test


@pytest.mark.slow
@pytest.mark.parametrize("share", range(10))
def test_subqueries_are_right_after_many_changes(tmp_path: Path, share: int) -> None:
    _follow(tmp_path / "home", 10 * run_seed() + share, 8)


@pytest.mark.parametrize(
    ("condition", "how"),
    [
        ("auction IN (SELECT bidder FROM clicks)", "semi"),
        ("EXISTS (SELECT 1 FROM clicks c JOIN hot ON hot.auction = c.bidder WHERE c.bidder = bids.bidder)", "semi"),
        ("NOT EXISTS (SELECT 1 FROM clicks c WHERE c.bidder = bids.bidder AND c.ts > bids.ts)", "anti"),
        ("auction NOT IN (SELECT bidder FROM clicks)", "anti"),
        ("(auction, price) IN (SELECT auction, n FROM hot)", "semi"),
    ],
)
def test_conditions_alone_are_semi_joins_and_anti_joins(condition: str, how: str) -> None:
    assert f"{how} join" in told(view_plan(f"SELECT auction FROM bids WHERE {condition}"))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT auction, (SELECT count(*) FROM clicks c WHERE c.bidder = b.bidder) AS n FROM bids b",
        "SELECT auction FROM bids b WHERE price > (SELECT avg(n) FROM hot h WHERE h.auction = b.auction)",
    ],
)
def test_equal_columns_need_no_list_of_the_rows_around(query: str) -> None:
    explained = told(view_plan(query))
    assert "left join" in explained
    assert "distinct" not in explained.lower()


def test_the_columns_of_a_subquery_are_not_among_all_columns() -> None:
    planned = view_plan("SELECT * FROM hot WHERE n > (SELECT max(price) AS most FROM items)")
    assert planned.views[-1].columns == ("auction", "n")


@pytest.mark.parametrize(
    ("fingerprint", "query"),
    [
        (
            "50d350b7753fecaf",
            "SELECT auction, (SELECT count(*) FROM clicks c WHERE c.bidder = b.bidder) AS n FROM bids b",
        ),
        ("7dc978de903c86db", "SELECT auction, (SELECT max(h.n) FROM hot h WHERE h.n < b.price) AS n FROM bids b"),
        ("ea0df5d5edf38385", "SELECT auction FROM bids WHERE auction NOT IN (SELECT bidder FROM clicks)"),
        (
            "d34db6a52b367b6a",
            "SELECT auction FROM bids b WHERE price > 5 OR EXISTS (SELECT 1 FROM hot h WHERE h.auction = b.auction)",
        ),
        ("c8bd6ed758d1511b", "SELECT auction FROM bids b WHERE price > (SELECT avg(price) FROM bids)"),
        (
            "f0d79d943f1c2d8d",
            "SELECT auction FROM bids b WHERE auction IN (SELECT id FROM items) "
            "AND EXISTS (SELECT 1 FROM clicks c WHERE c.bidder = b.bidder)",
        ),
        (
            "94bd07bdaca06b08",
            "SELECT auction, count(*) AS n FROM bids GROUP BY auction HAVING count(*) > (SELECT avg(n) FROM hot)",
        ),
    ],
)
def test_the_plan_of_a_view_stays_the_one_that_its_state_is_from(fingerprint: str, query: str) -> None:
    assert view_plan(query).views[-1].fingerprint == fingerprint
