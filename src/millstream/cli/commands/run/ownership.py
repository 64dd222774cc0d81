"""How `millstream run` gets ownership of a home: at once, by waiting as a standby, or by killing a frozen owner."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.cli.commands.run.run import Shows
    from millstream.cli.signals import Stop
    from millstream.home import Home
    from millstream.model.flow import Flow
    from millstream.runtime.epoch.loop import EpochReport
    from millstream.runtime.supervision.standby import TakenOver


@contextmanager
def owned(
    flows: Sequence[Flow],
    path: Path,
    memory: str | None,
    master: str | None,
    state: str | None,
    stop: Stop,
    show: Shows,
    *,
    standby: str | None,
    take_over: bool,
) -> Iterator[tuple[Home, TakenOver | None] | None]:
    """The owned home and its previous owner, if it was taken over; None when a stop was requested before."""
    from millstream.engine.spark_engines import SparkEngines
    from millstream.home import Home
    from millstream.plan.planner import plan
    from millstream.runtime.supervision.lease import owner_of
    from millstream.runtime.supervision.standby import PASSIVE, Standby, standby_log
    from millstream.settings import MEMORY, find

    if standby is None and not take_over:
        with Home(path, memory=memory, spark_master=master, state=state) as home:
            yield home, None
        return
    chosen = find(MEMORY, memory, home=path).value
    engines = SparkEngines(standby_log(path), memory=chosen, master=master)
    waiting = Standby(path, [plan(f) for f in flows], standby or PASSIVE, engines=engines)
    try:
        if standby is not None:
            show.note(f"standby ({standby}): starting Spark ...")
            waiting.warm()
        owner = owner_of(path / "lock")
        show.note(f"waiting for {path}: it is in use by {owner.describe()}" if owner is not None else f"opening {path}")
        takeover = waiting.wait(lambda: stop.requested)
        if takeover is None:
            yield None
            return
        with Home(path, memory=chosen, spark_master=master, state=state, lock=takeover.lock) as home:
            yield home, takeover if takeover.before is not None else None
    finally:
        waiting.close()


class TakeoverGap:
    """Reports, once, for how long a flow made no progress during a takeover."""

    def __init__(self, flow: str, takeover: TakenOver | None, show: Shows) -> None:
        self._flow, self._takeover, self._show = flow, takeover, show

    def take(self, report: EpochReport) -> None:
        """The first epoch under the new owner ends the gap."""
        if self._takeover is None:
            return
        takeover, self._takeover = self._takeover, None
        before = f"process {takeover.before.pid}" if takeover.before is not None else "nobody"
        seconds = max(0.0, time.time() - takeover.closed[self._flow])
        self._show.note(
            f"{self._flow}: took over from {before}; no progress for {seconds:.1f} s, epoch {report.number}"
        )
