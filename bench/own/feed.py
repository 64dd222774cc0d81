"""What the cases of our own share: bids dropped into a folder, memory in use, percentiles."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import millstream as ms
from bench import data
from millstream.connect import nexmark

SCHEMA = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP"
START = 1_767_225_600_000_000
"""The event time of the first bid: 2026-01-01 in microseconds."""

Longs = np.ndarray[Any, np.dtype[np.int64]]


class Folder:
    """A folder that files appear in whole: written beside it, then renamed into it."""

    def __init__(self, path: Path, form: str) -> None:
        self.path, self.form = path, form
        self._aside = path.with_name(f"{path.name}-aside")
        self._next = 0
        path.mkdir(parents=True)
        self._aside.mkdir()

    def stage(self, table: pa.Table) -> Path:
        """Write the next file, unseen by readers."""
        path = self._aside / f"part-{self._next:06}.{self.form}"
        self._next += 1
        if self.form == "parquet":
            pq.write_table(table, path)
        else:
            path.write_bytes(data.json_lines(table))
        return path

    def release(self, staged: Path) -> None:
        """Let readers see a staged file."""
        os.utime(staged)
        staged.rename(self.path / staged.name)


def bids(first: int, number: int, rate: int = data.RATE) -> pa.Table:
    """Bids number `first` and on, at `rate` bids per second of event time."""
    config = nexmark.Nexmark(rate=rate * 50 // 46, seed=data.SEED)
    start, end = data.position(first), data.position(first + number)
    return nexmark.events("bid", start, end, config, data.COLUMNS)


def one_each(keys: Longs, times: Longs | int = START) -> pa.Table:
    """One bid per key."""
    zeros = np.zeros(len(keys), np.int64)
    when = pa.array(zeros + times).view(pa.timestamp("us", "UTC"))
    return pa.table({"auction": keys, "bidder": zeros, "price": zeros + 1, "date_time": when})


def source(flow: ms.Flow, folder: Path, form: str, *, bounded: bool = False, file_per_epoch: bool = False) -> ms.Stream:
    """The bids in a folder as a source, with a lateness of four seconds."""
    return flow.source(
        "bids",
        ms.files(str(folder), format=form, bounded=bounded),
        schema=SCHEMA,
        event_time="date_time",
        lateness="4 seconds",
        max_rows=1 if file_per_epoch else None,  # files are taken whole, and at least one
    )


def memory() -> dict[str, float]:
    """Resident memory in MiB of this process and of the processes it started (the JVM and its Python
    workers).
    """
    me = psutil.Process()
    children = [child.memory_info().rss for child in me.children(recursive=True) if child.is_running()]
    return {"python": me.memory_info().rss / 2**20, "children": sum(children) / 2**20}


def idle_cpu(seconds: float = 3.0) -> float:
    """How much of one core this process uses while it has nothing to do, in percent."""
    me = psutil.Process()
    me.cpu_percent()
    return me.cpu_percent(interval=seconds)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]
