"""The same bids from a topic of the log and from plain Parquet files: one flow, one answer, two sources.

Both flows count bids per auction and 10 s window to the end; the plain files are the benchmark's own (bench/data.py),
the topic holds the same rows in sealed segments. The figure is speed from the topic over speed from the files.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import millstream as ms
from bench import data, oracle
from bench.own import turns

EVENTS, WINDOW = 5_000_000, 10
SCHEMA = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP"
QUERY = "SELECT auction AS key, window_start AS start_us, bids FROM counts"


def run(source: Any, log: Path | None, right: Path, folder: Path) -> float:
    """The seconds of a whole run in a fresh home; `log` is linked into it."""
    folder.mkdir(parents=True)
    flow = ms.Flow("reading")
    bids = flow.source("bids", source, schema=SCHEMA, event_time="date_time")
    bids.key_by("auction").window(ms.tumbling(f"{WINDOW} seconds")).aggregate(bids=ms.count()).view("counts")
    with ms.Home(folder / "home") as home:
        if log is not None:
            shutil.copytree(log, folder / "home/log", copy_function=os.link, dirs_exist_ok=True)
        seconds = turns.to_the_end(home, flow)
        turns.check("log-read", right, home.query(QUERY).to_arrow(), folder)
    return seconds


def fill(bids: Path, home: Path) -> Path:
    """A topic with all bids, in sealed segments."""
    with ms.Home(home) as opened:
        topic = opened.topic("bids", schema=SCHEMA)
        for file in sorted(bids.glob("*.parquet")):
            for batch in pq.ParquetFile(file).iter_batches(500_000, columns=list(data.COLUMNS)):
                topic.append(batch)
        topic.roll()
        topic.close()
        opened.topic("bids").read(0, 0, 1)
    return home / "log"


def measure(work: Path, events: int | None) -> dict[str, Any]:
    number = events or EVENTS
    files = data.bids(number).folder("parquet")
    right = oracle.write(oracle.windows(files, "auction", WINDOW, WINDOW), work / "right.parquet")
    log = fill(files, work / "filled")
    segments = list(log.glob("bids/*/*.parquet"))
    variants = {
        "parquet": partial(run, ms.files(str(files), format="parquet", bounded=True), None, right),
        "topic": partial(run, ms.log("bids", bounded=True), log, right),
    }
    for name, once in variants.items():
        once(work / f"warm-{name}")
    seconds = turns.in_turn("log-read", work, variants)
    return {
        "bids": number,
        "segments": len(segments),
        **{f"{name}_bids_per_s": number / turns.middle(times) for name, times in seconds.items()},
        "topic_over_parquet": turns.ratio(seconds["parquet"], seconds["topic"], at_least=0.8),
    }
