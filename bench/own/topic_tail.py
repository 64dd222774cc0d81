"""The unsealed tail of a topic: how fast it is read, by the size of the appends, and how fast a flow takes it in.

The same bids lie in write-ahead files as frames of 10,000 rows, of 100, and of one; nothing is sealed. `read` is
`Topic.read` with nothing known of the files. `flow` is a whole run of a flow that counts bids per auction and 10 s
window, with Spark warm. Each is repeated until it has run for SECONDS.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import millstream as ms
from bench import data, oracle
from bench.own import turns
from bench.own.log_read import QUERY, SCHEMA, WINDOW
from millstream.clock import SystemClock
from millstream.log import Log
from millstream.log.storage.disk import RealDisk
from millstream.model.types.schema import Schema

EVENTS, SECONDS = 3_400_000, 10
FRAMES = {10_000: 1.0, 100: 1.0, 1: 0.03}
"""Rows of an append, and the share of the events that is appended so."""
AT_LEAST = 1_000_000


class Quick(RealDisk):
    """Without fsync: filling is not what is measured."""

    def fsync(self, path: Path) -> None:
        del path

    def fsync_dir(self, path: Path) -> None:
        del path


def fill(bids: Path, log: Path, rows: int, most: int) -> int:
    """A topic of appends of so many rows, none of them sealed; returns how many bids it has."""
    schema = Schema.parse(SCHEMA).to_arrow()
    topic = Log(log, SystemClock(), Quick()).create("bids", schema, segment_bytes=1 << 40, segment_rows=1 << 40)
    left = most
    for file in sorted(bids.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(rows, columns=list(data.COLUMNS)):
            if left:
                topic.append(batch.slice(0, left))
                left -= min(left, batch.num_rows)
    topic.close()
    return most - left


def read(log: Path) -> float:
    """The seconds of reading all, with nothing known of the files."""
    begin = time.perf_counter()
    topic = Log(log, SystemClock()).topic("bids")
    end = topic.end()[0]
    assert topic.read(0, 0, end).num_rows == end
    return time.perf_counter() - begin


def flow(log: Path, right: Path | None, folder: Path) -> float:
    """The seconds of a flow over the topic, in a fresh home."""
    folder.mkdir(parents=True)
    made = ms.Flow("reading")
    bids = made.source("bids", ms.log("bids", bounded=True), schema=SCHEMA, event_time="date_time")
    bids.key_by("auction").window(ms.tumbling(f"{WINDOW} seconds")).aggregate(bids=ms.count()).view("counts")
    with ms.Home(folder / "home") as home:
        shutil.copytree(log, folder / "home/log", copy_function=os.link, dirs_exist_ok=True)
        seconds = turns.to_the_end(home, made)
        if right is not None:
            turns.check("topic-tail", right, home.query(QUERY).to_arrow(), folder)
    return seconds


def repeated(rows: int, once: Callable[[int], float]) -> float:
    """Rows per second, over SECONDS or more."""
    total, times = 0.0, 0
    while total < SECONDS:
        total += once(times)
        times += 1
    return rows * times / total


def measure(work: Path, events: int | None) -> dict[str, Any]:
    number = events or EVENTS
    files = data.bids(number).folder("parquet")
    right = oracle.write(oracle.windows(files, "auction", WINDOW, WINDOW), work / "right.parquet")
    figures: dict[str, Any] = {"bids": number}
    for rows, share in FRAMES.items():
        log = work / f"log-{rows}"
        there = fill(files, log, rows, int(number * share))
        rate = repeated(there, lambda _, log=log: read(log))  # type: ignore[misc]
        aim = {"at_least": AT_LEAST} if rows >= 100 else {}
        figures[f"read_rows_per_s_of_{rows}"] = {"value": rate, **aim}
        print(f"topic-tail  appends of {rows}: read {rate:,.0f} rows/s", flush=True)
        if share == 1.0:
            run = partial(flow, log, right)
            run(work / f"warm-{rows}")
            rate = repeated(there, lambda n, run=run, rows=rows: run(work / f"run-{rows}-{n}"))  # type: ignore[misc]
            figures[f"flow_rows_per_s_of_{rows}"] = {"value": rate, **aim}
            print(f"topic-tail  appends of {rows}: a flow takes {rate:,.0f} rows/s", flush=True)
    return figures
