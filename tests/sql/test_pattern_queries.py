"""The pattern queries that go with Nexmark, in SQL, against a plain search over the same bids; without Spark."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

import millstream as ms
from millstream.model.flow import Flow
from millstream.sql.bind.binder import Binder
from millstream.sql.catalog import Catalog
from millstream.sql.relations.relation import Relation
from tests.sql.kit import GENERATORS, defined
from tests.sql.test_relations import Script

BASE = 1_767_225_600
Bid = dict[str, Any]
Found = list[tuple[str, Bid]]
_SOURCE = "CREATE SOURCE bid (auction BIGINT, price BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM LOG('bid')"


def _mean(found: Found, name: str, bid: Bid) -> float:
    prices = [b["price"] for n, b in found if n == name] + [bid["price"]]
    return sum(prices) / len(prices)


def _falls(name: str, found: Found, bid: Bid) -> bool:
    if name == "a":
        return True
    before = found[-1][1]["price"]
    return bool(bid["price"] < before) if name == "b" else bool(bid["price"] > before)


def _cheap(name: str, found: Found, bid: Bid) -> bool:
    return name == "b" or _mean(found, "a", bid) < 15


def _drops(name: str, found: Found, bid: Bid) -> bool:
    if name == "a":
        return True
    gone = found[0][1]["price"] - bid["price"] > 8
    return gone if name == "c" else not gone


# pattern as (variable, least, most), what each row must be, WITHIN in seconds, and whether rows are skipped past
QUERIES: dict[str, tuple[str, list[tuple[str, int, int]], Callable[[str, Found, Bid], bool], int | None, bool]] = {
    "falling": (
        "MEASURES a.price AS first, LAST(b.price) AS low, c.price AS last ONE ROW PER MATCH "
        "AFTER MATCH SKIP PAST LAST ROW PATTERN (a b+ c) DEFINE b AS price < PREV(price), c AS price > PREV(price)",
        [("a", 1, 1), ("b", 1, 99), ("c", 1, 1)],
        _falls,
        None,
        True,
    ),
    "mean": (
        "MEASURES FIRST(a.price) AS first, LAST(a.price) AS low, b.price AS last ONE ROW PER MATCH "
        "AFTER MATCH SKIP PAST LAST ROW PATTERN (a+ b) DEFINE a AS AVG(a.price) < 15",
        [("a", 1, 99), ("b", 1, 1)],
        _cheap,
        None,
        True,
    ),
    "mean_next": (
        "MEASURES FIRST(a.price) AS first, LAST(a.price) AS low, b.price AS last ONE ROW PER MATCH "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (a+ b) DEFINE a AS AVG(a.price) < 15",
        [("a", 1, 99), ("b", 1, 1)],
        _cheap,
        None,
        False,
    ),
    "drop": (
        "MEASURES a.price AS first, LAST(b.price) AS low, c.price AS last ONE ROW PER MATCH "
        "AFTER MATCH SKIP PAST LAST ROW PATTERN (a b* c) WITHIN INTERVAL '5' SECOND "
        "DEFINE b AS NOT (a.price - b.price > 8), c AS a.price - c.price > 8",
        [("a", 1, 1), ("b", 0, 99), ("c", 1, 1)],
        _drops,
        5,
        True,
    ),
}


def _search(name: str, bids: list[Bid]) -> list[tuple[Any, ...]]:
    """All matches of the bids of one auction, which are in order, straight from the words of the standard."""
    _, pattern, holds, within, past = QUERIES[name]

    def tried(at: int, part: int, count: int, found: Found) -> Found | None:
        if part == len(pattern):
            return found
        variable, least, most = pattern[part]
        near = at < len(bids) and (within is None or not found or bids[at]["ts"] - found[0][1]["ts"] < within)
        if count < most and near and holds(variable, found, bids[at]):
            longer = tried(at + 1, part, count + 1, [*found, (variable, bids[at])])
            if longer is not None:
                return longer
        return tried(at, part + 1, 0, found) if count >= least else None

    matches, at = [], 0
    while at < len(bids):
        found = tried(at, 0, 0, [])
        if found is not None:
            low = [b["price"] for n, b in found if n == ("a" if name.startswith("mean") else "b")]
            matches.append((bids[at]["auction"], found[0][1]["price"], low[-1] if low else None, found[-1][1]["price"]))
        at += len(found) if found is not None and past else 1
    return matches


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(3))
def test_the_pattern_queries_give_what_a_plain_search_finds(seed: int) -> None:
    chance = random.Random(seed)
    flow = Flow("patterns")
    texts = {
        n: f"SELECT * FROM bid MATCH_RECOGNIZE (PARTITION BY auction ORDER BY ts {q[0]}) m" for n, q in QUERIES.items()
    }
    catalog = defined(";\n".join([_SOURCE, *(f"CREATE VIEW {n} AS {t}" for n, t in texts.items())]), Catalog())
    binder = Binder(flow, catalog, GENERATORS)
    schema = "auction BIGINT, price BIGINT, ts TIMESTAMP"
    stream = flow.source("bid", ms.memory(), schema=schema, event_time="ts", lateness="10 seconds")
    binder._bound["bid"] = Relation(stream, times=frozenset({"ts"})).called("bid")
    for name in QUERIES:
        binder.view(catalog.get(name))  # type: ignore[arg-type]
    bids = [
        {"auction": chance.randrange(3), "price": chance.randrange(30), "ts": BASE + second} for second in range(60)
    ]
    for second in range(60, 66):  # no run of cheap bids goes on behind these
        bids.append({"auction": second % 3, "price": 10_000, "ts": BASE + second})
    with tempfile.TemporaryDirectory() as folder, Script(flow, folder) as script:
        for start in range(0, len(bids), 10):
            some = bids[start : start + 10]
            script.send("bid", *chance.sample(some, len(some))).tick()
        for second in (100, 130):
            script.send("bid", {"auction": 9, "price": 0, "ts": BASE + second}).tick()
        script.tick()
        for name in QUERIES:
            expected = [m for a in range(3) for m in _search(name, [b for b in bids if b["auction"] == a])]
            found = [tuple(r.values()) for r in script.rows(name) if r["auction"] != 9]
            assert sorted(found, key=repr) == sorted(expected, key=repr), name
            assert found, name
