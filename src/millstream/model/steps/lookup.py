"""Lookups in external systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import Origin
from millstream.model.python.process import FAIL, Output
from millstream.model.types.schema import Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


@dataclass(frozen=True, eq=False)
class Asked:
    """Each row with the result of a lookup function for some of its columns."""

    input: Step
    on: tuple[str, ...]
    function: Callable[..., Any]
    name: str
    answer: Output
    """The columns of a lookup result."""
    required: bool = False
    """Whether rows without a result are dropped."""
    batch: int = 100
    parallel: int = 8
    timeout: int | None = None
    """The timeout of one call, in micros."""
    retries: int = 3
    cache: int | None = None
    """How long a result is valid, in micros of processing time; None means permanently."""
    errors: str = FAIL
    redact: bool = False
    origin: Origin | None = None

    @property
    def schema(self) -> Schema:
        """The columns of the row, then those of the lookup result."""
        return Schema.of([*self.input.schema, *self.answer.schema])
