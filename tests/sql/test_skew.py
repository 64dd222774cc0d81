"""Keys with many rows: splitting them over shards, and combining their rows early, changes no result.

Every key counts as hot here as soon as it has a row, so keys become hot and cold from epoch to epoch, and the number of
shards changes at a restart in between.
"""

from __future__ import annotations

import random

import pytest

from millstream.engine.exchange import hot_keys
from tests.sql.test_relations import OPERATORS, ORDERED, PAIRS, chained, check

SPLIT = ("inner", "residual", "left", "right", "semi", "anti", "self", "three", "over_join", "natural", "using_right")
"""Joins of rows that are never retracted, on one side at least."""
NOT_SPLIT = ("full", "natural_full", "using_full")
"""The matches of the rows of both sides are counted."""
SHRUNK = ("distinct", "limit", "top", "distinct_on", "counts", "over_join", "sets", "total", "union_once")


@pytest.fixture(autouse=True)
def _every_key_is_hot(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPLIT_ROWS", "SPLIT_SHARE", "FREQUENT"):
        monkeypatch.setattr(hot_keys, name, 0)


@pytest.mark.sampled(len(SPLIT))
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SPLIT)
def test_a_join_with_hot_keys_is_what_a_batch_gives(name: str, seed: int) -> None:
    assert check({"v": [name]}, seed, epochs=6, most=9, shards=(3, 7))


@pytest.mark.parametrize("name", NOT_SPLIT)
def test_a_join_that_counts_the_matches_of_both_sides_is_not_split(name: str) -> None:
    assert not check({"v": [name]}, seed=1, epochs=4, most=9, shards=(3, 7))


@pytest.mark.sampled(len(SHRUNK))
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SHRUNK)
def test_rows_that_are_combined_before_they_are_sent_give_what_a_batch_gives(name: str, seed: int) -> None:
    chain = ["where", "distinct", name] if name in ORDERED else ["where", name]
    check({"v": chain}, seed, epochs=4, most=12, shards=(3, 7))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("first", ["left", "aggregate", "inner"])
def test_joins_of_changing_rows_with_hot_keys_are_what_a_batch_gives(first: str, seed: int) -> None:
    assert check({"v": [first, "left"], "w": [first, "semi"], "x": [first, "right"]}, seed, epochs=5, shards=(3, 7))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(40))
def test_pairs_of_operators_with_hot_keys_are_what_a_batch_gives(seed: int) -> None:
    some = random.Random(seed).sample([p for p in PAIRS if p[1] in (*SPLIT, *SHRUNK)], 3)
    check({f"v{i}": chained(*p) for i, p in enumerate(some)}, seed, epochs=4, shards=(2, 3, 7))


def test_every_operator_named_here_exists() -> None:
    assert set(SPLIT) | set(NOT_SPLIT) | set(SHRUNK) <= set(OPERATORS)
