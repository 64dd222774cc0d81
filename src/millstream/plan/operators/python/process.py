"""User code over the rows of each key: a process with state, timers and a time to live.

The kernel is `kernels/python/process.py`.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from millstream.errors import Unsupported
from millstream.model.expression import col
from millstream.model.python.process import FAIL, SKIP, Hooks, Output, Process
from millstream.model.python.typed_state import TypedState
from millstream.model.steps import step as steps
from millstream.model.steps.columns import plain_column
from millstream.model.steps.process import TO, Processed, column_of
from millstream.model.types.duration import Duration
from millstream.plan.code_identity import code_identity
from millstream.plan.operators.operator import KEPT_INDEFINITELY, ExplainNames, Facts, Operator, Types, lowers

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering

_ON_ERROR = {FAIL: "fail the epoch", SKIP: "skip the row, and count it"}


def error_fact(errors: str) -> tuple[str, str]:
    """What EXPLAIN reports about rows that user code fails on."""
    return ("errors", _ON_ERROR.get(errors, "move the row to `$errors`"))


@dataclass(frozen=True, eq=False)
class ProcessOperator(Operator):
    """A function over the rows of each key, in order, with state, timers, and a time to live."""

    function: Any
    function_name: str
    outputs: tuple[Output, ...]
    """Its result, then its side outputs."""
    held: TypedState | None = None
    """The state of a key."""
    time: str | None = None
    """The column with the event time of a row."""
    ordered: bool = False
    """Whether rows come in event-time order, once the watermark has passed them."""
    idle_ttl: int | None = None
    """For how long, in micros, a key without new rows is kept."""
    idle_by_clock: bool = False
    """Whether that is measured in processing time."""
    errors: str = FAIL
    redact: bool = False
    """Whether messages omit the content of rows."""
    code: str = ""
    """The identity of the code, for comparing with kept state."""

    format_name: ClassVar[str] = "Processing"

    @property
    def result_columns(self) -> tuple[str, ...]:
        """The columns of its own result, then those of side outputs under distinct names."""
        if len(self.outputs) == 1:
            return self.outputs[0].schema.names
        return (TO, *(column_of(i, n) for i, o in enumerate(self.outputs) for n in o.schema.names))

    @property
    def append_only(self) -> bool:
        """True: it does not retract what it has emitted."""
        return True

    @property
    def order_matters(self) -> bool:
        """The function is called row by row."""
        return True

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of its results."""
        return self.result_columns

    def bind(self, input_types: Types) -> tuple[Self, Types]:
        """The types of its results."""
        types = {column_of(i, f.name): f.type for i, o in enumerate(self.outputs) for f in o.schema}
        return self, {TO: pa.int32(), **types}

    def name(self) -> str:
        """That of the user's function."""
        return self.function_name

    def facts(self, names: ExplainNames) -> Facts:
        """How it is called."""
        order = f"by {self.time}, once the watermark has passed" if self.ordered else "as they arrive"
        facts = [("runs", "Python"), ("order", order)]
        sides = [o.name for o in self.outputs[1:]]
        if sides:
            facts.append(("side outputs", ", ".join(sides)))
        if Hooks.of(self.function).on_timer is not None:
            facts.append(("timers", "by event time and by processing time"))
        return [*facts, error_fact(self.errors)]

    @property
    def state_grows(self) -> bool:
        """With the number of keys, unless idle ones expire."""
        return bool(self.keys) and self.idle_ttl is None

    def state_text(self, names: ExplainNames) -> str:
        """What it keeps for a key."""
        kept = "timers" if self.held is None else ", ".join(self.held.names)
        per = "per key" if self.keys else "once"
        if self.idle_ttl is None:
            return f"{kept} {per}, {KEPT_INDEFINITELY}" if self.keys else f"one row, {KEPT_INDEFINITELY}"
        clock = "processing time" if self.idle_by_clock else "event time"
        return f"{kept} {per}, until no row arrived for {Duration(self.idle_ttl)} of {clock}"

    def content(self) -> object:
        """The code, the state, the output, and how time is measured."""
        cells = [] if self.held is None else [(c.name, str(c.type)) for c in self.held.cells]
        outputs = [(o.name, [(f.name, str(f.type)) for f in o.schema]) for o in self.outputs]
        return (self.code, cells, outputs, self.time, self.ordered, self.idle_ttl, self.idle_by_clock)


@lowers(Processed)
def lower(lowering: StatefulLowering, name: str, step: Processed) -> ProcessOperator:
    """The operator of the step. Its rows come in event-time order, or ordered by partition and offset."""
    row = tuple((n, col(n)) for n in step.input.schema.names)
    columns = (*row, *((n, e) for n, e in step.keys if plain_column(e) != n))
    if step.ordered or steps.changes(step.input):
        side = lowering.side(name, step.input, columns, ordered=True)
    else:
        side = lowering.by_place(name, step.input, columns)
    if not side.append_only and Hooks.of(step.function).on_retract is None:
        raise Unsupported(
            f"{step.name} reads rows that can change, but has no way to retract one",
            hint="add a method on_retract(row, state, ctx), or pass ordered=True if rows have an event time",
            origin=step.origin,
        )
    return lowering.operator(
        ProcessOperator,
        name,
        (side,),
        tuple(n for n, _ in step.keys),
        function=step.function,
        function_name=step.name,
        outputs=step.outputs,
        held=step.state,
        time=step.time,
        ordered=step.ordered,
        idle_ttl=step.ttl,
        idle_by_clock=step.by_clock,
        errors=step.errors,
        redact=step.redact,
        code=_code(step.function),
    )


def _code(function: Any) -> str:
    """The identity of a function, or of all methods of a process and the values it holds."""
    if not isinstance(function, Process) and not hasattr(function, "on_row") and not hasattr(function, "on_rows"):
        return code_identity(function)
    methods: dict[str, object] = {}
    for kind in reversed(type(function).__mro__):
        if kind not in (object, Process):
            methods.update({n: m for n, m in vars(kind).items() if inspect.isfunction(m)})
    named = ",".join(f"{n}={code_identity(m)}" for n, m in sorted(methods.items()))
    return f"{code_identity(function)}({named})"
