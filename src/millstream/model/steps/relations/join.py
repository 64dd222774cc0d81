"""Joins of two streams."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.errors import Origin
from millstream.model.expression import Expr
from millstream.model.types.schema import Field, Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


KINDS = ("inner", "left", "right", "full", "semi", "anti")
"""The kinds of joins."""


@dataclass(frozen=True, eq=False)
class Joined:
    """Pairs of rows of two streams: `on` has expressions over the left and the right row that must be equal.

    In a pair, a column of the left side keeps its name, and a column of the right side has the name that `renamed` maps
    it to; `condition` is over these names.
    """

    left: Step
    right: Step
    on: tuple[tuple[Expr, Expr], ...]
    how: str
    renamed: tuple[tuple[str, str], ...]
    condition: Expr | None = None
    certain: bool | None = None
    """Whether rows without a match wait until it is certain that none will arrive; None means if time bounds the
    join.
    """
    lateness: int = 0
    """How long after the watermark rows are still accepted, in micros, if time bounds the join."""
    ttl: int | None = None
    """How long rows are kept at most, in micros of event time."""
    origin: Origin | None = None

    @cached_property
    def pair(self) -> Schema:
        """The columns of a pair."""
        names = dict(self.renamed)
        return Schema.of([*self.left.schema, *(Field(names[f.name], f.type) for f in self.right.schema)])

    @cached_property
    def schema(self) -> Schema:
        """The columns of a pair, or those of the left side alone."""
        return self.left.schema if self.how in ("semi", "anti") else self.pair
