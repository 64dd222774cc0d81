"""Lookups: a user's function that looks rows up in an external system, in batches, with a cache.

The kernel is `kernels/python/lookup.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from millstream.model.expression import col
from millstream.model.python.process import FAIL
from millstream.model.steps.lookup import Asked
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema
from millstream.plan.code_identity import code_identity
from millstream.plan.operators.operator import KEPT_INDEFINITELY, ExplainNames, Facts, Operator, Types, lowers
from millstream.plan.operators.python.process import error_fact

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, eq=False)
class AsyncLookup(Operator):
    """The results of a user's function for some columns of each row, called in batches and cached."""

    function: Callable[..., Any]
    function_name: str
    schema: Schema
    """The columns of a result."""
    required: bool = False
    """Whether rows without a result are dropped."""
    batch: int = 100
    parallel: int = 8
    timeout: int | None = None
    """How long one call may take, in micros."""
    retries: int = 3
    cache: int | None = None
    """How long a result is valid, in micros of processing time; None: permanently."""
    errors: str = FAIL
    redact: bool = False
    code: str = ""
    """The identity of the code, for comparing with kept state."""
    order: tuple[str, ...] = ()
    """The columns that give the order of its input rows."""

    format_name: ClassVar[str] = "Asking"
    sends_function: ClassVar[bool] = True

    @property
    def append_only(self) -> bool:
        """True: each row is looked up once."""
        return True

    @property
    def orders_rows(self) -> tuple[str, ...]:
        """The order of its input: each row gives at most one."""
        return self.order

    @property
    def carries_order(self) -> bool:
        """True: it adds columns to rows."""
        return True

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of the row, and of its result."""
        return (*self.columns, *self.schema.names)

    def bind(self, input_types: Types) -> tuple[Self, Types]:
        """The types of its results."""
        return self, {f.name: f.type for f in self.schema}

    def name(self) -> str:
        """That of the user's function."""
        return self.function_name

    def facts(self, names: ExplainNames) -> Facts:
        """How it calls the function."""
        limit = "" if self.timeout is None else f", {Duration(self.timeout)} each"
        how = f"{self.batch:,} rows per call, {self.parallel} calls in parallel{limit}, {self.retries} retries"
        return [("calls", how), error_fact(self.errors)]

    @property
    def state_grows(self) -> bool:
        """Unless results expire."""
        return self.cache is None

    def state_text(self, names: ExplainNames) -> str:
        """The results, as long as they are valid."""
        if self.cache is None:
            return f"results, {KEPT_INDEFINITELY}"
        return f"results, for {Duration(self.cache)} of processing time"

    def content(self) -> object:
        """The code, and the form of a result."""
        return (self.code, [(f.name, str(f.type)) for f in self.schema], self.required, self.cache)


@lowers(Asked)
def lower(lowering: StatefulLowering, name: str, step: Asked) -> AsyncLookup:
    """The operator of the step. Its rows come ordered by partition and offset."""
    row = tuple((n, col(n)) for n in step.input.schema.names)
    side = lowering.by_place(name, step.input, row)
    return lowering.operator(
        AsyncLookup,
        name,
        (side,),
        step.on,
        function=step.function,
        function_name=step.name,
        schema=step.answer.schema,
        required=step.required,
        batch=step.batch,
        parallel=step.parallel,
        timeout=step.timeout,
        retries=step.retries,
        cache=step.cache,
        errors=step.errors,
        redact=step.redact,
        code=code_identity(step.function),
        order=lowering.order_of(side),
    )
