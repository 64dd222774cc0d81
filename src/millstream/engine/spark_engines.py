"""Builds engines on the one Spark session of this process. pyspark is imported when an engine is first needed.

`runtime/` uses it as its factory of engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.connect.port import SourcePort
from millstream.plan.parts import Batches
from millstream.plan.plan import Plan
from millstream.state.flow_state import FlowState

if TYPE_CHECKING:
    from millstream.engine.epoch import Engine
    from millstream.engine.input.tap import Tap


class SparkEngines:
    """The factory of engines that a home uses. `log` is the file that Spark writes its messages to. Without a
    `master`, the settings name it.
    """

    def __init__(self, log: Path, *, memory: str = "2g", master: str | None = None) -> None:
        self.log, self.memory, self.master = log, memory, master

    def warm_up(self, plan: Plan | None = None) -> Future[Any]:
        """Start Spark, and what the functions of a plan need, in a separate thread."""
        from millstream.engine.spark import session

        python = plan is not None and any(isinstance(op, Batches) for scan in plan.scans for op in scan.ops)
        return session.begin(self.log, memory=self.memory, master=self.master, python=python)

    def build(
        self,
        plan: Plan,
        sources: Mapping[str, SourcePort],
        state: FlowState,
        *,
        tables: Mapping[str, Path],
        placement: str,
        shards: int | None,
        retract: bool,
    ) -> Engine:
        """An engine that performs the epochs of a plan."""
        from millstream.engine.epoch import Engine
        from millstream.engine.placement import Placement
        from millstream.engine.spark import session

        return Engine(
            session.start(self.log, memory=self.memory, master=self.master),
            plan,
            sources,
            state,
            tables=tables,
            placement=Placement(placement, shards),
            retract=retract,
            log=self.log,
        )

    def taps(self, plan: Plan, sources: Mapping[str, SourcePort], folder: Path) -> list[Tap]:
        """Start the taps of a plan: they write the records of Spark's own streams to the log."""
        if all(port.tap() is None for port in sources.values()):
            return []
        from millstream.engine.input.tap import taps
        from millstream.engine.spark import session

        spark = session.start(self.log, memory=self.memory, master=self.master)
        return taps(spark, plan.sources, sources, folder)
