"""Everything that `millstream` offers to its users; `millstream/__init__.py` loads it on first use.

The functions here are the ways to a home: own it, read it, or wait as a standby until its owner is gone.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from millstream.clock import ManualClock, SystemClock
from millstream.connect.nexmark_source import nexmark
from millstream.connect.registry import register as register_connector
from millstream.engine.spark_engines import SparkEngines
from millstream.errors import MillstreamError
from millstream.home import Home
from millstream.model.aggregates.aggregate import (
    Aggregator,
    any_value,
    avg,
    bool_and,
    bool_or,
    collect,
    collect_set,
    count,
    count_distinct,
    count_if,
    first,
    last,
    max,
    max_by,
    min,
    min_by,
    stddev,
    sum,
    user_aggregate,
    variance,
)
from millstream.model.aggregates.approximate import (
    approx_count_distinct,
    approx_f2,
    approx_percentile,
    approx_top_k,
    sample,
)
from millstream.model.aggregates.distribution import (
    kurtosis,
    median,
    mode,
    percentile,
    percentile_disc,
    skewness,
    stddev_pop,
    var_pop,
)
from millstream.model.connector import connector
from millstream.model.connectors import console, files, generator, log, memory, spark_stream
from millstream.model.expression import Expr, col, expr
from millstream.model.flow import Flow
from millstream.model.patterns.pattern import Pattern, pattern
from millstream.model.python.process import Context, Process, Timer
from millstream.model.steps.window_functions import (
    cume_dist,
    dense_rank,
    lag,
    lead,
    ntile,
    percent_rank,
    rank,
    row_number,
)
from millstream.model.streams.stream import Stream, merge
from millstream.model.types.duration import Duration
from millstream.model.windows.accumulation import accumulating, discarding, retracting
from millstream.model.windows.kinds import calendar, count_window, cumulating, custom, session
from millstream.model.windows.trigger import (
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
from millstream.model.windows.window import Window, everything, hopping, tumbling
from millstream.plan.planner import plan
from millstream.reader import Reader
from millstream.result import Result
from millstream.runtime.supervision.run import Run
from millstream.runtime.supervision.standby import Standby, standby_log
from millstream.runtime.supervision.supervisor import Restarts
from millstream.settings import HOME, MEMORY, find

__all__ = [
    "Aggregator",
    "Context",
    "Expr",
    "Flow",
    "Home",
    "ManualClock",
    "MillstreamError",
    "Pattern",
    "Process",
    "Reader",
    "Restarts",
    "Result",
    "Run",
    "Stream",
    "SystemClock",
    "Timer",
    "Window",
    "accumulating",
    "after_count",
    "after_delay",
    "after_fraction",
    "after_watermark",
    "all_of",
    "any_of",
    "any_value",
    "approx_count_distinct",
    "approx_f2",
    "approx_percentile",
    "approx_top_k",
    "avg",
    "bool_and",
    "bool_or",
    "calendar",
    "col",
    "collect",
    "collect_set",
    "connect",
    "connector",
    "console",
    "count",
    "count_distinct",
    "count_if",
    "count_window",
    "cume_dist",
    "cumulating",
    "custom",
    "dense_rank",
    "discarding",
    "every",
    "everything",
    "expr",
    "files",
    "first",
    "generator",
    "hopping",
    "in_order",
    "kurtosis",
    "lag",
    "last",
    "lead",
    "log",
    "max",
    "max_by",
    "median",
    "memory",
    "merge",
    "min",
    "min_by",
    "mode",
    "nexmark",
    "ntile",
    "on_change",
    "on_close",
    "once",
    "open",
    "pattern",
    "percent_rank",
    "percentile",
    "percentile_disc",
    "rank",
    "register_connector",
    "repeatedly",
    "retracting",
    "row_number",
    "sample",
    "session",
    "skewness",
    "spark_stream",
    "standby",
    "stddev",
    "stddev_pop",
    "sum",
    "tumbling",
    "until",
    "user_aggregate",
    "var_pop",
    "variance",
]


def open(
    path: str | Path | None = None,
    *,
    memory: str | None = None,
    spark_master: str | None = None,
    state: str | None = None,
    query_timeout: float | None = None,
    query_memory: str | None = None,
) -> Home:
    """Open a home, creating it if it does not exist, and own it until it is closed.

    `memory` is the memory of Spark's Java process (``"4g"``), `spark_master` the Spark master that runs the jobs
    (``"spark://host:7077"``). `state` is the URI under which state is kept, if it is not in the home
    (``"s3://bucket/prefix"``). A query may run for `query_timeout` seconds and use `query_memory` bytes (``"512MB"``);
    0 means no limit. Arguments that are omitted, including the path (`home`), are looked up in the environment and in
    ``millstream.toml``. docs/guide/configuration.md lists the settings and their defaults.
    """
    return Home(
        _home(path),
        memory=memory,
        spark_master=spark_master,
        state=state,
        query_timeout=query_timeout,
        query_memory=query_memory,
    )


def connect(path: str | Path | None = None) -> Reader:
    """Read a home from any process, whether or not a flow is running in it. Without a path, use the `home` setting."""
    return Reader(_home(path))


def standby(
    path: str | Path,
    *flows: Flow,
    mode: str = "passive",
    memory: str | None = None,
    spark_master: str | None = None,
    lease: str | timedelta | Duration = "5 seconds",
) -> Home:
    """Wait as a standby, ready to run these flows, until the process that owns the home dies or freezes. Then open the
    home.

    An owner that gives no sign of life for the `lease` time is killed. An ``"active"`` standby also computes the
    owner's epochs and discards the output, so that its caches are as warm as the owner's. Start the flows when this
    returns.
    """
    seconds = Duration.positive(lease, what="lease").micros / 1e6
    chosen = find(MEMORY, memory, home=Path(path)).value
    engines = SparkEngines(standby_log(Path(path)), memory=chosen, master=spark_master)
    waiting = Standby(Path(path), [plan(f) for f in flows], mode, engines=engines, lease=seconds)
    try:
        waiting.warm()
        takeover = waiting.wait()
    finally:
        waiting.stop()
    assert takeover is not None
    return Home(path, memory=chosen, spark_master=spark_master, lock=takeover.lock)


def _home(path: str | Path | None) -> Path:
    return Path(path) if path is not None else Path(find(HOME).value).expanduser()
