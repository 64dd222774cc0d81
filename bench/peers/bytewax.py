"""Bytewax: its Rust runtime with Python operators, one process per core, a count with its own window
operators.

Every process reads one of the two files of `json-lanes` (the rows of `json`; both advance together), parses
the lines with orjson, and exchanges rows by key over loopback.
"""

# ruff: noqa: E402

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
sys.path.insert(0, str(Path(__file__).parents[2]))

import bytewax.operators as op
import bytewax.operators.windowing as win
import orjson
import pyarrow as pa
import pyarrow.csv
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

from bench.peers.protocol import Task, answer, task, write_result

INSIDE = "start of the first process's dataflow to the end of the last's: reading, windows, CSV; not imports"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Lines(DynamicSink[str], StatelessSinkPartition[str]):
    """The rows of one process, as lines of a CSV file."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w")

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Lines:
        return self

    def write_batch(self, items: list[str]) -> None:
        self._file.writelines(items)

    def close(self) -> None:
        self._file.close()


def flow(this: Task, out: str) -> Dataflow:
    """The dataflow; nothing runs yet."""
    slide = this.slide * 1_000_000
    lateness, length = timedelta(seconds=this.lateness), timedelta(seconds=this.size)
    source = DirSource(Path(f"{this.data}-lanes"), batch_size=2_000)

    def parse(line: str) -> tuple[str, datetime]:
        bid = orjson.loads(line)
        return str(bid[this.key]), datetime.fromisoformat(bid["date_time"])

    def line(counted: tuple[str, tuple[int, int]]) -> str:
        key, (window, bids) = counted
        return f"{key},{window * slide},{bids}\n"

    made = Dataflow("counts")
    bids = op.map("parse", op.input("bids", made, source), parse)
    # Its watermark also moves on with the wall clock, which drops rows as late whenever the machine is busy;
    # replaying a file, time is what the rows say, so the wall clock stands still.
    clock = win.EventClock(
        ts_getter=lambda at: at,
        wait_for_system_duration=lateness,
        now_getter=lambda: EPOCH,
        to_system_utc=lambda _: None,
    )
    windower = win.SlidingWindower(length=length, offset=timedelta(seconds=this.slide), align_to=EPOCH)
    counts = win.fold_window("count", bids, clock, windower, lambda: 0, lambda n, _: n + 1, lambda a, b: a + b)
    op.output("out", op.map("line", counts.down, line), Lines(out))
    return made


def worker(this: Task, number: int, addresses: list[str]) -> None:
    """One process of the cluster; it says when its dataflow began and ended."""
    made = flow(this, f"{this.work}/rows-{number}.csv")
    begin = time.time()
    cluster_main(made, addresses, number)
    sys.stdout.write(json.dumps([begin, time.time()]) + "\n")


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main() -> None:
    this = task()
    if len(sys.argv) > 2:
        worker(this, int(sys.argv[2]), sys.argv[3].split(","))
        return
    addresses = ",".join(f"127.0.0.1:{port}" for port in free_ports(os.cpu_count() or 1))
    command = [sys.executable, __file__, this.to_json()]
    processes: list[subprocess.Popen[Any]] = [
        subprocess.Popen([*command, str(i), addresses], stdout=subprocess.PIPE, text=True)
        for i in range(os.cpu_count() or 1)
    ]
    spans = [json.loads(each.communicate()[0].splitlines()[-1]) for each in processes]
    seconds = max(end for _, end in spans) - min(begin for begin, _ in spans)
    names = pa.csv.ReadOptions(column_names=["key", "start_us", "bids"])
    tables = [pa.csv.read_csv(p, read_options=names) for p in Path(this.work).glob("rows-*.csv") if p.stat().st_size]
    write_result(pa.concat_tables(tables), this.out)
    answer(seconds, INSIDE, version("bytewax"))


if __name__ == "__main__":
    main()
