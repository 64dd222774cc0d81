"""The step of a temporal filter: a row is there for a span of the clock's time, whatever else happens to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.errors import Origin
from millstream.model.expression import Expr
from millstream.model.types.schema import Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


@dataclass(frozen=True, eq=False)
class Temporal:
    """A row is there while the epoch's clock is at or behind all of `since` and before all of `until`, in micros. A row
    with a NULL among them is never there.
    """

    input: Step
    since: tuple[Expr, ...]
    until: tuple[Expr, ...]
    condition: Expr
    """The condition as it was written, with ``now()`` in it; only to be shown."""
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns stay."""
        return self.input.schema
