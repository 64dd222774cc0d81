"""Hot keys: how they are found, and that the shards of an operator get about equally many rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest

from millstream.engine.driver.epoch_io import OperatorLoad
from millstream.engine.exchange import hot_keys
from millstream.engine.exchange.hot_keys import KeyCounts, repeated
from millstream.runtime.epoch.records import EpochRecord, RecordBook
from tests.sql.engine import QueryScript
from tests.sql.test_relations import BASE, flow_of

HALF = np.where(np.arange(100_000) % 2 == 0, 7, np.arange(100_000) + 100).astype(np.int64)


def test_rows_of_frequent_keys_are_worth_combining() -> None:
    mask = repeated(HALF)
    assert mask is not None and mask.tolist() == (HALF == 7).tolist()
    assert repeated(np.arange(100_000, dtype=np.int64)) is None
    few = repeated(np.arange(100_000, dtype=np.int64) % 500)
    assert few is not None and few.all()


def _counted(hashes: np.ndarray, side: int = 0, weights: np.ndarray | None = None) -> KeyCounts:
    counts = KeyCounts()
    counts.note(3, side, hashes, pl.DataFrame({"k": hashes}), weights)
    return counts


def test_counts_of_tasks_add_up_and_survive_a_parcel() -> None:
    total = KeyCounts()
    for part in np.split(HALF, 4):
        total.add(KeyCounts.from_json(orjson.loads(orjson.dumps(_counted(part).to_json()))))
    assert total.rows == {(3, 0): 100_000}
    assert abs(total.keys[3, 0][7] - 50_000) < 1_000
    key, share = total.hottest(3) or ("", 0.0)
    assert key == "7" and abs(share - 0.5) < 0.01
    assert total.hottest(4) is None


def test_a_combined_row_counts_as_the_rows_that_it_stands_for() -> None:
    hashes = np.arange(1_000, dtype=np.int64)
    counts = _counted(hashes, weights=np.where(hashes == 5, 999, 1))
    assert counts.rows == {(3, 0): 1_998} and counts.hottest(3) == ("5", 0.5)


def test_a_key_is_split_on_its_larger_side_if_it_would_fill_a_shard() -> None:
    counts = _counted(HALF)
    counts.add(_counted(np.full(100, 7), side=1))
    assert counts.to_split(3, (True, True), 4) == {7: 0}
    assert counts.to_split(3, (False, True), 4) == {}, "its larger side cannot be split"
    few = _counted(HALF[:1_000])
    assert few.to_split(3, (True, True), 4) == {}, "too few rows"
    thin = _counted(np.where(np.arange(1_000_000) % 50 == 0, 7, np.arange(1_000_000)).astype(np.int64))
    assert thin.to_split(3, (True,), 2) == {}, "a small part of what a shard has"
    assert thin.to_split(3, (True,), 100) == {7: 0}


def test_skew_is_the_fullest_shard_over_the_mean() -> None:
    assert OperatorLoad(100, 50, 4).skew == 2.0
    assert OperatorLoad(0, 0, 4).skew == 1.0


def test_a_record_keeps_the_hot_keys(tmp_path: Path) -> None:
    hot = {"v~1": {-(2**63): 0, 2**63 - 1: 1}}
    record = EpochRecord(1, "p", 1, {}, 0, {}, {}, {}, hot=hot)
    book = RecordBook(tmp_path)
    book.open(record)
    assert book.read(1) == record
    assert "hot" not in EpochRecord(2, "p", 1, {}, 0, {}, {}, {}).to_json()


def _rows(chance: random.Random, count: int, share: float) -> list[dict[str, Any]]:
    return [
        {"k": 1 if chance.random() < share else 10 + i, "v": i % 7, "s": "p", "ts": BASE + i % 60} for i in range(count)
    ]


def test_half_of_the_rows_in_one_key_fill_no_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_keys, "SPLIT_ROWS", 100)
    chance = random.Random(1)
    views = {
        "joined": "SELECT a.k, a.v, b.s FROM a JOIN b ON a.k = b.k",
        "top": "SELECT k, v FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM a) x WHERE n < 3",
        "once": "SELECT DISTINCT k, v % 2 AS v FROM a",
        "counted": "SELECT k, count(*) AS n FROM (SELECT a.k FROM a JOIN b ON a.k = b.k) x GROUP BY k",
    }
    loads: list[dict[str, OperatorLoad]] = []
    with QueryScript(flow_of(views), tmp_path, shards=4) as script:
        for _ in range(2):
            script.send("a", *_rows(chance, 4_000, 0.5))
            script.send("b", {"k": 1, "v": 1, "s": "q", "ts": BASE}, *_rows(chance, 500, 0.0))
            loads += [dict(r.loads) for r in script.tick() if r.rows]
        assert script._loop is not None
        book = script._loop.book
        records = [book.read(number) for number in range(1, script._loop.number + 1)]
        assert any(r is not None and r.hot for r in records), "recorded before the work"
    before, after = loads
    joins = [n for n in before if n in ("joined", "counted~1")]
    assert joins and all(before[n].skew > 1.8 and after[n].skew < 1.3 for n in joins)
    assert before["joined"].key == "1" and 0.35 < before["joined"].share < 0.55
    for name in ("top", "once", "counted"):
        assert max(load[name].skew for load in loads) < 1.6, name  # 2.5 if all rows of the key met in one shard
