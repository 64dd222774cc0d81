"""Millstream in a contest, asked and answering like every peer (bench/peers/protocol.py).

Queries go through SQL as a user would type it, on a home that holds log, state and store; `process` through the
Python API. An answer that is a table is a view in DuckDB; rows that are written once go to a sink of Parquet files
(CSV for the query that is about files). Both are durable and exactly once, which is the default of a flow.

Options: `out` (view or files) instead of what the contest says; `retract=no` (the flow without what a SUBSCRIBE would
need); `memory` of Spark's JVM; `profile` is a file for a profile of the timed run's loop.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import millstream as ms
from bench.peers.protocol import COLUMNS, SIDE_ROWS, Asked, answer, asked
from millstream.runtime.epoch.loop import FlowLoop
from millstream.runtime.flow_assembly import LoopOptions

INSIDE = "CREATE VIEW or CREATE SINK to the end of the flow: planning, reading, state, epoch records, views or files"


@dataclass
class Seen:
    """The state of a bidder."""

    bids: int = 0


def counted(row: Any, state: Seen, ctx: ms.Context) -> tuple[int, int]:
    """How many bids a bidder has made up to this one."""
    state.bids += 1
    return (row.bidder, state.bids)


def form_of(this: Asked) -> str:
    """Where the answer goes: a view, or files of a format."""
    out = this.options.get("out", "view" if this.keeps else "files")
    return "view" if out == "view" else "csv" if this.case == "nexmark-q10" else "parquet"


def sources(this: Asked, data: dict[str, str]) -> str:
    """The statements in front of the query."""
    said = []
    for kind, folder in data.items():
        clock = f"WATERMARK FOR dateTime AS dateTime - INTERVAL '{this.lateness}' SECOND"
        if this.case == "nexmark-q12":
            clock = "p_time AS PROCTIME()"
        place = f"FILES('{folder}/json', format = 'json', bounded = true)"
        said.append(f"CREATE SOURCE {kind} ({COLUMNS[kind]}, {clock}) FROM {place}")
    if this.case == "nexmark-q13":
        said.append("CREATE TABLE side_input (key BIGINT PRIMARY KEY, value STRING)")
    return ";\n".join(said)


def by_sql(this: Asked, home: ms.Home, data: dict[str, str], files: Path) -> float:
    """Ask in SQL; the seconds until everything was read."""
    started = this.options.get("retract", "yes") == "yes"
    session = home.session(start=started)
    list(session.execute(sources(this, data)))
    if this.case == "nexmark-q13":
        keys = list(range(SIDE_ROWS))
        home.put_table("side_input", pa.table({"key": keys, "value": [str(key) for key in keys]}))
    form = form_of(this)
    head = "CREATE VIEW result" if form == "view" else f"CREATE SINK result INTO FILES('{files}', format = '{form}')"
    begin = time.perf_counter()
    list(session.execute(f"{head} AS {this.sql}"))
    if started:
        (run,) = session.deployment.runs.values()
        run.wait()
    else:
        planned = session.deployment.planned(session.deployment.flow_of("result"))
        assert planned is not None
        home.open_home.start(planned, LoopOptions()).wait()
    return time.perf_counter() - begin


def by_process(this: Asked, home: ms.Home, data: dict[str, str], files: Path) -> float:
    """A count per bidder by a function with state."""
    flow = ms.Flow("bench")
    place = ms.files(f"{data['bid']}/json", format="json", bounded=True)
    bids = flow.source("bid", place, schema=COLUMNS["bid"], event_time="dateTime", lateness=f"{this.lateness} seconds")
    made = bids.key_by("bidder").process(counted, schema="bidder BIGINT, bids BIGINT", state=Seen)
    if form_of(this) == "view":
        made.view("result")
    else:
        made.sink("result", ms.files(str(files), format="parquet"))
    begin = time.perf_counter()
    home.start(flow).wait()
    return time.perf_counter() - begin


def run(this: Asked, data: dict[str, str], name: str) -> tuple[float, pa.Table]:
    """One whole run in a fresh home: its seconds and its rows."""
    files = Path(this.work) / f"files-{name}"
    with ms.open(Path(this.work) / f"home-{name}", memory=this.options.get("memory", "2g")) as home:
        seconds = (by_sql if this.sql else by_process)(this, home, data, files)
        if form_of(this) == "view":
            return seconds, home.query("SELECT * FROM result").to_arrow()
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        found = f"'{files}/*.parquet'"
        if form_of(this) == "csv":
            found = f"read_csv('{files}/*.csv', types={{'dt': 'VARCHAR', 'hm': 'VARCHAR', 'dateTime': 'TIMESTAMPTZ'}})"
        return seconds, duck.sql(f"FROM {found}").to_arrow_table()


def profiled() -> cProfile.Profile:
    """Profile the loop of every flow from now on, in the thread that it runs in."""
    profile, step = cProfile.Profile(), FlowLoop.step

    def watched(self: FlowLoop) -> Any:
        profile.enable()
        try:
            return step(self)
        finally:
            profile.disable()

    FlowLoop.step = watched  # type: ignore[method-assign]
    return profile


def main() -> None:
    this = asked()
    warm, rows = run(this, this.warm_up, "warm-up")
    pq.write_table(rows, this.out_warm_up)
    run(this, this.data, "warm-up-2")
    path = this.options.get("profile")
    profile = profiled() if path else None
    seconds, rows = run(this, this.data, "timed")
    pq.write_table(rows, this.out)
    if profile is not None:
        with open(str(path), "w") as file:
            stats = pstats.Stats(profile, stream=file)
            stats.sort_stats("tottime").print_stats(45).sort_stats("cumulative").print_stats(60)
    answer(seconds, INSIDE, ms.__version__, warm_up_seconds=warm, rows=rows.num_rows, out=form_of(this))


if __name__ == "__main__":
    main()
