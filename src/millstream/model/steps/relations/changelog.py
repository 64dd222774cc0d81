"""Changes as rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import Origin
from millstream.model.types.schema import TIMESTAMP, Field, Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


@dataclass(frozen=True, eq=False)
class Changelog:
    """The changes of rows as an append-only stream, one row per change."""

    input: Step
    names: tuple[str, str, str]
    """The columns with the kind of change, its epoch number, and the time of the epoch."""
    origin: Origin | None = None

    @cached_property
    def schema(self) -> Schema:
        """The kind and time of the change, then the columns of the row."""
        kinds = (pa.string(), pa.int64(), TIMESTAMP)
        added = [Field(n, k) for n, k in zip(self.names, kinds, strict=True)]
        return Schema.of([*added, *self.input.schema])
