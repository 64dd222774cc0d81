"""Rows of scans in event-time order, held until the watermark passes them. Kernel:
`kernels/relations/ordered_merge.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from millstream.plan.operators.operator import ExplainNames, StateSpec
from millstream.plan.operators.relations.pass_through import PassThrough


@dataclass(frozen=True, eq=False)
class OrderedMerge(PassThrough):
    """Holds rows until they can be emitted in event-time order."""

    stateful: ClassVar[bool] = True

    @property
    def takes_late_rows(self) -> bool:
        """True: a row is late once later rows have been emitted."""
        return True

    @property
    def needs_positions(self) -> bool:
        """True: rows with equal times are ordered by position."""
        return True

    @property
    def states(self) -> tuple[StateSpec, ...]:
        """The rows that wait."""
        return (StateSpec("rows", unique=("$h", "$no")),)

    @property
    def orders_rows(self) -> tuple[str, ...]:
        """Event time, then partition and offset."""
        return ("$ts", "$part", "$pos")

    def placed_by(self, keys: tuple[str, ...]) -> OrderedMerge:
        """Rows may wait in any shard that their columns determine."""
        return replace(self, keys=keys) if set(keys) <= set(self.rows) else self

    def state_text(self, names: ExplainNames) -> str:
        """The rows that wait."""
        return "rows until the watermark has passed them"

    def _ordered(self) -> list[str]:
        return ["ordered"]
