"""The protocol of kernels: one signature for every operator.

    advance(operator, inputs by side, states by name, clock, services) -> outcome

A kernel is a pure function on Polars frames: the same kernel runs in the driver, in a task on an executor, or in a
test. What it needs from outside (a condition that only Spark can evaluate, an outside system, the rounds of a loop) is
a service with an interface. A kernel is the value `KERNEL` of the module that has the same name as its operator's.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl

from millstream.kernels.hashing import xxhash64
from millstream.kernels.outcome import Outcome, StageClock, State
from millstream.kernels.scan_input import ScanInput
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.plan.operators.relations.join import PairCondition
from millstream.plan.operators.relations.loop import Loop

Inputs = Mapping[str, pl.DataFrame | None]
"""The rows or changes of an epoch by side; None: nothing arrived."""

States = Mapping[str, State]
"""The states of an operator by name."""


class Services(Protocol):
    """What kernels need from outside."""

    def holds(self, operator: Operator, condition: PairCondition, pairs: pl.DataFrame) -> pl.Series:
        """For which pairs of rows a condition holds."""
        ...

    def look_up(self, operator: AsyncLookup, questions: pl.DataFrame) -> pl.DataFrame:
        """The answers of a user's function (see `kernels/python/lookup.py`); the same for an epoch that is rerun."""
        ...

    def fixpoint(self, operator: Loop, tables: list[pl.DataFrame]) -> pl.DataFrame:
        """Repeat the body of a loop over tables until nothing changes."""
        ...

    def key_hash(self, operator: Operator, grouping_set: int) -> int:
        """The hash that scans compute for the keys of a grouping set without keys."""
        ...


class NoServices:
    """Services where there are none: in a task, for operators that need none."""

    def holds(self, operator: Operator, condition: PairCondition, pairs: pl.DataFrame) -> pl.Series:
        """Refused."""
        raise NotImplementedError(f"{operator.step}: conditions are evaluated in the driver")

    def look_up(self, operator: AsyncLookup, questions: pl.DataFrame) -> pl.DataFrame:
        """Refused."""
        raise NotImplementedError(f"{operator.step}: lookups are made in the driver")

    def fixpoint(self, operator: Loop, tables: list[pl.DataFrame]) -> pl.DataFrame:
        """Refused."""
        raise NotImplementedError(f"{operator.step}: loops are repeated in the driver")

    def key_hash(self, operator: Operator, grouping_set: int) -> int:
        """Spark's own hash of a number."""
        del operator
        return xxhash64(grouping_set)


NO_SERVICES = NoServices()

Advance = Callable[[Any, Inputs, States, StageClock, Services], Outcome]
"""One epoch of an operator."""


def _never(operator: Any, state: State, clock: StageClock) -> bool:
    del operator, state, clock
    return False


def by_expiry(operator: Any, rows: pl.DataFrame) -> np.ndarray:
    """When rows of state may be forgotten: what they say themselves."""
    del operator
    expiry: np.ndarray = rows["$x"].to_numpy()
    return expiry


@dataclass(frozen=True)
class Kernel:
    """What there is to run of an operator."""

    advance: Advance
    is_due: Callable[[Any, State, StageClock], bool] = _never
    """Whether a state that holds something has something to do by the clock alone."""
    expiry: Callable[[Any, pl.DataFrame], np.ndarray] = by_expiry
    """When each row of the first state may be forgotten."""
    scan: ScanInput | None = None
    """How it takes rows of scans, where it does."""


def kernel_of(operator: Operator) -> Kernel:
    """The kernel of an operator."""
    return _kernel(operator.kernel or operator.__module__.replace("millstream.plan.operators", "millstream.kernels", 1))


@functools.cache
def _kernel(module: str) -> Kernel:
    found: Kernel = importlib.import_module(module).KERNEL
    return found


def advance(
    operator: Operator, inputs: Inputs, states: States, clock: StageClock, services: Services = NO_SERVICES
) -> Outcome:
    """Run one epoch of an operator with its kernel."""
    return kernel_of(operator).advance(operator, inputs, states, clock, services)


class RowCount(Protocol):
    """What knows how many rows of state there are."""

    def rows(self, step: str) -> int:
        """Rows of a state."""
        ...


def lacks_its_row(operator: Operator, version: RowCount) -> bool:
    """Whether an operator that is never empty has not given its row yet: it has no state."""
    return operator.is_never_empty and not any(version.rows(operator.state_step(s)) for s in operator.states)
