"""An aggregate over append-only rows of another operator: one row of partials per key, against all rows kept.

.venv/bin/python -m bench.own.append_only [rows] [keys] [epochs]

Prints rows per second of the kernel with its state on disk, and the size of that state, for both ways.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from millstream.engine.driver.driver import states_of, write_outcome
from millstream.kernels.kernel import advance
from millstream.kernels.outcome import OperatorClock
from millstream.plan.operators.aggregates.changing_aggregation import ChangingAggregation
from millstream.plan.operators.inputs import Side
from millstream.plan.parts import Measure
from millstream.state.shard import RunCache
from millstream.state.version import Version

MEASURES = (Measure("n", "count", False), Measure("total", "sum", True, type=pa.int64()))


def measured(operator: ChangingAggregation, rows: int, keys: int, epochs: int, folder: Path) -> tuple[float, int]:
    """Rows per second, and bytes of state at the end."""
    numbers = np.random.default_rng(7)
    cache, version = RunCache(folder), Version()
    size = rows // epochs
    spent = 0.0
    for epoch in range(1, epochs + 1):
        frame = pl.DataFrame(
            {"$op": "+I", "k": numbers.integers(0, keys, size), "@total": numbers.integers(0, 10**6, size)}
        )
        began = time.perf_counter()
        states = states_of(cache, operator, version)
        outcome = advance(operator, {"rows": frame}, states, OperatorClock(0, 0, epoch=epoch))
        runs = write_outcome(cache, operator, outcome, f"{epoch:012d}-0")
        for spec in operator.states:
            step = operator.state_step(spec)
            version = version.advance(step, [r for r in runs if r.step == step], 0)
        spent += time.perf_counter() - began
    return size * epochs / spent, sum(p.stat().st_size for p in folder.rglob("*.arrow"))


def main() -> None:
    """Both ways over the same rows."""
    rows, keys, epochs = (int(a) for a in (*sys.argv[1:], *("2000000", "1000", "20")[len(sys.argv) - 1 :]))
    side = Side((), ("k", "@total"), append_only=True, types=(pa.int64(), pa.int64()))
    partials = ChangingAggregation("v", MEASURES, sides=(side,), keys=("k",))
    for name, operator in (("partials", partials), ("rows", replace(partials, ttl=2**60))):
        with tempfile.TemporaryDirectory() as folder:
            speed, size = measured(operator, rows, keys, epochs, Path(folder))
        print(
            f"{name:9} {speed:12,.0f} rows/s  {size / 2**20:9.1f} MiB of state after {epochs} epochs of {rows:,} rows"
        )


if __name__ == "__main__":
    main()
