"""As-of joins: each left row with the right row that was valid at its time. Kernel:
`kernels/relations/as_of_join.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from millstream.model.expression import col
from millstream.model.steps import event_times
from millstream.model.steps.relations.as_of_join import JoinedAsOf
from millstream.plan.operators.operator import (
    KEPT_INDEFINITELY,
    ExplainNames,
    Facts,
    Operator,
    StateSpec,
    Types,
    lowers,
)
from millstream.plan.operators.relations.join import check_pairs

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, eq=False)
class AsOfJoin(Operator):
    """Each row of the left side with the row of the right side that was valid at its time."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    times: tuple[str, str]
    slack: tuple[int, int]
    direction: str
    tolerance: int | None
    strict: bool
    required: bool

    title: ClassVar[str] = "as-of join"
    side_names: ClassVar[tuple[str, ...]] = ("left", "right")
    format_name: ClassVar[str] = "AsOf"

    @property
    def append_only(self) -> bool:
        """True: a result is final."""
        return True

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of both sides."""
        return (*self.left, *self.right)

    @property
    def states(self) -> tuple[StateSpec, ...]:
        """The rows of each side."""
        return (StateSpec("left"), StateSpec("right", "$right"))

    def bind(self, input_types: Types) -> tuple[Self, Types]:
        """It adds no columns."""
        check_pairs(self)
        return self, {}

    def facts(self, names: ExplainNames) -> Facts:
        """Which row it matches, and when."""
        return [("chooses", f"{self.direction} by {self.times[1]}, when the watermark has passed {self.times[0]}")]

    @property
    def state_grows(self) -> bool:
        """With the number of keys."""
        return True

    def state_text(self, names: ExplainNames) -> str:
        """Rows that wait, and rows that may still match."""
        chosen = f"per key, those that a later row may match, {KEPT_INDEFINITELY}"
        return f"left: rows until {self.times[0]} is past; right: {chosen}"

    def content(self) -> object:
        """Columns, times and direction."""
        return self.described()


@lowers(JoinedAsOf)
def lower(lowering: StatefulLowering, name: str, step: JoinedAsOf) -> AsOfJoin:
    """The operator of the step."""
    renamed = dict(step.renamed)
    late = lowering.late(step, step.lateness)
    slack, sides = [], []
    for i, stream in enumerate((step.left, step.right)):
        slack.append(event_times.times_of(stream).get(step.times[i], 0) + step.lateness)
        columns = [((renamed[n] if i else n), col(n)) for n in stream.schema.names]
        columns += [(f"$k{k}", pair[i]) for k, pair in enumerate(step.on)]
        sides.append(lowering.side(name, stream, tuple(columns), late))
    left, right = (tuple(n for n in s.columns if not n.startswith("$")) for s in sides)
    return lowering.operator(
        AsOfJoin,
        name,
        (sides[0], sides[1]),
        tuple(f"$k{k}" for k in range(len(step.on))),
        left=left,
        right=right,
        times=(step.times[0], renamed[step.times[1]]),
        slack=(slack[0], slack[1]),
        direction=step.direction,
        tolerance=step.tolerance,
        strict=step.strict,
        required=step.required,
    )
