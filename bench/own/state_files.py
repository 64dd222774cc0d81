"""What files of state cost one core, in CPU seconds: writing runs, merging them, and describing them in a manifest.

`scripts/scaling.py` uses the figures. The files are on the local disk: requests to object storage are not in them.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from millstream.clock import END_OF_TIME
from millstream.state.compaction import FANOUT, merge
from millstream.state.local_storage import LocalStorage
from millstream.state.manifest import load_version, save_version
from millstream.state.run import Batch, StateRun
from millstream.state.shard import RunCache, shard_range
from millstream.state.version import Version

ROWS, RUNS = 250_000, 10_000


def measure(work: Path, events: int | None) -> dict[str, Any]:
    """`events` is the number of rows of a run."""
    storage, dice = LocalStorage(work / "state"), np.random.default_rng(7)
    frames = [_rows(dice, events or ROWS) for _ in range(FANOUT)]
    cache = RunCache(storage)
    spent = time.process_time()
    runs = [cache.write(f"v/{i}.arrow", frame, _never(frame)) for i, frame in enumerate(frames)]
    writing = time.process_time() - spent
    spent = time.process_time()
    merged = merge(RunCache(storage), "v/m.arrow", runs, ["$h", "k"], _never, 0, oldest=True)
    merging = time.process_time() - spent
    assert merged is not None
    written = sum(r.bytes for r in runs)
    version = Version({"v": [_named(shard) for shard in range(RUNS)]})
    spent = time.process_time()
    data, _ = save_version(version, storage, "1")
    saving = time.process_time() - spent
    spent = time.process_time()
    assert len(load_version(data, storage).of("v")) == RUNS
    loading = time.process_time() - spent
    figures = {
        "bytes_per_row": written / sum(map(len, frames)),
        "written_mb_per_core_s": written / writing / 1e6,
        "merged_mb_per_core_s": (written + merged.bytes) / merging / 1e6,
        "manifest_us_per_run": 1e6 * saving / RUNS,
        "manifest_load_us_per_run": 1e6 * loading / RUNS,
        "manifest_bytes_per_run": data["v"]["manifests"][0]["bytes"] / RUNS,
    }
    shutil.rmtree(work, ignore_errors=True)
    return figures


def _rows(dice: np.random.Generator, count: int) -> pl.DataFrame:
    """Rows of an aggregate: a key of text, four numbers."""
    hashes = dice.integers(-(2**63), 2**63 - 1, count)
    numbers = {name: dice.integers(0, 2**40, count) for name in ("n", "a", "b", "c")}
    return pl.DataFrame({"$h": hashes, "k": [f"customer-{h:020d}" for h in hashes.tolist()], **numbers})


def _never(rows: pl.DataFrame) -> np.ndarray:
    return np.full(len(rows), END_OF_TIME)


def _named(shard: int) -> StateRun:
    hashes = shard_range(shard % 1_000, 1_000)
    name = f"v/{shard // 1_000:012d}-1-{shard % 1_000}-{shard}.arrow"
    return StateRun(name, 2774893043, 40_312, (Batch(1_000, END_OF_TIME, END_OF_TIME),), hashes, ())
