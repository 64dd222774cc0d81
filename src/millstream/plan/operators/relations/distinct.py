"""DISTINCT: every row once. The kernel is `kernels/relations/distinct.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from millstream.model.steps.relations.distinct import Distinct
from millstream.plan.operators.operator import ExplainNames, Operator, lowers

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, eq=False)
class DistinctRows(Operator):
    """Emits every row once."""

    title: ClassVar[str] = "distinct"
    format_name: ClassVar[str] = "Once"
    shows_keys: ClassVar[bool] = False
    expires_by_ttl: ClassVar[bool] = True

    @property
    def append_only(self) -> bool:
        """True if its input is append-only."""
        return self.append_only_input

    @property
    def identity(self) -> tuple[str, ...]:
        """The whole row."""
        return self.columns

    @property
    def shrinks_input(self) -> bool:
        """Over append-only input, copies do not count. Nested values are compared by the kernel alone."""
        return self.append_only_input and not any(pa.types.is_nested(t) for t in self.types)

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of its input."""
        return self.columns

    def state_text(self, names: ExplainNames) -> str:
        """The rows that it has emitted."""
        return self.kept_input()

    def content(self) -> object:
        """Only its kind."""
        return "Once()"


@lowers(Distinct)
def lower(lowering: StatefulLowering, name: str, step: Distinct) -> DistinctRows:
    """The operator of the step."""
    side = lowering.row_side(name, step.input)
    return lowering.operator(DistinctRows, name, (side,), side.columns, ends=lowering.ends(step))
