"""Taking over a home: wait as a standby until its owner dies or freezes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from millstream.engine.spark_engines import SparkEngines
from millstream.home import Home
from millstream.model.flow import Flow
from millstream.model.types.duration import Duration
from millstream.plan.planner import plan
from millstream.runtime.supervision.standby import Standby, standby_log
from millstream.settings import MEMORY, find


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
