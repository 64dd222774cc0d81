"""Temporal filters: rows that appear and disappear by the epoch's clock. Kernel:
`kernels/relations/temporal_filter.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from sqlglot import exp

from millstream.model.expression import Expr, col
from millstream.model.steps.relations.temporal_filter import Temporal
from millstream.plan.explain.node import plain
from millstream.plan.operators.operator import ExplainNames, Facts, Operator, lowers

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering

FROM = "$from"
"""The column with the first instant at which a row is visible, in micros."""
LEAVES = "$leaves"
"""The column with the first instant at which a row is no longer visible, in micros."""


@dataclass(frozen=True, eq=False)
class TemporalFilter(Operator):
    """Rows that are visible from one instant of the epoch's clock until another."""

    waits: bool
    """Whether rows appear at an instant of their own, instead of at once."""
    leaves: bool
    """Whether rows disappear at an instant of their own."""
    stays: bool
    """Whether a visible row stays visible."""
    condition: str
    """The condition in SQL, as the user wrote it."""

    title: ClassVar[str] = "temporal filter"
    format_name: ClassVar[str] = "Present"
    shows_keys: ClassVar[bool] = False
    by_clock: ClassVar[bool] = True

    @property
    def append_only(self) -> bool:
        """True if rows stay visible."""
        return self.stays

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of its input."""
        return (*(c for c in self.columns if c not in (FROM, LEAVES)), *self.marks)

    def facts(self, names: ExplainNames) -> Facts:
        """The condition, and the clock that drives it."""
        return [("where", plain(self.condition)), ("driven by", "the clock of each epoch, even without new rows")]

    @property
    def state_grows(self) -> bool:
        """Rows leave with the clock or with its input."""
        return False

    def state_text(self, names: ExplainNames) -> str:
        """The rows that will still appear or disappear."""
        if self.append_only:
            return "each row until its time comes"
        return "each row until its time is past" if self.leaves else "the rows of its input, until they are retracted"

    def content(self) -> object:
        """What its state depends on. The condition itself is in the columns that it reads."""
        return (self.waits, self.leaves, self.stays)


@lowers(Temporal)
def lower(lowering: StatefulLowering, name: str, step: Temporal) -> TemporalFilter:
    """The operator of the step. Its rows are distributed by all columns that can be keys."""
    read = lowering.needed.get(id(step), set(step.schema.names))
    fields = [f for f in step.input.schema if f.name in read] or list(step.input.schema)[:1]
    spans = ((FROM, step.since, "greatest"), (LEAVES, step.until, "least"))
    columns = [(f.name, col(f.name)) for f in fields] + [(n, _one_bound(b, f)) for n, b, f in spans if b]
    side = lowering.side(name, step.input, tuple(columns))
    keys = [f.name for f in fields if f.type is not None and not pa.types.is_nested(f.type)]
    keys += [n for n, _, _ in spans if n in side.columns]
    return lowering.operator(
        TemporalFilter,
        name,
        (side,),
        tuple(keys),
        waits=bool(step.since),
        leaves=bool(step.until),
        stays=side.append_only and not step.until,
        condition=step.condition.spark(),
    )


def _one_bound(bounds: tuple[Expr, ...], function: str) -> Expr:
    """Several bounds of a span as one, which is NULL if one of them is."""
    if len(bounds) == 1:
        return bounds[0]
    missing = exp.or_(*(exp.paren(b.node.copy()).is_(exp.null()) for b in bounds))
    return Expr(
        exp.Case(ifs=[exp.If(this=exp.not_(missing), true=exp.func(function, *(b.node.copy() for b in bounds)))])
    )
