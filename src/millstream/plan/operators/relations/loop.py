"""Loops: a body as SQL over tables, repeated to a fixpoint. The kernel is `kernels/relations/loop.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from sqlglot import exp

from millstream.errors import Unsupported
from millstream.model.expression import Expr
from millstream.model.steps import step as steps
from millstream.model.steps.aggregation import Aggregated
from millstream.model.steps.relations.distinct import Distinct
from millstream.model.steps.relations.join import Joined
from millstream.model.steps.relations.loop import Iterated, Round, depends, outside
from millstream.model.steps.relations.set_operation import Compared
from millstream.model.steps.relations.top_n import Top
from millstream.model.steps.step import Step
from millstream.plan.operators.operator import KEPT_INDEFINITELY, ROW, ExplainNames, Facts, Operator, StateSpec, lowers

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering

SEED, OTHER, ROWS = "rows_at_first", "other_rows", "rows_of_loop"
"""Tables of a body: the initial rows of the loop, its second input, and its current rows."""

_SAME = (
    exp.Column | exp.Identifier | exp.Literal | exp.Binary | exp.Not | exp.Paren | exp.Neg | exp.Null | exp.Boolean
    | exp.Case | exp.If | exp.Coalesce | exp.Least | exp.Greatest | exp.Abs | exp.Cast | exp.DataType | exp.Is
    | exp.Between | exp.In | exp.Concat | exp.DPipe | exp.Upper | exp.Lower | exp.Array
)  # fmt: skip
_DIFFERENT = exp.RegexpLike | exp.Like | exp.ILike | exp.IntDiv | exp.Distance
_JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN", "semi": "SEMI JOIN",
          "anti": "ANTI JOIN"}  # fmt: skip
_MEASURES = {"count": "count", "sum": "sum", "min": "min", "max": "max", "avg": "avg"}


@dataclass(frozen=True, eq=False)
class Loop(Operator):
    """A body that is repeated until it adds nothing, or changes nothing."""

    body: str
    linear: bool
    """Whether the body reads the rows of the loop once, so that each iteration needs only new rows."""
    keep: bool
    most: int
    settle: bool
    names: tuple[str, ...]
    copies: bool = False

    title: ClassVar[str] = "loop"
    side_names: ClassVar[tuple[str, ...]] = ("rows", "other")
    format_name: ClassVar[str] = "Loop"

    @property
    def driver_only(self) -> str | None:
        """Its iterations run there."""
        return "a loop runs to its fixpoint"

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of its rows."""
        return (*self.names, *ROW)

    @property
    def states(self) -> tuple[StateSpec, ...]:
        """Its initial rows, and those of its second input."""
        return (StateSpec("rows"), StateSpec("other", "$right"))[: len(self.sides)]

    def facts(self, names: ExplainNames) -> Facts:
        """The body, and how often it is repeated."""
        end = "until nothing changes" if self.settle else "or until nothing changes"
        return [("repeats", f"{self.body[:200]}"), ("rounds", f"up to {self.most:,}, {end}")]

    @property
    def state_grows(self) -> bool:
        """It keeps all its input."""
        return True

    def state_text(self, names: ExplainNames) -> str:
        """All its input."""
        return f"all initial rows, and all rows that it reads, {KEPT_INDEFINITELY}"

    def content(self) -> object:
        """What it repeats."""
        return (self.body, self.keep, self.most, self.settle, self.copies)


@lowers(Iterated)
def lower(lowering: StatefulLowering, name: str, step: Iterated) -> Loop:
    """The operator of the step: its initial rows, and at most one other stream."""
    others = list(outside(step.body, step.round))
    different = {lowering.signature(s): s for s in others}
    if len(different) > 1:
        raise Unsupported(
            "a loop over more than one other stream is not supported",
            hint="union them into one stream first, with a column that distinguishes them",
            origin=step.origin,
        )
    sides = tuple(lowering.row_side(name, s) for s in (step.input, *different.values()))
    reads = len(_reads(step.body, step.round))
    grouped = any(isinstance(s, Aggregated | Top) for s in steps.upstream(step.body) if depends(s, step.round))
    linear = reads == 1 and not grouped
    body = _Body(step.round, others).of(step.body)
    if step.copies and not linear:
        raise Unsupported(
            "a loop that keeps duplicates can read its rows only once, and without an aggregate",
            hint="use UNION instead of UNION ALL",
            origin=step.origin,
        )
    return lowering.operator(
        Loop,
        name,
        sides,
        (),
        body=body,
        linear=linear,
        keep=step.keep,
        most=step.most,
        settle=step.settle,
        names=step.schema.names,
        copies=step.copies,
    )


def _reads(step: Step, on: Round) -> list[Step]:
    if step is on:
        return [step]
    return [r for before in steps.inputs(step) for r in _reads(before, on)]


class _Body:
    """Writes steps as SQL over tables."""

    def __init__(self, on: Round, others: list[Step]) -> None:
        self.on, self.others = on, others

    def of(self, step: Step) -> str:
        """A query for the rows of a step."""
        if step is self.on or any(step is o for o in self.others):
            return f"SELECT * FROM {ROWS if step is self.on else OTHER}"
        if isinstance(step, steps.Where):
            return f"SELECT * FROM ({self.of(step.input)}) WHERE {_sql(step.condition)}"
        if isinstance(step, steps.Select):
            columns = ", ".join(f"{_sql(e)} AS {quoted(n)}" for n, e in step.columns)
            return f"SELECT {columns} FROM ({self.of(step.input)})"
        if isinstance(step, steps.Union):
            return " UNION ALL ".join(f"SELECT * FROM ({self.of(s)})" for s in step.inputs)
        if isinstance(step, Distinct):
            return f"SELECT DISTINCT * FROM ({self.of(step.input)})"
        if isinstance(step, Joined | Compared):
            return self._joined(step) if isinstance(step, Joined) else self._compared(step)
        if isinstance(step, Aggregated) and step.windowing.window.is_global:
            return self._aggregated(step)
        raise Unsupported(
            f"{type(step).__name__.lower()} inside a loop is not supported",
            hint="where, select, joins, unions, distinct, intersect, subtract and aggregates without a window are",
            origin=getattr(step, "origin", None),
        )

    def _compared(self, step: Compared) -> str:
        word = {"intersect": "INTERSECT", "except": "EXCEPT"}[step.keep] + (" ALL" if step.copies else "")
        return f"SELECT * FROM ({self.of(step.left)}) {word} SELECT * FROM ({self.of(step.right)})"

    def _joined(self, step: Joined) -> str:
        renamed = dict(step.renamed)
        left = self.of(step.left)
        names = ", ".join(f"{quoted(n)} AS {quoted(renamed[n])}" for n in step.right.schema.names)
        right = f"SELECT {names} FROM ({self.of(step.right)})"
        pair = {n: Expr(exp.column(new)) for n, new in renamed.items()}
        on = [f"{_sql(mine)} = {_sql(theirs.substitute(pair))}" for mine, theirs in step.on]
        on += [] if step.condition is None else [f"({_sql(step.condition)})"]
        return f"SELECT * FROM ({left}) {_JOINS[step.how]} ({right}) ON {' AND '.join(on)}"

    def _aggregated(self, step: Aggregated) -> str:
        columns = [f"{_sql(e)} AS {quoted(n)}" for n, e in step.keys]
        for name, aggregate in step.aggregates:
            if aggregate.kind not in _MEASURES:
                raise Unsupported(f"{name}={aggregate.kind}(...) inside a loop", origin=step.origin)
            kind = None if aggregate.argument is None else aggregate.argument.type_in(step.input.schema)
            if kind is not None and pa.types.is_duration(kind) and aggregate.kind in ("sum", "avg"):
                raise Unsupported(
                    f"{name}={aggregate.kind}(...) of intervals inside a loop",
                    hint="sum their seconds: CAST(interval AS DECIMAL(20, 6)); or sum after the loop",
                    origin=step.origin,
                )
            argument = "*" if aggregate.argument is None else _sql(aggregate.argument)
            columns.append(f"{_MEASURES[aggregate.kind]}({argument}) AS {quoted(name)}")
        by = ", ".join(_sql(e) for _, e in step.keys)
        return f"SELECT {', '.join(columns)} FROM ({self.of(step.input)})" + (f" GROUP BY {by}" if by else "")


def quoted(name: str) -> str:
    """A quoted name in the SQL of a loop, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def _sql(expression: Expr) -> str:
    """An expression, if it means the same in every engine."""
    for node in expression.node.walk():
        if not isinstance(node, _SAME) or isinstance(node, _DIFFERENT):
            raise Unsupported(
                f"`{expression.spark()}` inside a loop is not supported",
                hint="comparisons, arithmetic, CASE, CAST, coalesce, least, greatest, abs and concat are",
                origin=expression.origin,
            )
    return expression.node.sql(dialect="duckdb", identify=True)
