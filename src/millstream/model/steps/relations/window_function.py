"""Window functions over the ordered rows of each key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import DefinitionError, Origin
from millstream.model.expression import Expr
from millstream.model.origin import here
from millstream.model.steps.columns import Named, Order
from millstream.model.types.scalars import mean_type
from millstream.model.types.schema import Field, Schema
from millstream.model.windows.trigger import MOST_RECORDS

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


@dataclass(frozen=True, eq=False)
class WindowFunction:
    """A window function: its kind, its argument, and its frame (see `WindowCall` in `plan.operators.relations`)."""

    kind: str
    argument: Expr | None = None
    offset: int = 1
    default: Any = None
    frame: tuple[str, float | None, float | None] | None = None

    def __post_init__(self) -> None:
        rows = () if self.frame is None or self.frame[0] != "rows" else self.frame[1:]
        for n in (self.offset, *rows):
            if n is not None and abs(n) > MOST_RECORDS:
                raise DefinitionError(f"{n!r:.40} rows are out of range", hint="at most 10^15 rows", origin=here())

    def type_in(self, schema: Schema) -> pa.DataType | None:
        """The type of its result, if known."""
        if self.kind in ("row_number", "rank", "dense_rank", "ntile", "count"):
            return pa.int64()
        if self.kind in ("percent_rank", "cume_dist"):
            return pa.float64()
        of = None if self.argument is None else self.argument.type_in(schema)
        if self.kind == "avg":
            return mean_type(of)
        if self.kind == "sum" and of is not None:
            return pa.int64() if pa.types.is_integer(of) else of
        return of


@dataclass(frozen=True, eq=False)
class Windowed:
    """Window functions over the ordered rows of each key, as additional columns."""

    input: Step
    keys: Named
    order: tuple[Order, ...]
    functions: tuple[tuple[str, WindowFunction], ...]
    origin: Origin | None = None
    keeps_times: bool = False
    """Whether its rows are as old as their own times indicate, although they change when other rows arrive."""

    @property
    def added(self) -> Named:
        """The arguments as separate columns."""
        return tuple((f"@{n}", f.argument) for n, f in self.functions if f.argument is not None)

    @cached_property
    def schema(self) -> Schema:
        """All columns of the rows, then the functions."""
        before = self.input.schema
        return Schema.of([*before, *(Field(n, f.type_in(before)) for n, f in self.functions)])
