"""2,000 events/s for a minute: how long an epoch takes, and how long an event takes from its intended send
time to the view.

A thread releases one staged file of 100 bids every 50 ms by the clock, whether or not the engine keeps up; a
file's intended time counts, not the time it was released, and the thread's own lag is a figure (a lagging
feed voids the run). A reader polls the view and notes when each file's bids are all in it.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import millstream as ms
from bench.own import engine, feed

RATE, PER_FILE = 2_000, 100
SECONDS, WARM_UP_SECONDS = 60, 15
WARM_UP_FILES = 30
"""Caught up with one by one, before the clock starts: the JVM is cold at first."""
POLL = 0.005


def measure(work: Path, events: int | None) -> dict[str, Any]:
    number = (events or RATE * (SECONDS + WARM_UP_SECONDS)) // PER_FILE
    period = PER_FILE / RATE
    folder = feed.Folder(work / "bids", "json")
    staged = [folder.stage(feed.bids(i * PER_FILE, PER_FILE, RATE)) for i in range(WARM_UP_FILES + number)]
    flow = ms.Flow("steady")
    bids = feed.source(flow, folder.path, "json")
    bids.key_by("auction").window(ms.tumbling("10 seconds")).aggregate(bids=ms.count()).view("counts")
    bids.key_by(everything="1").aggregate(bids=ms.count()).view("total")
    lags: list[float] = []
    with ms.open(str(work / "home")) as home:
        running, told = engine.start(home, flow)
        for path in staged[:WARM_UP_FILES]:
            folder.release(path)
            running.catch_up()
        told.epochs.clear()
        begin = time.perf_counter() + 0.5

        def release() -> None:
            for i, path in enumerate(staged[WARM_UP_FILES:]):
                time.sleep(max(begin + i * period - time.perf_counter(), 0))
                lags.append(time.perf_counter() - begin - i * period)
                folder.release(path)

        thread = threading.Thread(target=release)
        thread.start()
        latencies: list[float] = []
        seen, deadline = 0, begin + number * period + 60
        while seen < number and time.perf_counter() < deadline:
            counted = engine.scalar(home, "SELECT max(bids) AS bids FROM total") or 0
            now = time.perf_counter() - begin
            if running.error is not None:
                raise running.error
            complete = counted // PER_FILE - WARM_UP_FILES
            latencies += [now - i * period for i in range(seen, complete)]
            seen = complete
            time.sleep(POLL)
        thread.join()
        running.stop()
    times = told.seconds
    if not times or not latencies:
        raise SystemExit("steady: no epoch brought any bid into the view")
    warm = WARM_UP_SECONDS / (SECONDS + WARM_UP_SECONDS)
    measured, epochs = latencies[int(len(latencies) * warm) :], times[int(len(times) * warm) :]
    return {
        "events_per_second": RATE,
        "files": number,
        "files_seen_in_view": seen,
        "feed_lag_p99_ms": {"value": 1e3 * feed.percentile(lags, 0.99), "goal": 10.0},
        "epochs": len(epochs),
        "epoch_p50_ms": {"value": 1e3 * feed.percentile(epochs, 0.5), "goal": 60.0},
        "epoch_p99_ms": {"value": 1e3 * feed.percentile(epochs, 0.99), "goal": 150.0},
        "epoch_max_ms": 1e3 * max(epochs),
        "latency_p50_ms": {"value": 1e3 * feed.percentile(measured, 0.5), "goal": 120.0},
        "latency_p95_ms": 1e3 * feed.percentile(measured, 0.95),
        "latency_p99_ms": {"value": 1e3 * feed.percentile(measured, 0.99), "goal": 300.0},
        "latency_max_ms": 1e3 * max(measured),
    }
