"""Early panes every second, with retractions, over 100 k live keys: what they cost against answers on close alone.

Every epoch takes one file, which holds one second of event time (100,000 bids at random over all keys), and the clock
moves by one second from epoch to epoch. So with early panes every epoch shows anew all windows that the epoch before it
changed (two thirds of the keys); without, a window of ten seconds is shown once. Answers on close come from the slice
kernel, early panes from the pane kernel.

Retractions (-U) are made only where something reads them, and a view does not; so there are two figures, with them (the
loop is asked for them) and without, as `Home.start` runs a flow.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import millstream as ms
from bench import oracle
from bench.own import feed, turns
from millstream.plan.planner import plan

EVENTS, KEYS, SECONDS, WINDOW = 3_000_000, 100_000, 30, 10
SECOND = 1_000_000
QUERY = "SELECT auction AS key, window_start AS start_us, bids FROM counts"
ON_CLOSE, EARLY = ms.on_close(), ms.after_watermark(early=ms.every("1 second"))
VARIANTS = {"on_close": (ON_CLOSE, False), "early": (EARLY, False), "early_retracting": (EARLY, True)}


def write(folder: feed.Folder, events: int, keys: int) -> None:
    """The events, one file per second."""
    random, each = np.random.default_rng(0), events // SECONDS
    for second in range(SECONDS):
        times = feed.START + (second * each + np.arange(each, dtype=np.int64)) * SECOND // each
        folder.release(folder.stage(feed.one_each(random.integers(0, keys, each), times)))


def run(bids: Path, right: Path, trigger: Any, retract: bool, folder: Path) -> tuple[float, int]:
    """The seconds of a whole run in a fresh home, and how many changes it gave."""
    flow = ms.Flow("panes")
    keyed = feed.source(flow, bids, "parquet", bounded=True, file_per_epoch=True).key_by("auction")
    windowed = keyed.window(ms.tumbling(f"{WINDOW} seconds"), trigger=trigger, accumulation=ms.retracting())
    windowed.aggregate(bids=ms.count()).view("counts")
    clock, changes = ms.ManualClock(feed.START), 0
    with ms.Home(folder, clock=clock) as home:
        begin = time.perf_counter()
        loop = home.loop(plan(flow), retract=retract)
        while (report := loop.step()) is not None:
            changes += report.changes.get("counts", 0)
            clock.advance(SECOND)
        seconds = time.perf_counter() - begin
        loop.close()
        turns.check("early-panes", right, home.query(QUERY).to_arrow(), folder)
    return seconds, changes


def measure(work: Path, events: int | None) -> dict[str, Any]:
    number = events or EVENTS
    keys = KEYS * number // EVENTS
    folder = feed.Folder(work / "bids", "parquet")
    write(folder, number, keys)
    right = oracle.write(oracle.windows(folder.path, "auction", WINDOW, WINDOW), work / "right.parquet")
    runs = {name: partial(run, folder.path, right, *variant) for name, variant in VARIANTS.items()}
    changes = {name: once(work / f"warm-{name}")[1] for name, once in runs.items()}
    timed = {name: (lambda home, once=once: once(home)[0]) for name, once in runs.items()}
    seconds = turns.in_turn("early-panes", work, timed)
    return {
        "bids": number,
        "live_keys": keys,
        "epochs": SECONDS,
        **{f"{name}_s": turns.middle(times) for name, times in seconds.items()},
        **{f"{name}_changes": count for name, count in changes.items()},
        "early_over_on_close": turns.ratio(seconds["early"], seconds["on_close"], goal=1.3),
        "early_retracting_over_on_close": turns.ratio(seconds["early_retracting"], seconds["on_close"], goal=1.3),
    }
