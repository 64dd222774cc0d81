"""Holds rows until they are final: a changing stream becomes append-only. Kernel: `kernels/relations/hold_until.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from millstream.model.expression import col
from millstream.model.steps import event_times
from millstream.model.steps import step as steps
from millstream.model.steps.relations.hold_until import Settling
from millstream.plan.operators.operator import ExplainNames, Operator, lowers

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, eq=False)
class HoldUntil(Operator):
    """Holds a row until the watermark has passed the time in `column` by `slack` micros."""

    column: str
    slack: int
    by_content: bool = field(default=False, repr=False)
    """Whether rows with equal times are ordered by their content, because they have no order of arrival. (It is not a
    part of fingerprints: state does not depend on it.)
    """

    title: ClassVar[str] = "final rows"
    format_name: ClassVar[str] = "Settled"
    shows_keys: ClassVar[bool] = False

    @property
    def append_only(self) -> bool:
        """Always true."""
        return True

    @property
    def orders_rows(self) -> tuple[str, ...]:
        """Time, then two hashes of the content."""
        return (self.column, "$a", "$b") if self.by_content else ()

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of its input."""
        return self.columns

    @property
    def state_grows(self) -> bool:
        """Rows wait for the watermark."""
        return False

    def state_text(self, names: ExplainNames) -> str:
        """The rows that wait."""
        return f"rows until {self.column} is past"

    def content(self) -> object:
        """The column and the slack."""
        return self.described()


@lowers(Settling)
def lower(lowering: StatefulLowering, name: str, step: Settling) -> HoldUntil:
    """The operator of the step."""
    row = tuple((n, col(n)) for n in step.input.schema.names)
    side = lowering.side(name, step.input, row, lowering.late(step, 0) if step.cuts else None)
    nested = any(f.type is not None and pa.types.is_nested(f.type) for f in step.schema)
    keys = (step.column,) if nested else side.columns
    slack = event_times.times_of(step.input)[step.column]
    arbitrary = steps.changes(step.input) and not lowering.order_of(side)
    return lowering.operator(HoldUntil, name, (side,), keys, column=step.column, slack=slack, by_content=arbitrary)
