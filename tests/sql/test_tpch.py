"""TPC-H as continuous views over live tables: what they show after every change is what DuckDB computes anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql.live_tables import LiveTables
from tests.sql.tpch.data import QUERIES, TABLES, TINY, Size, rounds, setup


def _followed(path: Path, queries: dict[str, str], size: Size) -> dict[str, int]:
    """Follow the queries through all rounds; by query, in how many rounds it had an answer."""
    world = LiveTables(path, TABLES, queries, duck=setup(size))
    answered = dict.fromkeys(queries, 0)
    try:
        for changes in ([], *rounds(size)):
            world.change(*changes)
            world.tick()
            wrong = world.differences()
            assert not wrong, wrong
            for name in queries:
                answered[name] += any(value is not None for row in world.rows(name) for value in row)
    finally:
        world.close()
    return answered


def test_all_queries_are_right_after_every_round_of_changes(tmp_path: Path) -> None:
    assert len(QUERIES) == 22
    answered = _followed(tmp_path / "home", QUERIES, TINY)
    assert min(answered.values()) > 0, {name: rounds for name, rounds in answered.items() if not rounds}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(QUERIES))
def test_a_query_is_right_at_scale_one_tenth(tmp_path: Path, name: str) -> None:
    assert _followed(tmp_path / "home", {name: QUERIES[name]}, Size.of(0.1))[name] > 0
