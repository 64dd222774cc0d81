"""Rows of scans in the order of event time: held until the watermark has passed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millstream.plan.operators.operator import ExplainNames, StateSpec
from millstream.plan.operators.relations.pass_through import PassThrough


@dataclass(frozen=True, eq=False)
class OrderedMerge(PassThrough):
    """Rows wait until they can go on in the order of event time."""

    stateful: ClassVar[bool] = True

    @property
    def takes_late_rows(self) -> bool:
        """A row is late when later ones have gone on."""
        return True

    @property
    def needs_positions(self) -> bool:
        """Equal times are ordered by position."""
        return True

    @property
    def states(self) -> tuple[StateSpec, ...]:
        """The rows that wait."""
        return (StateSpec("rows", unique=("$h", "$no")),)

    def state_text(self, names: ExplainNames) -> str:
        """Rows that wait."""
        return "rows until the watermark has passed them"

    def _ordered(self) -> list[str]:
        return ["ordered"]
