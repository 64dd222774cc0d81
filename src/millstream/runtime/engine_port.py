"""What the runtime asks of an engine. `engine/epoch.py` is the implementation; tests of recovery bring a small one."""

from __future__ import annotations

from typing import Any, Protocol

from millstream.plan.stages import Plan
from millstream.state.version import Version


class TapPort(Protocol):
    """Lands records in the log beside the epochs."""

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
