"""The temporal filter step: a row is present for a span of clock time, independent of other changes to it."""

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
    """A row is present while the epoch's clock is at or after all of `since` and before all of `until`, in micros. A
    row with a NULL among them is never present.
    """

    input: Step
    since: tuple[Expr, ...]
    until: tuple[Expr, ...]
    condition: Expr
    """The condition as written, with ``now()`` in it; for display only."""
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns are unchanged."""
        return self.input.schema
