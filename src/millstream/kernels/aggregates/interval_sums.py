"""Sums and means of intervals, in whole microseconds so that nothing is rounded twice. Used by the aggregate
kernels.
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl

SPAN = pl.Duration("us")


def is_span(kind: pl.DataType | None) -> bool:
    """Whether values of a type are intervals."""
    return isinstance(kind, pl.Duration)


def micros(values: pl.Series) -> pl.Series:
    """Intervals as whole microseconds, whose sums are checked for overflow; other values unchanged."""
    return values.cast(SPAN).cast(pl.Int64) if is_span(values.dtype) else values


def mean(total: pl.Expr, count: pl.Expr) -> pl.Expr:
    """A sum of microseconds divided by its count, rounded half away from zero, as Spark does. NULL if the count
    is 0.
    """
    size = total.abs()
    whole = size // count
    up = ((size - whole * count) * 2 >= count).cast(pl.Int64)
    return pl.when(count > 0).then((whole + up) * total.sign()).cast(SPAN)


def mean_of(values: list[timedelta]) -> timedelta:
    """The same for Python values.

    >>> mean_of([timedelta(microseconds=1), timedelta(0)])
    datetime.timedelta(microseconds=1)
    """
    total = sum(values, timedelta(0)) // timedelta(microseconds=1)
    whole, rest = divmod(abs(total), len(values))
    rounded = whole + (rest * 2 >= len(values))
    return timedelta(microseconds=rounded if total >= 0 else -rounded)
