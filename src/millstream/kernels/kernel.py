"""The kernel protocol: one signature for every operator.

    advance(operator, inputs by side, states by name, clock, services) -> outcome

A kernel is a pure function on Polars frames. The same kernel runs in the driver, in a task on an executor, or in a
test. Whatever it needs from outside is a service with an interface: a condition that only Spark can evaluate, a call to
an external system, the iterations of a loop. The kernel of an operator is the value `KERNEL` in the module under
`kernels/` with the same name as the operator's module. The engine calls `advance` and handles the returned `Outcome`.
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
from millstream.kernels.outcome import OperatorClock, Outcome, State
from millstream.kernels.scan_input import ScanInput
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.plan.operators.relations.join import PairCondition
from millstream.plan.operators.relations.loop import Loop

Inputs = Mapping[str, pl.DataFrame | None]
"""The rows or changes of an epoch, by side. None means that nothing arrived."""

States = Mapping[str, State]
"""The states of an operator, by name."""


class Services(Protocol):
    """The external services that kernels may call."""

    def holds(self, operator: Operator, condition: PairCondition, pairs: pl.DataFrame) -> pl.Series:
        """Evaluate a condition over pairs of rows."""
        ...

    def look_up(self, operator: AsyncLookup, questions: pl.DataFrame) -> pl.DataFrame:
        """Call a user's lookup function (see `kernels/python/lookup.py`). A rerun of an epoch gets the same results."""
        ...

    def fixpoint(self, operator: Loop, tables: list[pl.DataFrame]) -> pl.DataFrame:
        """Repeat the body of a loop over tables until it reaches a fixpoint."""
        ...

    def key_hash(self, operator: Operator, grouping_set: int) -> int:
        """The hash that scans compute for the keys of a grouping set without keys."""
        ...


class NoServices:
    """The services of a task: it runs only operators that need none."""

    def holds(self, operator: Operator, condition: PairCondition, pairs: pl.DataFrame) -> pl.Series:
        """Raise NotImplementedError: only the driver evaluates conditions."""
        raise NotImplementedError(f"{operator.step}: conditions are evaluated in the driver")

    def look_up(self, operator: AsyncLookup, questions: pl.DataFrame) -> pl.DataFrame:
        """Raise NotImplementedError: only the driver performs lookups."""
        raise NotImplementedError(f"{operator.step}: lookups are made in the driver")

    def fixpoint(self, operator: Loop, tables: list[pl.DataFrame]) -> pl.DataFrame:
        """Raise NotImplementedError: only the driver runs loops."""
        raise NotImplementedError(f"{operator.step}: loops are repeated in the driver")

    def key_hash(self, operator: Operator, grouping_set: int) -> int:
        """Spark's hash of a single number, computed without Spark."""
        del operator
        return xxhash64(grouping_set)


NO_SERVICES = NoServices()

Advance = Callable[[Any, Inputs, States, OperatorClock, Services], Outcome]
"""The signature of a function that runs one epoch of an operator."""


def _never(operator: Any, state: State, clock: OperatorClock) -> bool:
    del operator, state, clock
    return False


def by_expiry(operator: Any, rows: pl.DataFrame) -> np.ndarray:
    """Read the expiry of state rows from their ``$x`` column."""
    del operator
    expiry: np.ndarray = rows["$x"].to_numpy()
    return expiry


@dataclass(frozen=True)
class Kernel:
    """The functions that run an operator."""

    advance: Advance
    is_due: Callable[[Any, State, OperatorClock], bool] = _never
    """Whether a non-empty state has work to do because of the clock alone, without input."""
    expiry: Callable[[Any, pl.DataFrame], np.ndarray] = by_expiry
    """The expiry of each row of the first state."""
    scan: ScanInput | None = None
    """How the operator reads rows of scans, if it does."""


def kernel_of(operator: Operator) -> Kernel:
    """Find the kernel of an operator."""
    return _kernel(operator.kernel or operator.__module__.replace("millstream.plan.operators", "millstream.kernels", 1))


@functools.cache
def _kernel(module: str) -> Kernel:
    found: Kernel = importlib.import_module(module).KERNEL
    return found


def advance(
    operator: Operator, inputs: Inputs, states: States, clock: OperatorClock, services: Services = NO_SERVICES
) -> Outcome:
    """Run one epoch of an operator with its kernel."""
    return kernel_of(operator).advance(operator, inputs, states, clock, services)


class RowCount(Protocol):
    """An object that knows how many rows each state has."""

    def rows(self, step: str) -> int:
        """The number of rows in a state."""
        ...


def lacks_its_row(operator: Operator, version: RowCount) -> bool:
    """Whether an operator that is never empty has not emitted its row yet. It has no state in that case."""
    return operator.is_never_empty and not any(version.rows(operator.state_step(s)) for s in operator.states)
