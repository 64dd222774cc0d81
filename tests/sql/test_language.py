"""Random queries of the whole language (docs/language.md) as live views, against DuckDB after every epoch.

`tests/sql/worlds.py` says how; a failure names the seed and the query.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.seeds import run_seed
from tests.sql import worlds
from tests.sql.language import patterns
from tests.sql.worlds import WORLDS, play, used_by, with_late_rows


def test_every_pattern_of_the_page_is_used() -> None:
    used = Counter(u for kind in WORLDS for seed in range(16) for u in used_by(kind, seed))
    missing = {p for lines in patterns().values() for p in lines} - set(used)
    assert not missing


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("seed", range(12))
def test_500_live_views_are_what_a_batch_gives(tmp_path: Path, kind: str, seed: int) -> None:
    play(kind, [seed], tmp_path)


@pytest.mark.parametrize("seed", range(2))
def test_windows_and_what_was_late_for_them_are_all_rows(tmp_path: Path, seed: int) -> None:
    with_late_rows(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("share", range(8))
def test_5000_live_views_are_what_a_batch_gives(tmp_path: Path, kind: str, share: int) -> None:
    first = 1_000 + 120 * run_seed() + 15 * share
    play(kind, range(first, first + 15), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(4))
def test_more_windows_and_what_was_late_for_them_are_all_rows(tmp_path: Path, share: int) -> None:
    for seed in range(100 + 50 * share, 150 + 50 * share):
        with_late_rows(tmp_path / str(seed), seed)


def test_a_failure_names_what_it_takes_to_repeat_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "in_duckdb", lambda sql: "SELECT 7 AS k, 7 AS v, 'seven' AS s")
    with pytest.raises(AssertionError, match="sources:3, epoch 0: missing"):
        play("sources", [3], tmp_path)
