"""Holds rows until they are final: a changing stream becomes append-only. Kernel: `kernels/relations/hold_until.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from millstream.model.expression import col
from millstream.model.steps import event_times
from millstream.model.steps.relations.hold_until import Settling
from millstream.plan.operators.operator import ExplainNames, Operator, lowers

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, eq=False)
class HoldUntil(Operator):
    """Holds a row until the watermark has passed the time in `column` by `slack` micros."""

    column: str
    slack: int

    title: ClassVar[str] = "final rows"
    format_name: ClassVar[str] = "Settled"
    shows_keys: ClassVar[bool] = False

    @property
    def append_only(self) -> bool:
        """Always true."""
        return True

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
    return lowering.operator(HoldUntil, name, (side,), keys, column=step.column, slack=slack)
