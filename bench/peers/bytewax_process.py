"""Bytewax in a contest: `stateful_map` with one value of state per key, one process per core.

Every process reads one of the two files of `json-lanes`, parses its lines with orjson, and exchanges rows by key over
loopback. There is no warm-up: nothing in it is compiled while it runs. Without a recovery store its state is in memory
alone.
"""

# ruff: noqa: E402

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
sys.path.insert(0, str(Path(__file__).parents[2]))

import bytewax.operators as op
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow
from bytewax.testing import cluster_main

from bench.peers.bytewax import Lines, free_ports
from bench.peers.protocol import Asked, answer, asked

INSIDE = "start of the first process's dataflow to the end of the last's: reading, state, CSV; not imports"


def flow(this: Asked, out: str) -> Dataflow:
    """The dataflow; nothing runs yet."""

    def parse(line: str) -> tuple[str, None]:
        return str(orjson.loads(line)["bidder"]), None

    def count(state: int | None, _: None) -> tuple[int, int]:
        bids = (state or 0) + 1
        return bids, bids

    def line(counted: tuple[str, int]) -> str:
        return f"{counted[0]},{counted[1]}\n"

    made = Dataflow("counts")
    source = DirSource(Path(f"{this.data['bid']}/json-lanes"), batch_size=2_000)
    bids = op.map("parse", op.input("bids", made, source), parse)
    counted = op.stateful_map("count", bids, count)
    op.output("out", op.map("line", counted, line), Lines(out))
    return made


def worker(this: Asked, number: int, addresses: list[str]) -> None:
    """One process of the cluster; it says when its dataflow began and ended."""
    made = flow(this, f"{this.work}/rows-{number}.csv")
    begin = time.time()
    cluster_main(made, addresses, number)
    sys.stdout.write(json.dumps([begin, time.time()]) + "\n")


def main() -> None:
    this = asked()
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
    names = pa.csv.ReadOptions(column_names=["bidder", "bids"])
    tables = [pa.csv.read_csv(p, read_options=names) for p in Path(this.work).glob("rows-*.csv") if p.stat().st_size]
    pq.write_table(pa.concat_tables(tables), this.out)
    answer(seconds, INSIDE, version("bytewax"))


if __name__ == "__main__":
    main()
