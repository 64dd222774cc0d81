"""Rows in both of two streams, or in one of them only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.errors import Origin
from millstream.model.types.schema import Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


@dataclass(frozen=True, eq=False)
class Compared:
    """The rows that are in both of two streams (`intersect`), or in the first and not in the second (`except`)."""

    left: Step
    right: Step
    keep: str
    copies: bool = False
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns of the first."""
        return self.left.schema
