"""User-defined aggregates of changing rows that can retract a value. The kernel is
`kernels/aggregates/user_aggregate.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millstream.plan.operators.aggregates.changing_aggregation import ChangingAggregation
from millstream.plan.operators.operator import ExplainNames
from millstream.plan.parts import Measure


@dataclass(frozen=True, eq=False)
class UserAggregation(ChangingAggregation):
    """An aggregation whose aggregates can all retract a value: it keeps accumulators instead of rows."""

    format_name: ClassVar[str] = "Folded"

    @property
    def may_use_partials(self) -> bool:
        """False: it keeps accumulators."""
        return False

    @property
    def order_matters(self) -> bool:
        """Values are added in the order in which they arrive."""
        return True

    @staticmethod
    def fits(measures: tuple[Measure, ...]) -> bool:
        """Whether accumulators suffice: there are user-defined aggregates, and every measure can retract."""
        retractable = all(m.kind == "count" or callable(getattr(m.user, "retract", None)) for m in measures)
        return retractable and any(m.user is not None for m in measures)

    @property
    def state_grows(self) -> bool:
        """Unless it keeps one row."""
        return super().state_grows and bool(self.keys)

    def state_text(self, names: ExplainNames) -> str:
        """Accumulators."""
        return self.kept_rows("accumulators per key" if self.keys else "one row")
