"""Taking over a home: wait, ready to go on, until its owner dies or freezes."""

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
    lease: str | timedelta | Duration = "5 seconds",
) -> Home:
    """Wait, ready to go on with these flows, until the process that owns a home dies or freezes, and open it then.

    An owner that was not heard for the `lease` time is ended. An ``"active"`` standby performs the owner's epochs too,
    and throws away what comes out, so that it is as warm as the owner. Start the flows when this returns.
    """
    seconds = Duration.positive(lease, what="lease").micros / 1e6
    chosen = find(MEMORY, memory, home=Path(path)).value
    engines = SparkEngines(standby_log(Path(path)), memory=chosen)
    waiting = Standby(Path(path), [plan(f) for f in flows], mode, engines=engines, lease=seconds)
    try:
        waiting.warm()
        takeover = waiting.wait()
    finally:
        waiting.stop()
    assert takeover is not None
    return Home(path, memory=chosen, lock=takeover.lock)
