"""Rows of changing streams, with an identity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.errors import Origin
from millstream.model.types.schema import Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


@dataclass(frozen=True, eq=False)
class Gathered:
    """The rows of changing streams, unchanged, with an identity that distinguishes them."""

    input: Step
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The columns are unchanged."""
        return self.input.schema
