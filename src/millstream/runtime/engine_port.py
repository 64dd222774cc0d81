"""The engine port: what the runtime requires of an engine. `engine/spark_engines.py` builds engines on Spark; recovery
tests use small ones. The runtime itself never touches Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from millstream.connect.port import SourcePort
from millstream.plan.plan import Plan
from millstream.state.flow_state import FlowState
from millstream.state.version import Version

PLACEMENTS = ("auto", "inline", "combined", "gathered", "spread")
"""The placements that an engine accepts. A placement never changes a result."""


class TapPort(Protocol):
    """Writes records to the log while epochs run."""

    def check(self) -> None:
        """Raise the error that stopped it, if any."""
        ...

    def close(self) -> None:
        """Stop landing records."""
        ...


class EnginePort(Protocol):
    """Runs the epochs of one bound plan."""

    plan: Plan
    cache: Any

    def run(self, version: Version, epoch_input: Any) -> Any:
        """Run one epoch; deterministic. Nothing that it writes counts until the returned version is committed."""
        ...


class EngineFactory(Protocol):
    """Builds the engines of a process."""

    def warm_up(self, plan: Plan | None = None) -> Future[Any]:
        """Start what engines need, in the background; `plan` is the first one that will run. The future returns the
        session that they share.
        """
        ...

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
    ) -> EnginePort:
        """Build an engine for a plan, with its state in these places. `tables` are the files of its stored tables.
        Without `shards`, an epoch has as many as the executors run tasks at once.
        """
        ...

    def taps(self, plan: Plan, sources: Mapping[str, SourcePort], folder: Path) -> Sequence[TapPort]:
        """Start landing the records of the plan's sources in the log while its flow runs."""
        ...


BuildEngine = Callable[[Plan, Mapping[str, SourcePort], FlowState], EnginePort]
"""Builds an engine from a plan, its sources and the places of its state, in place of the factory's engine."""
