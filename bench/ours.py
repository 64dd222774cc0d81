"""Millstream itself, asked and answering like every peer (bench/peers/protocol.py), through its public Python
API.

A home holds log, state and store, so what is inside the time is everything up to the committed view in
DuckDB. The first home in the process only warms up the JVM.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa

import millstream as ms
from bench.peers.protocol import Task, answer, task, write_result

SCHEMA = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP"
INSIDE = "start of the flow to caught up: reading, state, epoch records, views in DuckDB; not JVM start"


def counts(this: Task, data: str) -> ms.Flow:
    """The flow of a comparison; its view is `counts`."""
    flow = ms.Flow("bench")
    bids = flow.source(
        "bids",
        ms.files(data, format=this.format, bounded=True),
        schema=SCHEMA,
        event_time="date_time",
        lateness=f"{this.lateness} seconds",
    )
    size, slide = f"{this.size} seconds", f"{this.slide} seconds"
    keyed = bids.key_by(this.key)
    if this.gap:  # final answers, the only ones that Spark's sessions give
        windowed = keyed.window(ms.session(f"{this.gap} seconds"), trigger=ms.on_close())
    elif size == slide:  # live: the view follows every epoch
        windowed = keyed.window(ms.tumbling(size))
    else:  # final answers, as Flink's windows give them
        windowed = keyed.window(ms.hopping(size, slide), trigger=ms.on_close())
    windowed.aggregate(bids=ms.count()).view("counts")
    return flow


def run(flow: ms.Flow, home_folder: Path, query: str) -> tuple[float, pa.Table]:
    """One whole run in a fresh home: the seconds until it caught up, and the rows of a query."""
    with ms.open(home_folder) as home:
        begin = time.perf_counter()
        with home.start(flow) as running:
            running.catch_up()
            seconds = time.perf_counter() - begin
            rows = home.query(query).to_arrow()
    return seconds, rows


def main() -> None:
    this, homes = task(), Path(task().work)
    ends = "window_end AS end_us, " if this.gap else ""
    query = f"SELECT {this.key} AS key, window_start AS start_us, {ends}bids FROM counts"
    warm, _ = run(counts(this, this.warm_up), homes / "home-warm", query)
    run(counts(this, this.data), homes / "home-warm-2", query)
    seconds, rows = run(counts(this, this.data), homes / "home", query)
    write_result(rows, this.out)
    answer(seconds, INSIDE, getattr(ms, "__version__", "source"), warm_up_seconds=warm)


if __name__ == "__main__":
    main()
