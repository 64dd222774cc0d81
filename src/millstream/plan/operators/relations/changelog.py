"""A changelog: each change of its input as a row that is never retracted. Kernel: `kernels/relations/changelog.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow as pa

from millstream.model.steps.relations.changelog import Changelog
from millstream.model.types.schema import TIMESTAMP
from millstream.plan.operators.operator import ExplainNames, Facts, Operator, Types, lowers

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, eq=False)
class ChangelogRows(Operator):
    """Changes as rows. `names` are the columns with the kind of change, the epoch and its time."""

    names: tuple[str, str, str]

    title: ClassVar[str] = "changelog"
    format_name: ClassVar[str] = "Logged"
    shows_keys: ClassVar[bool] = False

    @property
    def append_only(self) -> bool:
        """Always true."""
        return True

    @property
    def result(self) -> tuple[str, ...]:
        """The kind of change, and the row."""
        return (*self.names, *self.columns)

    def bind(self, input_types: Types) -> tuple[Self, Types]:
        """The types of the columns that it adds."""
        return self, dict(zip(self.names, (pa.string(), pa.int64(), TIMESTAMP), strict=True))

    def facts(self, names: ExplainNames) -> Facts:
        """The columns that it emits."""
        op, epoch, time = self.names
        return [("gives", f"each change as a row: {op} is its kind, {epoch} and {time} are when it happened")]

    @property
    def state_grows(self) -> bool:
        """It has no state."""
        return False

    def state_text(self, names: ExplainNames) -> str:
        """None."""
        return "none"

    def content(self) -> object:
        """The names of its columns."""
        return self.described()


@lowers(Changelog)
def lower(lowering: StatefulLowering, name: str, step: Changelog) -> ChangelogRows:
    """The operator of the step."""
    side = lowering.row_side(name, step.input)
    return lowering.operator(ChangelogRows, name, (side,), (), names=step.names)
