"""Joins of two streams: all kinds, with or without time bounds. The kernel is `kernels/relations/join.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa
from sqlglot import exp

from millstream.errors import SchemaError
from millstream.model.expression import Expr, col
from millstream.model.steps import event_times
from millstream.model.steps.relations.join import Joined
from millstream.model.types.schema import ddl_type
from millstream.plan.explain.node import plain
from millstream.plan.lowering.native_subset import quick
from millstream.plan.operators.inputs import FirstRows
from millstream.plan.operators.operator import (
    KEPT_INDEFINITELY,
    ExplainNames,
    Facts,
    Operator,
    StateSpec,
    Types,
    as_before,
    lowers,
    view_of,
)

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering

UNTIL = "$until"
"""The column with the time after which a row of a join can have no further match, in micros."""


@dataclass(frozen=True, repr=False)
class PairCondition:
    """A condition over pairs of rows: in Spark SQL, and as nested tuples if kernels can evaluate it themselves."""

    sql: str
    columns: tuple[str, ...]
    quick: tuple[Any, ...] | None = None

    __repr__ = as_before("Test")


@dataclass(frozen=True, eq=False)
class Join(Operator):
    """Pairs of rows of two sides with equal keys; `how` is inner, left, right, full, semi or anti.

    `certain`: unmatched rows are emitted once it is certain that no match can arrive. Otherwise they are emitted at
    once and retracted later.
    """

    how: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    test: PairCondition | None = None
    certain: bool = False
    first: FirstRows | None = field(default=None, repr=False)
    """The pairs that its only reader can use; None: all (`plan/rules/first_rows.py`). It is no part of the `repr`:
    homes on disk hold fingerprints of that.
    """

    side_names: ClassVar[tuple[str, ...]] = ("left", "right")
    format_name: ClassVar[str] = "Join"
    expires_by_ttl: ClassVar[bool] = True

    @property
    def pads(self) -> tuple[bool, bool]:
        """Whether unmatched rows of the left and of the right side are results too."""
        return self.how in ("left", "full"), self.how in ("right", "full")

    @property
    def counts(self) -> tuple[bool, bool]:
        """For each side, whether the number of matches of a row matters."""
        return self.how in ("left", "full", "semi", "anti"), self.how in ("right", "full")

    @property
    def append_only(self) -> bool:
        """Over append-only sides, if no unmatched row is retracted."""
        return self.append_only_input and (self.how in ("inner", "semi") or self.certain)

    @property
    def pair_condition(self) -> PairCondition | None:
        """Its condition."""
        return self.test

    def emitting(self, first: FirstRows) -> Operator:
        """Of an inner join, these pairs alone."""
        return replace(self, first=first) if self.how == "inner" else self

    @property
    def may_split(self) -> tuple[bool, ...]:
        """An append-only side, unless the matches of the rows of the other side are counted: a shard would know only a
        part of them.
        """
        return tuple(side.append_only and not self.counts[1 - i] for i, side in enumerate(self.sides))

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of a pair, or of the left side alone."""
        right = () if self.how in ("semi", "anti") else self.right
        return (*self.left, *right, *self.marks)

    @property
    def states(self) -> tuple[StateSpec, ...]:
        """The rows of each side."""
        return (StateSpec("left"), StateSpec("right", "$right"))

    def bind(self, input_types: Types) -> tuple[Self, Types]:
        """It adds no columns."""
        check_pairs(self)
        return self, {}

    def name(self) -> str:
        """Includes its kind."""
        return f"{self.how} join"

    def facts(self, names: ExplainNames) -> Facts:
        """The condition, and when unmatched rows are emitted."""
        facts = [] if self.test is None else [("where", plain(self.test.sql))]
        if any(self.pads) or self.how == "anti":
            when = "once no match can arrive" if self.certain else "at once, and retracted when a match arrives"
            facts.append(("without a match", when))
        if self.first is not None:
            keys = ", ".join(names.sql(k) for k in self.first.keys)
            number = f"{self.first.count:,} per {keys}" if keys else f"{self.first.count:,}"
            order = ", ".join(s.shown(names.sql(s.column)) for s in self.first.order)
            facts.append(("emits", f"in each epoch the first {number}, by {order}, and ties"))
        return facts

    @property
    def state_grows(self) -> bool:
        """If a side has no time bound."""
        return any(not s.bounded for s in self.sides) and not self.expires

    def state_text(self, names: ExplainNames) -> str:
        """The rows of each side, depending on their time bounds."""
        bounded, unbounded = "each row until its time bound is past", f"all rows, {KEPT_INDEFINITELY}"
        left, right = (bounded if s.bounded else unbounded for s in self.sides)
        return left if left == right else f"left: {left}; right: {right}"

    def content(self) -> object:
        """Its kind, columns and condition."""
        return self.described()


def check_pairs(operator: Operator) -> None:
    """Refuse keys that have different kinds on the two sides."""
    for key in operator.keys:
        left, right = (dict(zip(s.columns, s.types, strict=True))[key] for s in operator.sides)
        alike = left == right or (pa.types.is_integer(left) and pa.types.is_integer(right))
        if not alike and not (pa.types.is_floating(left) and pa.types.is_floating(right)):
            raise SchemaError(
                f"the join of `{view_of(operator.step)}` compares {ddl_type(left)} with {ddl_type(right)}",
                hint="cast one of them, as in CAST(a.id AS BIGINT) = b.id",
            )


@lowers(Joined)
def lower(lowering: StatefulLowering, name: str, step: Joined) -> Join:
    """The operator of the step. Columns that are not read downstream are dropped."""
    bounds = event_times.joined(step)
    renamed = dict(step.renamed)
    condition = set() if step.condition is None else set(step.condition.columns())
    needed = set(lowering.needed.get(id(step), set(step.pair.names))) | condition
    late = lowering.late(step, step.lateness) if any(bounds.used) else None
    sides = []
    for i, (stream, until) in enumerate(((step.left, bounds.left), (step.right, bounds.right))):
        there = {n: (renamed[n] if i else n) for n in stream.schema.names}
        back = {new: col(old) for old, new in there.items()}
        columns: list[tuple[str, Expr]] = [(new, col(old)) for old, new in there.items() if new in needed]
        columns += [(f"$k{k}", pair[i]) for k, pair in enumerate(step.on)]
        if until:
            columns.append((UNTIL, _until(until, back, step.lateness)))
        sides.append(replace(lowering.side(name, stream, tuple(columns), late), bounded=bool(until)))
    left, right = (tuple(n for n in s.columns if not n.startswith("$")) for s in sides)
    semi = step.how in ("semi", "anti")
    output = set(step.schema.names) & (needed if not semi else lowering.needed.get(id(step), needed))
    certain = step.certain
    if certain is None:
        padded = (step.how in ("left", "full", "anti"), step.how in ("right", "full"))
        certain = any(padded) and all(s.bounded for s, p in zip(sides, padded, strict=True) if p)
    return lowering.operator(
        Join,
        name,
        (sides[0], sides[1]),
        tuple(f"$k{k}" for k in range(len(step.on))),
        how=step.how,
        left=tuple(n for n in left if n in output),
        right=() if semi else tuple(n for n in right if n in output),
        test=None if step.condition is None else _pair_condition(step.condition),
        certain=certain,
    )


def _until(bounds: tuple[Expr, ...], back: Mapping[str, Expr], lateness: int) -> Expr:
    """Until when a row is kept, in micros, as an expression over its own columns."""
    own = [b.substitute(back).node for b in bounds]
    least = own[0] if len(own) == 1 else exp.func("least", *own)
    return Expr(exp.Add(this=exp.paren(least), expression=exp.Literal.number(lateness)) if lateness else least)


def _pair_condition(condition: Expr) -> PairCondition:
    return PairCondition(condition.spark(), condition.columns(), quick(condition.node))
