"""What the runtime needs of an engine. `engine/spark_engines.py` builds engines on Spark; tests of recovery bring small
ones. The runtime itself never touches Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from millstream.connect.port import SourcePort
from millstream.plan.stages import Plan
from millstream.state.version import Version


class TapPort(Protocol):
    """Lands records in the log alongside the epochs."""

    def check(self) -> None:
        """Raise what stopped it, if anything has."""
        ...

    def close(self) -> None:
        """Stop landing."""
        ...


class EnginePort(Protocol):
    """Performs epochs of one bound plan."""

    plan: Plan
    cache: Any

    def run(self, version: Version, given: Any) -> Any:
        """Perform one epoch; deterministic. Leaves nothing behind that counts until the returned version is
        committed.
        """
        ...


class EngineFactory(Protocol):
    """Builds the engines of a process."""

    def warm_up(self, plan: Plan | None = None) -> Future[Any]:
        """Start what engines need, in the background; `plan` is the first one to be run. The future gives the session
        that they share.
        """
        ...

    def build(
        self,
        plan: Plan,
        sources: Mapping[str, SourcePort],
        state: Path,
        *,
        tables: Mapping[str, Path],
        placement: str,
        shards: int,
        retract: bool,
    ) -> EnginePort:
        """An engine for a plan that keeps its state in a folder; `tables` are the files of its stored tables."""
        ...

    def taps(self, plan: Plan, sources: Mapping[str, SourcePort], folder: Path) -> Sequence[TapPort]:
        """Start what lands records of the plan's sources in the log while its flow runs."""
        ...


BuildEngine = Callable[[Plan, Mapping[str, SourcePort], Path], EnginePort]
"""Builds another engine than the factory's from a plan, its sources and the folder for state."""
