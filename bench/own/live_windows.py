"""1 M live windows with early panes every second, 1,000 of them touched per epoch: what the pane kernel's work costs.

The windows come as one file; then small files follow, one per epoch, and the clock moves by one second from epoch to
epoch. So every epoch that is measured finds the 1,000 windows that are due among all, fires them, and takes bids for
another 1,000.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

import millstream as ms
from bench import oracle
from bench.own import engine, feed, turns

WINDOWS, TOUCHED, EPOCHS, WARM_UP_EPOCHS = 1_000_000, 1_000, 60, 10
SECOND = 1_000_000


def measure(work: Path, events: int | None) -> dict[str, Any]:
    windows = events or WINDOWS
    folder = feed.Folder(work / "bids", "parquet")
    folder.release(folder.stage(feed.one_each(np.arange(windows, dtype=np.int64))))
    flow = ms.Flow("live")
    keyed = feed.source(flow, folder.path, "parquet", file_per_epoch=True).key_by("auction")
    early = ms.after_watermark(early=ms.every("1 second"))
    keyed.window(ms.tumbling("1 hour"), trigger=early).aggregate(bids=ms.count()).view("counts")
    clock, random = ms.ManualClock(feed.START), np.random.default_rng(0)
    staged = [folder.stage(feed.one_each(random.integers(0, windows, TOUCHED))) for _ in range(EPOCHS)]
    with ms.Home(work / "home", clock=clock) as home:
        begin = time.perf_counter()
        running, told = engine.start(home, flow, lambda: clock.advance(SECOND))
        running.catch_up()
        loading = time.perf_counter() - begin
        told.epochs.clear()
        for path in staged:
            folder.release(path)
        running.catch_up()
        used = feed.memory()
        idle = feed.idle_cpu()
        rows = home.query("SELECT auction AS key, window_start AS start_us, bids FROM counts").to_arrow()
        running.stop()
    right = oracle.write(oracle.windows(folder.path, "auction", 3_600, 3_600), work / "right.parquet")
    turns.check("live-windows", right, rows, work)
    measured = [epoch for epoch in told.epochs if epoch.rows][WARM_UP_EPOCHS:]
    return {
        "windows_held": windows,
        "windows_touched_per_epoch": TOUCHED,
        "loading_s": loading,
        **engine.parts(measured, goal=150.0),
        "idle_cpu_percent": idle,
        "python_mib": used["python"],
        "jvm_and_workers_mib": used["children"],
    }
