"""What exactly once costs: the same flow over the same files with each guarantee, with a view and a sink.

Every epoch takes one file (100,000 bids), so that the fixed costs of an epoch count. The goal is at most 15 % of
the throughput against at most once. A single ratio says little on a machine that does other things too: the figure is
the median of many rounds, which begin with each kind equally often.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import millstream as ms
from bench import oracle
from bench.own import feed, turns

EVENTS, FILES, KEYS, WINDOW = 4_000_000, 40, 10_000, 10
ROUNDS = 9
SECOND = 1_000_000
QUERY = "SELECT auction AS key, window_start AS start_us, bids FROM counts"


def run(bids: Path, right: Path, guarantee: str, folder: Path) -> float:
    """The seconds of a whole run in a fresh home."""
    flow = ms.Flow("counting", guarantee=guarantee)
    keyed = feed.source(flow, bids, "parquet", bounded=True, file_per_epoch=True).key_by("auction")
    windowed = keyed.window(ms.tumbling(f"{WINDOW} seconds"), trigger=ms.on_close())
    windowed.aggregate(bids=ms.count()).view("counts", changes_to=ms.log("changes"))
    with ms.Home(folder) as home:
        seconds = turns.to_the_end(home, flow)
        turns.check("guarantees", right, home.query(QUERY).to_arrow(), folder)
        changes = sum(home.topic("changes").end().values())
        if changes != home.query("SELECT count(*) AS n FROM counts").to_dicts()[0]["n"]:
            raise SystemExit(f"guarantees: {changes} changes in the topic")
    return seconds


def measure(work: Path, events: int | None) -> dict[str, Any]:
    number = events or EVENTS
    folder, random, each = feed.Folder(work / "bids", "parquet"), np.random.default_rng(0), number // FILES
    for file in range(FILES):
        times = feed.START + (file * each + np.arange(each, dtype=np.int64)) * 2 * SECOND // each
        folder.release(folder.stage(feed.one_each(random.integers(0, KEYS, each), times)))
    right = oracle.write(oracle.windows(folder.path, "auction", WINDOW, WINDOW), work / "right.parquet")
    kinds = ("exactly_once", "at_least_once", "at_most_once")
    runs = {kind: partial(run, folder.path, right, kind) for kind in kinds}
    for kind, once in runs.items():
        once(work / f"warm-{kind}")
    seconds = turns.in_turn("guarantees", work, runs, ROUNDS)
    return {
        "bids": number,
        "epochs": FILES,
        **{f"{kind}_bids_per_s": number / turns.middle(times) for kind, times in seconds.items()},
        "exactly_over_at_most_seconds": turns.ratio(seconds["exactly_once"], seconds["at_most_once"], goal=1.15),
    }
