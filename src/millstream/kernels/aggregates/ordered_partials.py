"""Partials of aggregates over selected rows: the first or last row, and lists and texts with their own order.

Their argument is a struct that is never NULL: ``there`` is whether a row counts, ``v`` is its value, and ``o0``,
``o1``, ... are the values to order by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa

from millstream.errors import RunError
from millstream.kernels.aggregates.interval_sums import SPAN, is_span, mean
from millstream.model.aggregates.aggregate import settings_of
from millstream.plan.parts import Measure

_FIT = 2**63 - 1


def combine_edge(which: str, order: tuple[str, ...]) -> Callable[[Measure, pl.Expr | None], list[pl.Expr]]:
    """The value of the first or last row that counts, its position, and how many rows count."""

    def combine(m: Measure, x: pl.Expr | None) -> list[pl.Expr]:
        assert x is not None
        there = x.struct.field("there")
        by = [pl.col(c).filter(there) for c in order]
        parts = [x.struct.field("v").alias(f"{m.name}$v"), *(pl.col(c).alias(f"{m.name}${c[1:]}") for c in order)]
        picked = [getattr(p.filter(there).sort_by(*by), which)() for p in parts]
        return [*picked, there.sum().cast(pl.Int64).alias(f"{m.name}$n")]

    return combine


def fold_edge(which: str, order: tuple[str, ...]) -> Callable[[Measure], list[pl.Expr]]:
    """The earliest or latest of several."""

    def fold(m: Measure) -> list[pl.Expr]:
        some = pl.col(f"{m.name}$n") > 0
        places = [f"{m.name}${c[1:]}" for c in order]
        by = [pl.col(p).filter(some) for p in places]
        picked = [getattr(pl.col(c).filter(some).sort_by(*by), which)() for c in (f"{m.name}$v", *places)]
        return [*picked, pl.col(f"{m.name}$n").sum()]

    return fold


def combine_list(m: Measure, x: pl.Expr | None) -> list[pl.Expr]:
    """All rows that count."""
    assert x is not None
    return [x.filter(x.struct.field("there")).alias(f"{m.name}$l")]


def fold_list(m: Measure) -> list[pl.Expr]:
    """Concatenate the rows of several partials."""
    return [pl.col(f"{m.name}$l").list.explode(keep_nulls=False, empty_as_null=False)]


def list_result(m: Measure) -> pl.Expr:
    """The values in order, without duplicates if the aggregate is distinct."""
    ways, once, _ = settings_of(m.kind)
    by = [pl.element().struct.field(f"o{i}") for i in range(len(ways))]
    more = [] if m.type is not None and pa.types.is_nested(m.type.field("v").type) else [pl.element().struct.field("v")]
    down, last = ([way[i] for way in ways] + [False] * len(more) for i in (0, 1))
    ordered = pl.element().sort_by(*by, *more, descending=down, nulls_last=last) if by or more else pl.element()
    values = ordered.struct.field("v")
    return pl.col(f"{m.name}$l").list.eval(values.unique(maintain_order=True) if once else values)


def text_result(m: Measure) -> pl.Expr:
    """The values in order, joined into one text; NULL if there are none."""
    values = list_result(m)
    return pl.when(values.list.len() > 0).then(values.list.join(settings_of(m.kind)[2]))


def sum_result(m: Measure) -> pl.Expr:
    """The sum of a list of distinct numbers; NULL if it is empty."""

    def total(lists: pl.Series) -> pl.Series:
        inner: Any = lists.dtype.inner  # type: ignore[attr-defined]
        if is_span(inner):
            return total(lists.cast(pl.List(SPAN)).cast(pl.List(pl.Int64))).cast(SPAN)
        if inner.is_integer():
            wide = lists.cast(pl.List(pl.Int128)).list.sum()
            most: Any = wide.abs().max()
            if most is not None and most > _FIT:
                raise RunError("a sum(DISTINCT ...) does not fit into 64 bits", hint="sum CAST(... AS DECIMAL(38, 0))")
            sums = wide.cast(pl.Int64)
        elif isinstance(inner, pl.Decimal):
            sums = lists.cast(pl.List(pl.Decimal(38, inner.scale))).list.eval(pl.element().sum()).list.first()
        else:
            sums = lists.list.sum()
        return pl.select(pl.when(lists.list.len() > 0).then(sums)).to_series()

    return pl.col(f"{m.name}$l").map_batches(total)


def mean_result(m: Measure) -> pl.Expr:
    """The mean of a list of distinct numbers, as DOUBLE; for intervals, an interval."""
    if m.type is not None and pa.types.is_duration(m.type):
        return mean(sum_result(m).cast(pl.Int64), pl.col(f"{m.name}$l").list.len().cast(pl.Int64))
    return pl.col(f"{m.name}$l").cast(pl.List(pl.Float64)).list.mean()
