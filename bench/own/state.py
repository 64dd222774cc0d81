"""10 M keys held, 10 k touched per epoch: what an epoch's kernel and state work costs, and the memory it
needs.

The keys come as Parquet; then one small file after the other is dropped into the folder and caught up with.
Keys are touched at random over all that are held. The view keeps every key, so the time of the store's commit
is told apart.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import millstream as ms
from bench.own import engine, feed

KEYS, TOUCHED, EPOCHS, WARM_UP_EPOCHS = 10_000_000, 10_000, 60, 10
FILE = 1_000_000


def measure(work: Path, events: int | None) -> dict[str, Any]:
    keys = events or KEYS
    folder = feed.Folder(work / "bids", "parquet")
    for first in range(0, keys, FILE):
        folder.release(folder.stage(feed.one_each(np.arange(first, min(first + FILE, keys), dtype=np.int64))))
    flow = ms.Flow("state")
    bids = feed.source(flow, folder.path, "parquet")
    bids.key_by("auction").aggregate(bids=ms.count(), spent=ms.sum("price")).view("counts")
    random = np.random.default_rng(0)
    with ms.open(str(work / "home")) as home:
        begin = time.perf_counter()
        running, told = engine.start(home, flow)
        running.catch_up()
        loading = time.perf_counter() - begin
        after_load = feed.memory()
        before = len(told.epochs)
        for _ in range(EPOCHS):
            folder.release(folder.stage(feed.one_each(random.integers(0, keys, TOUCHED))))
            running.catch_up()
        used = feed.memory()
        counted = engine.scalar(home, "SELECT sum(bids) AS bids FROM counts")
        running.stop()
    if counted != keys + EPOCHS * TOUCHED:
        raise SystemExit(f"state: the view counts {counted:,} bids of {keys + EPOCHS * TOUCHED:,}")
    measured = told.epochs[before + WARM_UP_EPOCHS :]
    return {
        "keys_held": keys,
        "keys_touched_per_epoch": TOUCHED,
        "loading_s": loading,
        **engine.parts(measured, goal=40.0),
        "python_mib_after_loading": after_load["python"],
        "python_mib": {"value": used["python"], "goal": 2_048},
        "jvm_and_workers_mib": used["children"],
    }
