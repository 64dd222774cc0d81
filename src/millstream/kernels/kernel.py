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

from millstream.errors import PlanError
from millstream.kernels.outcome import OperatorClock, Outcome, State
from millstream.kernels.scan_input import ScanInput
from millstream.kernels.spark_hash import xxhash64
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.plan.operators.relations.join import PairCondition
from millstream.plan.operators.relations.loop import Loop

Inputs = Mapping[str, pl.DataFrame | None]
"""The rows or changes of an epoch, by side. None means that nothing arrived."""

COMBINED = "combined"
"""The input with rows that were combined before they were sent."""

States = Mapping[str, State]
"""The states of an operator, by name."""


class Services(Protocol):
    """The external services that kernels may call."""

    def holds(self, operator: Operator, condition: PairCondition, pairs: pl.DataFrame) -> pl.Series:
        """Evaluate a condition over pairs of rows."""
        ...

    def look_up(self, operator: AsyncLookup, requests: pl.DataFrame) -> pl.DataFrame:
        """Call a user's lookup function (see `kernels/python/lookup.py`). A rerun of an epoch gets the same results."""
        ...

    def fixpoint(self, operator: Loop, tables: list[pl.DataFrame]) -> pl.DataFrame:
        """Repeat the body of a loop over tables until it reaches a fixpoint."""
        ...

    def key_hash(self, operator: Operator, grouping_set: int) -> int:
        """The hash that scans compute for the keys of a grouping set without keys."""
        ...


class NoServices:
    """The services of a kernel that needs none."""

    def holds(self, operator: Operator, condition: PairCondition, pairs: pl.DataFrame) -> pl.Series:
        """Raise NotImplementedError: the engine evaluates conditions."""
        raise _no_service(operator, "evaluates conditions")

    def look_up(self, operator: AsyncLookup, requests: pl.DataFrame) -> pl.DataFrame:
        """Raise NotImplementedError: the engine performs lookups."""
        raise _no_service(operator, "performs lookups")

    def fixpoint(self, operator: Loop, tables: list[pl.DataFrame]) -> pl.DataFrame:
        """Raise NotImplementedError: the driver runs loops."""
        raise _no_service(operator, "runs loops")

    def key_hash(self, operator: Operator, grouping_set: int) -> int:
        """Spark's hash of a single number, computed without Spark."""
        del operator
        return xxhash64(grouping_set)


def _no_service(operator: Operator, does: str) -> NotImplementedError:
    return NotImplementedError(f"{operator.step}: nothing {does} where this kernel runs")


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
    shrink: Callable[[Any, pl.DataFrame], pl.DataFrame] | None = None
    """Combine rows that are on their way to an operator, if it `shrinks_input`: fewer rows that give the same results.
    They have the columns of the rows; or ``$h`` and others, and the kernel receives them as the input `COMBINED`.
    """


def kernel_of(operator: Operator) -> Kernel:
    """Find the kernel of an operator. Raises PlanError if there is none."""
    default = operator.__module__.replace("millstream.plan.operators", "millstream.kernels", 1)
    return _kernel(operator.kernel or default, type(operator).__name__)


@functools.cache
def _kernel(module: str, operator: str) -> Kernel:
    try:
        kernel = getattr(importlib.import_module(module), "KERNEL", None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and imports one that is not
        raise _no_kernel(operator, f"there is no module `{module}`") from error
    if not isinstance(kernel, Kernel):
        value = "it has no value KERNEL" if kernel is None else f"its KERNEL is a {type(kernel).__name__}"
        raise _no_kernel(operator, f"looked in the module `{module}`: {value}")
    return kernel


def _no_kernel(operator: str, detail: str) -> PlanError:
    return PlanError(
        f"the operator {operator} has no kernel",
        detail=detail,
        hint="define KERNEL = Kernel(advance) in that module, or name another module in the operator's `kernel`",
    )


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


def needs_first_row(operator: Operator, version: RowCount) -> bool:
    """Whether an operator that is never empty has not emitted its first row yet. It has no state in that case."""
    return operator.is_never_empty and not any(version.rows(operator.state_step(s)) for s in operator.states)
