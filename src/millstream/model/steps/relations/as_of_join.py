"""As-of joins of two streams."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.errors import Origin
from millstream.model.expression import Expr
from millstream.model.types.schema import Field, Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


@dataclass(frozen=True, eq=False)
class JoinedAsOf:
    """Each row of the left side with the row of the right side that was valid at its time, among
    those with equal keys.
    """

    left: Step
    right: Step
    on: tuple[tuple[Expr, Expr], ...]
    times: tuple[str, str]
    renamed: tuple[tuple[str, str], ...]
    direction: str = "backward"
    tolerance: int | None = None
    strict: bool = False
    """Whether a row of exactly the same time is excluded."""
    required: bool = False
    """Whether rows of the left side without a match are dropped."""
    lateness: int = 0
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns of both sides."""
        names = dict(self.renamed)
        return Schema.of([*self.left.schema, *(Field(names[f.name], f.type) for f in self.right.schema)])
