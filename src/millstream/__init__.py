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

# ruff: noqa: F403, F405 - the names of __all__ are those of public.py; a test compares the two

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.public import *

__version__ = "0.1.0"

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


_RENAMED: dict[str, str] = {}
"""Deprecated public names, each mapped to its replacement. The old names still work but emit a warning."""


class _Package(ModuleType):
    """The package; importing its modules `connect`, `log` and `nexmark` does not hide the functions of these names."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in __all__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Load public names and modules on first use: a command or a worker process imports only what it needs."""
    if name in __all__:
        from millstream import public

        globals().update({each: getattr(public, each) for each in __all__})
        return globals()[name]
    if name in _RENAMED:
        from millstream.deprecation import deprecated

        deprecated(f"millstream.{name}", f"millstream.{_RENAMED[name]}")
        return __getattr__(_RENAMED[name])
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    near = [] if name.startswith("_") else get_close_matches(name, __all__, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else ""
    msg = f"module `millstream` has no attribute `{name}`{hint}"
    raise AttributeError(msg, name=name)  # without `obj`: Python would search for similar names again


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
