"""MATCH_RECOGNIZE: the same plan as the pattern in Python, and nothing in it that must not get to Spark."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import millstream as ms
from millstream.errors import DefinitionError, MillstreamError, PlanError, QueryError
from millstream.plan.planner import plan
from millstream.sql.parse import statement_parser
from millstream.sql.parse.script import split
from millstream.sql.parse.text import Text
from tests.sql import kit
from tests.sql.test_mutated import words
from tests.sql.test_refused import CORPUS

SCHEMA = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, tags ARRAY<STRING>, ts TIMESTAMP"
REFUSALS = (DefinitionError, PlanError, QueryError)

PAIRS: dict[str, tuple[str, Callable[[ms.Stream], ms.Stream]]] = {
    "a rise": (
        "PARTITION BY auction ORDER BY ts MEASURES a.price AS was, LAST(b.price) AS now "
        "PATTERN (a b+) DEFINE a AS price > 10, b AS price > PREV(price)",
        lambda s: s.key_by("auction").match(
            ms.pattern().then("a", "price > 10").then("b", "price > prev(price)", times=(1, None)),
            was="a.price",
            now="last(b.price)",
        ),
    ),
    "all that can be said": (
        "PARTITION BY auction ORDER BY ts MEASURES FINAL SUM(u.price) AS total, CLASSIFIER() AS kind "
        "ALL ROWS PER MATCH AFTER MATCH SKIP TO LAST b "
        "PATTERN (a (b | c d)?? e{2,3}?) WITHIN INTERVAL '10' MINUTE EMIT TIMEOUTS "
        "SUBSET u = (a, b) DEFINE b AS b.price < a.price, e AS LAST(e.price, 1) IS NULL OR e.price > 1",
        lambda s: s.key_by("auction").match(
            ms.pattern()
            .then("a")
            .then(
                ms.pattern().one_of(ms.pattern().then("b", "b.price < a.price"), ms.pattern().then("c").then("d")),
                optional=True,
                reluctant=True,
            )
            .then("e", "last(e.price, 1) IS NULL OR e.price > 1", times=(2, 3), reluctant=True)
            .within("10 minutes")
            .together("u", "a", "b")
            .skip_to_last("b"),
            rows="all",
            timeouts=True,
            total="final sum(u.price)",
            kind="classifier()",
        ),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_sql_and_python_make_one_plan(name: str) -> None:
    clause, build = PAIRS[name]
    catalog = kit.world()
    kit.defined(f"CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE ({clause})", catalog)
    said = plan(kit.flow_of(catalog, "v"))
    flow = ms.Flow("f")
    build(flow.source("bids", ms.log("bids"), schema=SCHEMA, event_time="ts", lateness="4 seconds")).view("v")
    written = plan(flow)
    assert said.view("v").fingerprint == written.view("v").fingerprint


@pytest.mark.parametrize("place", ["DEFINE b AS {} IS NOT NULL", "MEASURES {} AS m", "MEASURES SUM({}) AS m"])
def test_what_must_be_refused_is_refused_inside_too(place: str) -> None:
    before, after = ("", place) if place.startswith("DEFINE") else (place, "")
    for expression in CORPUS["expressions"]:
        clause = f"ORDER BY ts {before or 'MEASURES a.price AS p'} PATTERN (a b) {after}".replace("{}", expression)
        with pytest.raises(REFUSALS):
            kit.defined(f"CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE ({clause})", kit.world())


def test_broken_clauses_are_refused_in_our_own_words() -> None:
    whole = [f"CREATE VIEW v AS SELECT * FROM bids MATCH_RECOGNIZE ({clause}) AS m" for clause, _ in PAIRS.values()]
    odd = ["(", ")", "{", "}", "-", "|", "?", ",", "AS", "a", "1", "'", "PATTERN", "DEFINE", "WITHIN", "^", "PERMUTE"]
    taken = 0
    for number in range(400):
        chance = random.Random(number)
        given = list(words(chance.choice(whole)))
        for _ in range(chance.choice((1, 1, 2))):
            at = chance.randrange(len(given))
            given[at : at + chance.choice((0, 1, 1, 3))] = chance.choice(([], [chance.choice(odd)], [given[at - 1]]))
        try:
            for piece in split(Text(" ".join(given))):
                kit.bound(statement_parser.statement(piece, functions={}), kit.world())
            taken += 1
        except MillstreamError as error:
            assert error.message
    assert 0 < taken < 200, "some are still right, most are not"
