"""Millstream: continuous queries over streams, in Python, on Spark.

import millstream as ms

flow = ms.Flow("auctions")
bids = flow.source("bids", ms.files("data/bids", format="json"),
                   schema="auction BIGINT, price BIGINT, ts TIMESTAMP", event_time="ts", lateness="4 seconds")
bids.key_by("auction").window(ms.tumbling("10 seconds")).aggregate(bids=ms.count()).view("hot_auctions")

with ms.open("./home") as home, home.start(flow) as run:
    run.catch_up()
    print(home.query("SELECT * FROM hot_auctions ORDER BY bids DESC LIMIT 10"))
"""

from __future__ import annotations

from pathlib import Path

import millstream.log  # noqa: F401 - the package first, or a later import of it would hide the function of this name
from millstream.clock import ManualClock, SystemClock
from millstream.errors import MillstreamError
from millstream.home import Home, standby
from millstream.model.accumulation import accumulating, discarding, retracting
from millstream.model.aggregate import (
    Aggregator,
    avg,
    collect,
    count,
    count_distinct,
    first,
    last,
    max,
    min,
    stddev,
    sum,
    user_aggregate,
    variance,
)
from millstream.model.connector import console, files, generator, log, memory, spark_stream
from millstream.model.expression import Expr, col, expr
from millstream.model.flow import Flow
from millstream.model.stream import Stream, merge
from millstream.model.trigger import (
    after_count,
    after_delay,
    after_fraction,
    after_watermark,
    all_of,
    any_of,
    every,
    in_order,
    on_change,
    on_close,
    once,
    repeatedly,
    until,
)
from millstream.model.window import Window, everything, hopping, tumbling
from millstream.model.window_kinds import calendar, count_window, cumulating, custom, session
from millstream.nexmark import nexmark
from millstream.reader import Reader
from millstream.result import Result
from millstream.runtime.run import Run
from millstream.runtime.supervisor import Restarts

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "Expr",
    "Flow",
    "Home",
    "ManualClock",
    "MillstreamError",
    "Reader",
    "Restarts",
    "Result",
    "Run",
    "Stream",
    "SystemClock",
    "Window",
    "accumulating",
    "after_count",
    "after_delay",
    "after_fraction",
    "after_watermark",
    "all_of",
    "any_of",
    "avg",
    "calendar",
    "col",
    "collect",
    "connect",
    "console",
    "count",
    "count_distinct",
    "count_window",
    "cumulating",
    "custom",
    "discarding",
    "every",
    "everything",
    "expr",
    "files",
    "first",
    "generator",
    "hopping",
    "in_order",
    "last",
    "log",
    "max",
    "memory",
    "merge",
    "min",
    "nexmark",
    "on_change",
    "on_close",
    "once",
    "open",
    "repeatedly",
    "retracting",
    "session",
    "spark_stream",
    "standby",
    "stddev",
    "sum",
    "tumbling",
    "until",
    "user_aggregate",
    "variance",
]


def open(path: str | Path, *, memory: str = "2g") -> Home:
    """Open a home, making it if it is not there, and own it until it is closed. `memory` is for Spark's JVM."""
    return Home(path, memory=memory)


def connect(path: str | Path) -> Reader:
    """Read a home from any process, whether a flow runs in it or not."""
    return Reader(path)
