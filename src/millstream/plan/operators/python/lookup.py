"""Lookups: a user's function that answers rows from an outside system, in batches, with a cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from millstream.model.expression import col
from millstream.model.python.process import FAIL
from millstream.model.steps.process import Asked
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema
from millstream.plan.code_identity import code_identity
from millstream.plan.operators.operator import PERMANENT, ExplainNames, Facts, Operator, Types, lowers
from millstream.plan.operators.python.process import error_fact

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, eq=False)
class AsyncLookup(Operator):
    """The answers of a user's function for some columns of each row, called in batches and remembered."""

    function: Callable[..., Any]
    function_name: str
    schema: Schema
    """The columns that an answer has."""
    required: bool = False
    """Whether rows without an answer go away."""
    batch: int = 100
    parallel: int = 8
    timeout: int | None = None
    """How long one call may take, in micros."""
    retries: int = 3
    cache: int | None = None
    """For how long an answer is good, in micros of processing time; None: for good."""
    errors: str = FAIL
    redact: bool = False
    code: str = ""
    """Names the code, for comparing with kept state."""

    format_name: ClassVar[str] = "Asking"

    @property
    def append_only(self) -> bool:
        """A row is answered once."""
        return True

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of the row, and of its answer."""
        return (*self.columns, *self.schema.names)

    def bind(self, known: Types) -> tuple[Self, Types]:
        """The types of its answers."""
        return self, {f.name: f.type for f in self.schema}

    def name(self) -> str:
        """That of the user's function."""
        return self.function_name

    def facts(self, names: ExplainNames) -> Facts:
        """How it calls."""
        limit = "" if self.timeout is None else f", {Duration(self.timeout)} each"
        how = f"{self.batch:,} at a time, {self.parallel} times at once{limit}, {self.retries} retries"
        return [("asks", how), error_fact(self.errors)]

    def state_text(self, names: ExplainNames) -> str:
        """The answers, as long as they are good."""
        if self.cache is None:
            return f"answers, {PERMANENT}"
        return f"answers, for {Duration(self.cache)} of processing time"

    def content(self) -> object:
        """The code, and what an answer is."""
        return (self.code, [(f.name, str(f.type)) for f in self.schema], self.required, self.cache)


@lowers(Asked)
def lower(lowering: StatefulLowering, name: str, step: Asked) -> AsyncLookup:
    """The operator of the step; its rows come by partition and offset."""
    row = tuple((n, col(n)) for n in step.input.schema.names)
    return lowering.operator(
        AsyncLookup,
        name,
        (lowering.by_place(name, step.input, row),),
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
    )
