"""Decides whether time alone makes an epoch due: a window closes or fires, or a row appears or expires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.clock import END_OF_TIME
from millstream.kernels.kernel import kernel_of, lacks_its_row
from millstream.kernels.outcome import OperatorClock
from millstream.plan.plan import Plan
from millstream.state.shard import StateReader
from millstream.state.version import Version


@dataclass(frozen=True)
class EpochClock:
    """The time of an epoch: the processing time, the watermarks of the sources, and those for fractions of records."""

    now: int
    watermarks: Mapping[str, int]
    fractions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class Timers:
    """Checks the state of a flow for what is due. Used by the flow's thread."""

    def __init__(self, plan: Plan, cache: Any) -> None:
        self._plan, self._cache = plan, cache
        self._quiet: tuple[Any, int] | None = None
        """The version and watermarks at which nothing was due, and the processing time until which that holds."""

    def is_due(self, epoch: int, version: Version, last: EpochClock, next: EpochClock) -> bool:
        """Whether time alone changes something between the clock of the last epoch and that of the next one."""
        if any(lacks_its_row(operator, version) for operator in self._plan.stateful):
            return True
        if any(not version.rows(step) for step in self._plan.constants):
            return True
        seen = (epoch, dict(next.watermarks), dict(next.fractions))
        if self._quiet is not None and self._quiet[0] == seen and next.now < self._quiet[1]:
            return False
        fractions = {s: {float(f): w for f, w in by.items()} for s, by in next.fractions.items()}
        first_timer: int = END_OF_TIME
        for operator in self._plan.stateful:
            clock = OperatorClock.of(operator, last.watermarks, next.watermarks, next.now, fractions, last.now)
            for spec in operator.states[:1] if operator.reads_scans else operator.states:
                step = operator.state_step(spec)
                if version.rows(step):
                    state = StateReader(self._cache, version.of(step), list(spec.unique))
                    if kernel_of(operator).is_due(operator, state, clock):
                        return True
                    first_timer = min(first_timer, state.next("$pd", next.now))
        self._quiet = (seen, first_timer)
        return False

    def holds_rows_for_later(self, version: Version, now: int) -> bool:
        """Whether a temporal filter holds rows that appear or expire after `now`."""
        steps = [o.step for o in self._plan.stateful if o.by_clock]
        return any(StateReader(self._cache, version.of(step), ()).next("$pd", now) < END_OF_TIME for step in steps)
