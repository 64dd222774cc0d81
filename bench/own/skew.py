"""One key with half of all rows against uniform keys: an aggregate, a join and a top-N, all spread over the executors.

Both kinds of rows run in turn, each in a fresh home. The first files are not timed: they show which keys are hot, and
the JVM is warm after them. Every result is compared with what NumPy computes from the same rows. Both kinds have the
same number of rows and of pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import millstream as ms
from bench.own import feed, turns
from bench.own.turns import FILES, WARM_FILES

ROWS = 4_000_000
HOT_KEY = 7


def measure(work: Path, events: int | None) -> dict[str, Any]:
    rows = events or ROWS
    figures: dict[str, Any] = {"rows": rows, "files": FILES}
    for name, build in (("aggregate", _aggregate), ("join", _join), ("top", _top)):
        runs = {kind: partial(_timed, name, build, rows, kind) for kind in ("uniform", "skewed")}
        seconds = turns.in_turn(f"skew {name}", work / name, runs)
        figures[f"{name}_uniform_rows_per_s"] = rows * (FILES - WARM_FILES) / FILES / turns.middle(seconds["uniform"])
        figures[f"{name}_skewed_over_uniform"] = turns.ratio(seconds["skewed"], seconds["uniform"], goal=1.5)
    return figures


def _keys(rows: int, kind: str) -> feed.Longs:
    random = np.random.default_rng(1)
    keys = random.integers(100, 100 + max(rows // 4, 1), rows)
    return np.where(random.random(rows) < 0.5, HOT_KEY, keys) if kind == "skewed" else keys


def _aggregate(bids: ms.Stream, others: ms.Stream) -> ms.Stream:
    """An aggregate of an aggregate, so that the view has one row."""
    del others
    return bids.key_by("auction").aggregate(n=ms.count()).aggregate(n=ms.sum("n"))


def _join(bids: ms.Stream, others: ms.Stream) -> ms.Stream:
    return bids.join(others, on="auction").aggregate(n=ms.count())


def _top(bids: ms.Stream, others: ms.Stream) -> ms.Stream:
    del others
    return bids.key_by("auction").top(2, "bidder").aggregate(n=ms.count())


def _expected(name: str, keys: feed.Longs) -> int:
    counts = np.unique(keys, return_counts=True)[1]
    return int(np.minimum(counts, 2).sum()) if name == "top" else len(keys)


def _timed(name: str, build: Callable[[ms.Stream, ms.Stream], ms.Stream], rows: int, kind: str, work: Path) -> float:
    keys = _keys(rows, kind)
    bids, others = feed.Folder(work / "bids", "parquet"), feed.Folder(work / "others", "parquet")
    flow = ms.Flow("skew")
    stream = feed.source(flow, bids.path, "parquet", file_per_epoch=True)
    other = flow.source(
        "others", ms.files(str(others.path), format="parquet"), schema=feed.SCHEMA, event_time="date_time"
    )
    build(stream, other).view("result")
    others.release(others.stage(feed.one_each(np.unique(keys))))
    with ms.Home(work / "home") as home:
        seconds, found = turns.file_by_file(home, flow, bids, keys)
    if found != _expected(name, keys):
        raise SystemExit(f"skew {name} {kind}: the view has {found:,} instead of {_expected(name, keys):,}")
    return seconds
