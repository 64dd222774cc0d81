"""Aggregates per key and window."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import Origin
from millstream.model.aggregates.aggregate import SPANS_TOO, STRUCTS, Aggregate, settled_type, typed_by
from millstream.model.steps.columns import Named
from millstream.model.types.schema import TIMESTAMP, Field, Schema
from millstream.model.windows.kinds import CountWindow
from millstream.model.windows.windowing import Windowing

if TYPE_CHECKING:
    from millstream.model.steps.step import Step


INDEX = "window_index"
"""The column with the number of a count window."""


@dataclass(frozen=True, eq=False)
class Aggregated:
    """Aggregates per key and window."""

    input: Step
    keys: Named
    windowing: Windowing
    aggregates: tuple[tuple[str, Aggregate], ...]
    origin: Origin | None = None
    totals: tuple[int, ...] = ()
    """The numbers of the grouping sets without keys; the last key identifies the set of a row. Each is one group, which
    exists even without rows.
    """

    @cached_property
    def schema(self) -> Schema:
        """Window bounds, keys, then the aggregates."""
        borders = [Field(name, pa.int64() if name == INDEX else TIMESTAMP) for name in borders_of(self.windowing)]
        before = self.input.schema
        keys = [Field(name, e.type_in(before)) for name, e in self.keys]
        results = [Field(name, result_type(a, before)) for name, a in self.aggregates]
        return Schema.of([*borders, *keys, *results])


def borders_of(windowing: Windowing) -> tuple[str, ...]:
    """The columns of a result that identify its window."""
    if windowing.window.is_global:
        return ()
    counted = (INDEX,) if isinstance(windowing.window, CountWindow) else ()
    return (*counted, "window_start", "window_end")


def result_type(aggregate: Aggregate, schema: Schema) -> pa.DataType | None:
    """The type of an aggregate's result, if known before the engine binds the plan."""
    kind = aggregate.kind
    if kind == "user":
        return aggregate.returns
    settled = settled_type(kind)
    if kind in STRUCTS or (settled is not None and kind not in SPANS_TOO):  # the engine knows the type of a pair
        return settled
    of = aggregate.argument.type_in(schema) if aggregate.argument is not None else None
    if settled is not None:
        return settled_type(kind, of)
    return None if of is None else summed_type(kind, of)


def summed_type(kind: str, of: pa.DataType) -> pa.DataType:
    """The type of a sum over values of a type, or of an aggregate that returns such values."""
    if kind not in ("sum", "sum_distinct") or pa.types.is_duration(of):
        return typed_by(kind, of)
    if pa.types.is_integer(of):
        return pa.int64()
    if pa.types.is_decimal(of):
        return pa.decimal128(min(38, of.precision + 10), of.scale)
    return pa.float64()
