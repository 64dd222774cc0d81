"""Events per second through a process with one value state per key, from Parquet to its view, and of its kernel alone.

.venv/bin/python -m bench.own.process [events] [keys]
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import millstream as ms
from millstream.kernels.kernel import NO_SERVICES
from millstream.kernels.outcome import OperatorClock
from millstream.kernels.python.process import advance
from millstream.model.python.process import Output
from millstream.model.python.typed_state import TypedState
from millstream.model.types.schema import Schema
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.python.process import ProcessOperator
from millstream.state.run import StateRun
from millstream.state.shard import RunCache, StateReader

ROUNDS = 5


@dataclass
class Seen:
    count: int = 0


def counted(row: Any, state: Seen, ctx: ms.Context) -> tuple[int, int]:
    state.count += 1
    return (row.user, state.count)


def rows_of(events: int, keys: int) -> pa.Table:
    """Hits of users, each user as likely as the other."""
    numbers = np.random.default_rng(7)
    users = pa.array(numbers.integers(0, keys, events))
    return pa.table({"user": users, "price": pa.array(numbers.random(events))})


def kernel(table: pa.Table, epochs: int, folder: Path) -> float:
    """Events per second of the kernel, with its state on disk."""
    schema = Schema.parse("user BIGINT, n BIGINT")
    side = Side((), tuple(table.column_names), append_only=True, types=tuple(table.schema.types))
    spec = ProcessOperator(
        "v", counted, "counted", (Output("", schema),), TypedState.of(Seen), sides=(side,), keys=("user",)
    )
    frame = pl.DataFrame(table).with_columns(pl.lit("+I").alias("$op"))
    cache, runs = RunCache(folder), list[StateRun]()
    size = len(frame) // epochs
    began = time.perf_counter()
    for epoch in range(epochs):
        states = {"rows": StateReader(cache, runs, ("$h", "$a", "$b"))}
        inputs = {"rows": frame.slice(epoch * size, size)}
        outcome = advance(spec, inputs, states, OperatorClock(0, 0), NO_SERVICES)
        runs.append(RunCache(folder).write(f"v/{epoch:012d}-0.arrow", *outcome.state_rows["rows"]))
    return size * epochs / (time.perf_counter() - began)


def flow(folder: Path, home: Path) -> tuple[float, int]:
    """Seconds of a whole run from files to the view, and how many rows it has."""
    made = ms.Flow("process")
    hits = made.source(
        "hits", ms.files(str(folder), format="parquet", bounded=True), schema="user BIGINT, price DOUBLE"
    )
    hits.key_by("user").process(counted, schema="user BIGINT, n BIGINT", state=Seen).view("counts")
    with ms.open(home) as opened:
        began = time.perf_counter()
        with opened.start(made) as run:
            run.catch_up()
        seconds = time.perf_counter() - began
        return seconds, opened.query("SELECT count(*) AS n FROM counts").to_dicts()[0]["n"]


def main(events: int = 1_000_000, keys: int = 10_000) -> None:
    table = rows_of(events, keys)
    with tempfile.TemporaryDirectory() as work:
        for epochs in (1, 10):
            rates = [kernel(table, epochs, Path(work) / f"kernel-{epochs}-{i}") for i in range(ROUNDS)]
            print(f"kernel, {epochs:2} epochs: {sorted(rates)[ROUNDS // 2]:>10,.0f} events/s")
        folder = Path(work) / "hits"
        folder.mkdir()
        pq.write_table(table, folder / "hits.parquet")
        flow(folder, Path(work) / "warm")
        times = []
        for i in range(3):
            seconds, count = flow(folder, Path(work) / f"home-{i}")
            assert count == events
            times.append(seconds)
        print(f"whole flow:        {events / sorted(times)[1]:>10,.0f} events/s")


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
