"""Aggregation of changing rows. The kernel is `kernels/aggregates/changing_aggregation.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow as pa
from sqlglot import exp

from millstream.model.expression import Expr, col
from millstream.model.steps import event_times
from millstream.model.steps import step as steps
from millstream.model.steps.aggregation import Aggregated
from millstream.model.steps.columns import Named
from millstream.model.steps.step import Step
from millstream.model.types.schema import Schema
from millstream.plan.code_identity import code_identity
from millstream.plan.operators.measures import answer_type, bound_measures, measures_content
from millstream.plan.operators.operator import ExplainNames, Facts, Operator, StateSpec, Types, lowers, view_of
from millstream.plan.parts import Measure

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering

BY_ORDER = ("first", "last", "first_of", "last_of", "collect", "user")
"""Aggregates that depend on the order of rows."""


@dataclass(frozen=True, eq=False)
class ChangingAggregation(Operator):
    """Aggregates of the current rows of each key. Aggregates that depend on the order of records use `order`."""

    measures: tuple[Measure, ...]
    order: tuple[str, ...] = ()
    totals: tuple[int, ...] = ()
    """The numbers of the grouping sets without keys. The last key holds the set of a row."""

    title: ClassVar[str] = "aggregate of changing rows"
    format_name: ClassVar[str] = "Regroup"
    expires_by_ttl: ClassVar[bool] = True

    @property
    def identity(self) -> tuple[str, ...]:
        """One row per key."""
        return self.keys

    @property
    def result(self) -> tuple[str, ...]:
        """Keys and measures."""
        return (*self.keys, *(m.name for m in self.measures))

    @property
    def may_use_partials(self) -> bool:
        """Whether one row of partials per key may suffice, as far as can be decided before types are known."""
        by_order = any(m.kind in (*BY_ORDER, "sample") for m in self.measures)
        return self.append_only_input and not by_order and self.ttl is None and all(m.is_exact for m in self.measures)

    @property
    def uses_partials(self) -> bool:
        """Whether it keeps one row of partials per key instead of rows: nothing is retracted, and partials are
        exact.
        """
        known = all(m.type is not None for m in self.measures if m.kind in ("sum", "avg"))
        return known and self.may_use_partials

    @property
    def shrinks_input(self) -> bool:
        """Where partials replace rows."""
        return self.uses_partials

    @property
    def states(self) -> tuple[StateSpec, ...]:
        """Partials, and the rows that versions before 0.2 kept instead; or rows."""
        rows = StateSpec("rows")
        return (StateSpec("partials", "$partials"), rows) if self.may_use_partials else (rows,)

    @property
    def is_never_empty(self) -> bool:
        """The aggregate of all rows, and grouping sets without keys, have a result even over no rows."""
        return not self.keys or bool(self.totals)

    def bind(self, input_types: Types) -> tuple[Self, Types]:
        """The types of its measures."""
        measures = bound_measures(view_of(self.step), self.measures, lambda m: input_types[f"@{m.name}"])
        return replace(self, measures=measures), {m.name: answer_type(m) for m in measures}

    def facts(self, names: ExplainNames) -> Facts:
        """Its measures."""
        arguments = {m.name: names.sql(f"@{m.name}") if m.has_argument else "*" for m in self.measures}
        return [("measures", ", ".join(f"{m.name} = {m.kind}({arguments[m.name]})" for m in self.measures))]

    @property
    def state_grows(self) -> bool:
        """Unless it keeps one row."""
        return super().state_grows and (bool(self.keys) or not self.uses_partials)

    def state_text(self, names: ExplainNames) -> str:
        """The rows that its results are computed from."""
        if self.uses_partials:
            return self.kept_rows("a row per key" if self.keys else "one row")
        return self.kept_input()

    def content(self) -> object:
        """Measures, and the order they depend on."""
        return (measures_content(self.measures, code_identity), self.order)


@lowers(Aggregated)
def lower(lowering: StatefulLowering, name: str, step: Aggregated) -> Operator:
    """The aggregation of rows of scans, or of changing rows."""
    from millstream.plan.operators.aggregates.user_aggregate import UserAggregation

    if not steps.changes(step.input):
        return lowering.scans.aggregation(name, step)
    arguments = tuple((f"@{n}", a.argument) for n, a in step.aggregates if a.argument is not None)
    by_order = any(a.kind in BY_ORDER for _, a in step.aggregates)
    columns = (*step.keys, *arguments, *(_order(step.input) if by_order else ()))
    measures = tuple(
        Measure(n, a.kind, a.argument is not None, a.user, a.returns, _type(a.argument, step.input.schema))
        for n, a in step.aggregates
    )
    kind = UserAggregation if UserAggregation.fits(measures) else ChangingAggregation
    order = ("$at",) if kind is ChangingAggregation and any(n == "$at" for n, _ in columns) else ()
    return lowering.operator(
        kind,
        name,
        (lowering.side(name, step.input, columns),),
        tuple(n for n, _ in step.keys),
        ends=lowering.ends(step),
        measures=measures,
        order=order,
        totals=step.totals,
    )


def _type(argument: Expr | None, schema: Schema) -> pa.DataType | None:
    """The type of an argument, if it is known before the engine binds the plan."""
    return None if argument is None else argument.type_in(schema)


def _order(step: Step) -> Named:
    """The default order of rows: the latest of their times, if they have any."""
    known = list(event_times.times_of(step, certain=False))
    if len(known) < 2:
        return tuple(("$at", col(n)) for n in known)
    return (("$at", Expr(exp.func("greatest", *(exp.column(n) for n in known)))),)
