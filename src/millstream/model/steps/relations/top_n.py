"""The first rows of each key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import Origin
from millstream.model.steps.columns import Named, Order, plain_column
from millstream.model.types.schema import Field, Schema

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


@dataclass(frozen=True, eq=False)
class Top:
    """The first rows of each key in an order; `rank` names a column with the row number."""

    input: Step
    keys: Named
    count: int
    order: tuple[Order, ...]
    rank: str | None = None
    origin: Origin | None = None

    @property
    def added(self) -> Named:
        """The keys that are not columns of the row yet."""
        return tuple((name, e) for name, e in self.keys if plain_column(e) != name)

    @cached_property
    def schema(self) -> Schema:
        """All columns of the rows, computed keys, then the rank."""
        before = self.input.schema
        keys = [Field(name, e.type_in(before)) for name, e in self.added]
        return Schema.of([*before, *keys, *([] if self.rank is None else [Field(self.rank, pa.int64())])])
