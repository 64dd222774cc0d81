"""Stage values of Python operators: all that their kernels need to know. Free of Spark and sqlglot."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.model.python.process import FAIL, SKIP, Hooks, Output, Process
from millstream.model.python.typed_state import TypedState
from millstream.model.steps.process import TO, Asked, Processed, column_of
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema
from millstream.plan.operators.chained import Chained, Regroup
from millstream.plan.parts import Measure

Identify = Callable[[object], str]
"""What names a piece of code so that the name changes with it."""

_SET_APART = {FAIL: "fail the epoch", SKIP: "leave the row out, counted"}


@dataclass(frozen=True, eq=False)
class Processing:
    """A function over the rows of each key, in order, with state, timers, and a time to live."""

    function: Any
    name: str
    outputs: tuple[Output, ...]
    """Its result, then its side outputs."""
    held: TypedState | None = None
    """What is remembered of a key."""
    time: str | None = None
    """The column with the event time of a row."""
    ordered: bool = False
    """Whether rows come in the order of event time, all that are before the watermark."""
    ttl: int | None = None
    """For how long, in micros, a key is remembered that nothing comes for."""
    by_clock: bool = False
    """Whether that goes by processing time."""
    errors: str = FAIL
    redact: bool = False
    """Whether messages leave out what is in a row."""
    code: str = ""
    """Names the code, for comparing with kept state."""
    only_inserts = True
    """What it has given it does not take back."""

    @classmethod
    def of(cls, step: Processed, identify: Identify) -> Processing:
        """The stage value of a step."""
        return cls(
            step.function,
            step.name,
            step.outputs,
            step.state,
            step.time,
            step.ordered,
            step.ttl,
            step.by_clock,
            step.errors,
            step.redact,
            _code(step.function, identify),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its results: those of its own, then those of side outputs under names that tell them apart."""
        if len(self.outputs) == 1:
            return self.outputs[0].schema.names
        return (TO, *(column_of(i, n) for i, o in enumerate(self.outputs) for n in o.schema.names))

    def result(self, stage: Chained) -> tuple[str, ...]:
        """The columns of its results, in a stage."""
        return self.columns

    def types(self, known: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """The types of its results."""
        found = {column_of(i, f.name): f.type for i, o in enumerate(self.outputs) for f in o.schema}
        return {TO: pa.int32(), **found}

    @property
    def identity(self) -> object:
        """What its state fits: the code, the state, what it gives, and how time counts."""
        cells = [] if self.held is None else [(c.name, str(c.type)) for c in self.held.cells]
        outputs = [(o.name, [(f.name, str(f.type)) for f in o.schema]) for o in self.outputs]
        return (self.code, cells, outputs, self.time, self.ordered, self.ttl, self.by_clock)

    def facts(self, stage: Chained) -> list[tuple[str, str]]:
        """What it does, for a person."""
        order = f"by {self.time}, behind the watermark" if self.ordered else "as they come"
        facts = [("runs", "Python"), ("order", order)]
        sides = [o.name for o in self.outputs[1:]]
        if sides:
            facts.append(("side outputs", ", ".join(sides)))
        if Hooks.of(self.function).on_timer is not None:
            facts.append(("timers", "by event time and by the clock"))
        return [*facts, ("errors", _SET_APART.get(self.errors, "set the row apart in `$errors`"))]

    def state(self, stage: Chained) -> str:
        """What is kept, and for how long."""
        kept = "timers" if self.held is None else ", ".join(self.held.names)
        per = "per key" if stage.keys else "once"
        if self.ttl is None:
            return f"{kept} {per}, for good" if stage.keys else "one row, for good"
        clock = "processing time" if self.by_clock else "event time"
        return f"{kept} {per}, until nothing came for {Duration(self.ttl)} of {clock}"


@dataclass(frozen=True, eq=False)
class Asking:
    """Answers of a function to some columns of each row, asked in batches and remembered."""

    function: Callable[..., Any]
    name: str
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
    only_inserts = True
    """Rows that are only added are answered once."""

    @classmethod
    def of(cls, step: Asked, identify: Identify) -> Asking:
        """The stage value of a step."""
        return cls(
            step.function,
            step.name,
            step.answer.schema,
            step.required,
            step.batch,
            step.parallel,
            step.timeout,
            step.retries,
            step.cache,
            step.errors,
            step.redact,
            identify(step.function),
        )

    def result(self, stage: Chained) -> tuple[str, ...]:
        """The columns of its results: those of the row, and of its answer."""
        return (*stage.columns, *self.schema.names)

    def types(self, known: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """The types of its answers."""
        return {f.name: f.type for f in self.schema}

    @property
    def identity(self) -> object:
        """What its state fits: the code, and what an answer is."""
        return (self.code, [(f.name, str(f.type)) for f in self.schema], self.required, self.cache)

    def facts(self, stage: Chained) -> list[tuple[str, str]]:
        """What it does, for a person."""
        limit = "" if self.timeout is None else f", {Duration(self.timeout)} each"
        how = f"{self.batch:,} at a time, {self.parallel} times at once{limit}, {self.retries} retries"
        return [("asks", how), ("errors", _SET_APART.get(self.errors, "set the row apart in `$errors`"))]

    def state(self, stage: Chained) -> str:
        """What is kept, and for how long."""
        return "answers, for good" if self.cache is None else f"answers, for {Duration(self.cache)} of processing time"


@dataclass(frozen=True, eq=False)
class Folded(Regroup):
    """Aggregates of the rows that are there now, per key, all of which can take a value back: no rows are kept."""

    name = "aggregate of changing rows"

    @classmethod
    def of(cls, measures: tuple[Measure, ...]) -> Folded | None:
        """The stage value of these measures; None where one of them needs the rows."""
        able = all(m.kind == "count" or callable(getattr(m.user, "retract", None)) for m in measures)
        return cls(measures) if able and any(m.user is not None for m in measures) else None


def _code(function: Any, identify: Identify) -> str:
    """A name of a function, or of all methods of a process and what it holds."""
    if not isinstance(function, Process) and not hasattr(function, "on_row") and not hasattr(function, "on_rows"):
        return identify(function)
    methods: dict[str, object] = {}
    for kind in reversed(type(function).__mro__):
        if kind not in (object, Process):
            methods.update({n: m for n, m in vars(kind).items() if inspect.isfunction(m)})
    named = ",".join(f"{n}={identify(m)}" for n, m in sorted(methods.items()))
    return f"{identify(function)}({named})"


__all__ = ["TO", "Asking", "Folded", "Processing", "column_of"]
