"""Rows that are held until they are final."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from millstream.errors import Origin
from millstream.model.types.schema import Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


@dataclass(frozen=True, eq=False)
class Settling:
    """Rows are held until they are final by the time in `column`, and are then emitted in its order."""

    input: Step
    column: str
    origin: Origin | None = None
    cuts: bool = False
    """Whether source records behind the watermark go to ``<view>$late``, so that later steps never see them."""

    @cached_property
    def schema(self) -> Schema:
        """The columns are unchanged."""
        return self.input.schema
