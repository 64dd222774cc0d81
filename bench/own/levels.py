"""Rows per second through one, two and three levels of exchange, with real kernels and their state.

One level is a count of all rows. Each further level before it is a top-1 whose keys are all different, so that every
row is exchanged, kept in state and passed on. Every flow ends in a view of one row, so the store costs nothing.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import millstream as ms
from bench.own import feed, turns
from bench.own.turns import FILES, WARM_FILES

ROWS = 2_000_000


def measure(work: Path, events: int | None) -> dict[str, Any]:
    rows = events or ROWS
    runs = {f"levels_{n}": partial(_timed, n, rows) for n in (1, 2, 3)}
    seconds = turns.in_turn("levels", work, runs)
    timed = rows * (FILES - WARM_FILES) / FILES
    figures: dict[str, Any] = {"rows": rows}
    for name, taken in seconds.items():
        figures[f"{name}_rows_per_s"] = timed / turns.middle(taken)
    one, three = (turns.middle(seconds[f"levels_{n}"]) for n in (1, 3))
    figures["us_per_row_and_level"] = 1e6 * (three - one) / 2 / timed
    return figures


def _timed(levels: int, rows: int, work: Path) -> float:
    folder = feed.Folder(work / "bids", "parquet")
    flow = ms.Flow("levels")
    stream = feed.source(flow, folder.path, "parquet", file_per_epoch=True).select("auction", "bidder", "price")
    for by in [("auction", "price"), ("auction", "bidder"), ("price", "auction")][: levels - 1]:
        stream = stream.key_by(*by).top(1, "bidder")  # every row is the first of its key
    stream.aggregate(n=ms.count()).view("result")
    keys = np.arange(rows, dtype=np.int64)
    with ms.Home(work / "home") as home:
        seconds, found = turns.file_by_file(home, flow, folder, keys)
    if found != rows:
        raise SystemExit(f"levels {levels}: the view counts {found:,} of {rows:,}")
    return seconds
