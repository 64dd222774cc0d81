"""Merges of runs as Spark jobs: they give the same rows as in the driver, in the pool of low weight, and can be
cancelled.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import millstream as ms
from millstream.clock import END_OF_TIME
from millstream.engine import merger as merger_module
from millstream.engine.merger import SparkMerger
from millstream.engine.spark.pools import COMPACTION, in_pool
from millstream.errors import EngineFailed, HomeDamaged
from millstream.runtime.epoch import compactor as compactor_module
from millstream.state.compaction import RunMerge
from millstream.state.local_storage import LocalStorage
from millstream.state.run import StateRun
from millstream.state.run_list import RunList
from millstream.state.shard import RunCache, StateReader, shard_range
from millstream.testing import Script

pytestmark = pytest.mark.spark


def runs_of(storage: LocalStorage) -> RunList:
    """Six epochs of two shards each, with the same keys, and one epoch of the driver."""
    cache, runs, dice = RunCache(storage), list[StateRun](), np.random.default_rng(7)
    keys = np.sort(dice.integers(-(2**63), 2**63 - 1, 400))
    for epoch in range(7):
        shards = 2 if epoch < 6 else 1
        for shard in range(shards):
            first, last = shard_range(shard, shards)
            mine = keys[(keys >= first) & (keys <= last)][epoch::3]
            rows = pl.DataFrame({"$h": mine, "n": np.full(len(mine), epoch)})
            runs.append(cache.write(f"v/{epoch:012d}-1-{shard}-0.arrow", rows, never(rows)))
    return RunList.of(runs)


def never(rows: pl.DataFrame) -> np.ndarray:
    return np.full(len(rows), END_OF_TIME)


def merge_of(runs: RunList, expiry: Any = never) -> RunMerge:
    return RunMerge("v", "v/000000000009-1", runs, ("$h",), expiry, 0, True)


def scanned(storage: LocalStorage, runs: Any) -> list[tuple[int, int]]:
    found = StateReader(RunCache(storage), runs, ["$h"]).scan(0)
    assert found is not None
    return sorted(found.rows())


def test_the_tasks_of_a_merge_give_one_layer_with_the_same_rows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merger_module, "PART_ROWS", 200)
    storage = LocalStorage(tmp_path)
    runs = runs_of(storage)
    merged = RunList.of(SparkMerger(spark, storage).merged(merge_of(runs)))
    assert len(merged) == -(-runs.rows // 200) and len(merged.layers) == 1
    assert scanned(storage, merged) == scanned(storage, runs)
    assert storage.names() == {*runs.files, *merged.files}


def test_a_task_does_not_give_damaged_rows_a_new_checksum(spark: Any, tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    runs = runs_of(storage)
    whole = bytearray(storage.map(runs[3].file).to_pybytes())
    whole[len(whole) // 2] ^= 1
    storage.put(runs[3].file, bytes(whole))
    with pytest.raises(HomeDamaged, match="does not match its checksum"):
        SparkMerger(spark, storage).merged(merge_of(runs))


def test_merges_are_in_a_pool_of_low_weight_and_epochs_in_the_default_one(spark: Any) -> None:
    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        list(batches)
        context = TaskContext.get()
        assert context is not None
        yield pa.RecordBatch.from_pydict({"pool": [context.getLocalProperty("spark.scheduler.pool")]})

    def pool() -> str | None:
        return str(spark.range(0, 1, 1, 1).mapInArrow(told, "pool STRING").toArrow()["pool"][0].as_py())

    with ThreadPoolExecutor(1) as thread, in_pool(spark, "other", "tag"):
        assert thread.submit(_in_compaction, spark, pool).result() == COMPACTION, "the pool is that of the thread"
        assert pool() == "other"
    assert pool() == "None"
    weights = {
        name: spark.sparkContext._jsc.sc().getPoolForName(name).get().weight() for name in ("default", COMPACTION)
    }
    assert weights["default"] >= 100 * weights[COMPACTION]


def _in_compaction(spark: Any, work: Any) -> Any:
    with in_pool(spark, COMPACTION, "merge"):
        return work()


def test_a_running_merge_is_cancelled_and_none_starts_later(spark: Any, tmp_path: Path) -> None:
    storage, begun = LocalStorage(tmp_path / "state"), tmp_path / "begun"
    runs = runs_of(storage)
    os.mkfifo(begun)
    merger = SparkMerger(spark, storage)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(merger.merged, merge_of(runs, partial(_stuck, begun)))
        begun.open().close()  # waits for a task
        merger.cancel()
        assert isinstance(running.exception(timeout=60), EngineFailed)
    with pytest.raises(EngineFailed, match="cancelled"):
        merger.merged(merge_of(runs))


def _stuck(begun: Path, rows: pl.DataFrame) -> np.ndarray:
    begun.open("w").close()
    threading.Event().wait(30)
    return never(rows)


def test_a_flow_merges_on_the_executors_beside_its_epochs(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spark
    monkeypatch.setattr(compactor_module, "AT_ONCE_ROWS", 0)
    monkeypatch.setattr(merger_module, "LOCAL_ROWS", 0)
    flow = ms.Flow("auctions")
    bids = flow.source("bids", ms.memory(), schema="auction BIGINT, price BIGINT")
    bids.key_by("auction").aggregate(n=ms.count(), s=ms.sum("price")).view("totals")
    with Script(flow, tmp_path / "home", placement="spread", shards=2) as script:
        adopted = set[str]()
        for epoch in range(12):
            script.send("bids", *({"auction": a, "price": epoch} for a in range(20)))
            script.tick()
            loop: Any = script._loop
            adopted |= {f for f in loop.version.files if f.endswith("-c.arrow")}
            wait([job.new for job in loop._compactor._jobs.values()])
        expected = {a: (12, sum(range(12))) for a in range(20)}
        assert {r["auction"]: (r["n"], r["s"]) for r in script.rows("totals")} == expected
    assert len(adopted) >= 2 and all(len(Path(f).stem.split("-")) == 5 for f in adopted), "tasks wrote the merges"
