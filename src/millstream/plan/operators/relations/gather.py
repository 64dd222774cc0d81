"""The rows of several streams, or of a shared stream, unchanged. The kernel is `kernels/relations/gather.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from millstream.model.steps.relations.gather import Gathered
from millstream.plan.operators.operator import ExplainNames, Operator, lowers

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, eq=False)
class GatheredRows(Operator):
    """Emits every row with all its copies."""

    title: ClassVar[str] = "rows as they are"
    format_name: ClassVar[str] = "Every"
    shows_keys: ClassVar[bool] = False
    expires_by_ttl: ClassVar[bool] = True

    @property
    def append_only(self) -> bool:
        """True if its input is append-only."""
        return self.append_only_input

    @property
    def keeps_place(self) -> bool:
        """Append-only rows pass through without state."""
        return self.append_only_input

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of its input."""
        return (*self.columns, *self.marks)

    @property
    def state_grows(self) -> bool:
        """Unless its input is append-only."""
        return super().state_grows and not self.append_only_input

    def state_text(self, names: ExplainNames) -> str:
        """None if its input is append-only."""
        return "none" if self.append_only_input else self.kept_input()

    def content(self) -> object:
        """Only its kind."""
        return "Every()"


@lowers(Gathered)
def lower(lowering: StatefulLowering, name: str, step: Gathered) -> GatheredRows:
    """The operator of the step."""
    side = lowering.row_side(name, step.input)
    return lowering.operator(GatheredRows, name, (side,), side.columns, ends=lowering.ends(step))
