"""Running the kernel of one operator by hand, with the states that a test brings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from millstream.kernels import kernel
from millstream.kernels.kernel import NO_SERVICES, Services, kernel_of
from millstream.kernels.outcome import OperatorClock, Outcome, State
from millstream.plan.operators.operator import Operator
from millstream.state.run import StateRun
from millstream.state.shard import RunCache


def advance(
    operator: Operator,
    rows: pl.DataFrame | None,
    state: State | Mapping[str, State],
    clock: OperatorClock,
    services: Services | None = None,
) -> Outcome:
    """One epoch of an operator with one input; its first state, or all of them by name."""
    states = state if isinstance(state, Mapping) else {operator.states[0].name: state}
    return kernel.advance(operator, {operator.side_names[0]: rows}, states, clock, services or NO_SERVICES)


def is_due(operator: Operator, state: State, clock: OperatorClock) -> bool:
    """Whether the clock alone is a reason for an epoch."""
    return kernel_of(operator).is_due(operator, state, clock)


def unique(operator: Operator) -> list[str]:
    """What makes a row of the first state unique."""
    return list(operator.states[0].unique)


def leaving(operator: Operator, rows: pl.DataFrame) -> Any:
    """When rows of the first state are forgotten."""
    return kernel_of(operator).expiry(operator, rows)


def write_first(root: Path, operator: Operator, outcome: Outcome, name: str) -> list[StateRun]:
    """Write what the first state has to keep."""
    spec = operator.states[0]
    kept = outcome.state_rows.get(spec.name)
    return [] if kept is None else [RunCache(root).write(f"{operator.state_step(spec)}/{name}.arrow", *kept)]
