"""INTERSECT and EXCEPT of two streams. The kernel is `kernels/relations/set_operation.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp

from millstream.model.expression import Expr, col
from millstream.model.steps.relations.set_operation import Compared
from millstream.plan.operators.inputs import Take
from millstream.plan.operators.operator import ExplainNames, Operator, lowers

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering

SIDE = "$side"
"""The column that holds which stream a row comes from."""

_NAMES = {"intersect": "rows in both", "except": "rows in the first only"}


@dataclass(frozen=True, eq=False)
class SetOperation(Operator):
    """The rows that are in both streams, or in the first and not in the second. `copies`: with duplicates instead of
    once.
    """

    keep: str
    copies: bool

    format_name: ClassVar[str] = "Sets"
    shows_keys: ClassVar[bool] = False
    expires_by_ttl: ClassVar[bool] = True

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of a row."""
        return (*(c for c in self.columns if c != SIDE), *self.marks)

    def name(self) -> str:
        """Depends on which rows it keeps."""
        return _NAMES[self.keep]

    def state_text(self, names: ExplainNames) -> str:
        """The rows of both streams."""
        return self.kept_input()

    def content(self) -> object:
        """Which rows it keeps."""
        return self.described()


@lowers(Compared)
def lower(lowering: StatefulLowering, name: str, step: Compared) -> SetOperation:
    """The operator of the step. Both streams form one input, with a column for the side."""
    names = step.left.schema.names
    takes: list[Take] = []
    for i, stream in enumerate((step.left, step.right)):
        own = stream.schema.names
        columns = tuple((n, col(o)) for n, o in zip(names, own, strict=True))
        takes += lowering.takes(name, stream, (*columns, (SIDE, Expr(exp.Literal.number(i)))), None)
    side = lowering.whole(takes, (*names, SIDE))
    return lowering.operator(
        SetOperation, name, (side,), names, ends=lowering.ends(step), keep=step.keep, copies=step.copies
    )
