"""Pathway: its Rust engine, one thread per core, a windowed count with its own window operators.

The folder is read in static mode, so the engine sees all rows as one batch and ends by itself: its fastest
way.
"""

# ruff: noqa: E402

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
sys.path.insert(0, str(Path(__file__).parents[2]))

os.environ["PATHWAY_THREADS"] = str(os.cpu_count())

import pathway as pw
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from bench.peers.protocol import Task, answer, task, write_result

INSIDE = "start of the dataflow to its end: reading, windows, CSV file; not imports"


class Bid(pw.Schema):
    """A row of the files; every line is parsed, and only these columns are kept."""

    auction: int
    bidder: int
    price: int
    date_time: str


def build(this: Task, out: str) -> None:
    """The dataflow; nothing runs yet."""
    bids = pw.io.jsonlines.read(this.data, schema=Bid, mode="static")
    bids = bids.with_columns(date_time=bids.date_time.dt.strptime("%Y-%m-%dT%H:%M:%S%.fZ"))
    size, slide = timedelta(seconds=this.size), timedelta(seconds=this.slide)
    window = pw.temporal.tumbling(size) if size == slide else pw.temporal.sliding(slide, size)
    counts = bids.windowby(bids.date_time, window=window, instance=bids[this.key]).reduce(
        key=pw.this._pw_instance,
        start_us=pw.this._pw_window_start.dt.timestamp(unit="us"),
        bids=pw.reducers.count(),
    )
    pw.io.csv.write(counts, out)


def rows(path: str) -> pa.Table:
    """What the dataflow wrote: changes, of which only additions may exist here."""
    table = pa.csv.read_csv(path)
    if pc.min(table["diff"]).as_py() != 1:
        raise SystemExit("a static run takes nothing back")
    return table.select(["key", "start_us", "bids"])


def main() -> None:
    this = task()
    out = f"{this.work}/counts.csv"
    build(this, out)
    begin = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - begin
    write_result(rows(out), this.out)
    answer(seconds, INSIDE, version("pathway"))


if __name__ == "__main__":
    main()
