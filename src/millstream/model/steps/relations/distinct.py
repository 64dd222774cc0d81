"""Every distinct row once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.errors import Origin
from millstream.model.types.schema import Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


@dataclass(frozen=True, eq=False)
class Distinct:
    """Every distinct row once."""

    input: Step
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns are unchanged."""
        return self.input.schema
