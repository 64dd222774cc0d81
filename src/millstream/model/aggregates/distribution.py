"""Exact statistics of the distribution of values: percentiles, mode, and moments."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.errors import DefinitionError
from millstream.model.aggregates.aggregate import Aggregate, Kind
from millstream.model.expression import Expr, expr
from millstream.model.origin import here


def var_pop(column: str | Expr) -> Aggregate:
    """The population variance."""
    return Aggregate("var_pop", expr(column))


def stddev_pop(column: str | Expr) -> Aggregate:
    """The population standard deviation."""
    return Aggregate("stddev_pop", expr(column))


def skewness(column: str | Expr) -> Aggregate:
    """The skewness (asymmetry around the mean), NULL if all values are equal."""
    return Aggregate("skewness", expr(column))


def kurtosis(column: str | Expr) -> Aggregate:
    """The excess kurtosis (weight of the tails): 0 for a normal distribution, NULL if all values are equal."""
    return Aggregate("kurtosis", expr(column))


def mode(column: str | Expr) -> Aggregate:
    """The most frequent value; ties return the smallest."""
    return Aggregate("mode", expr(column))


def percentile(column: str | Expr, p: float | Sequence[float]) -> Aggregate:
    """The exact value at the fraction `p` (0 to 1) of the sorted values, interpolated between two values.

    For a list of fractions the result is a list.
    """
    return Aggregate(Kind("percentile", *parts(p)), expr(column))


def percentile_disc(column: str | Expr, p: float | Sequence[float]) -> Aggregate:
    """The first of the sorted values at or after the fraction `p` (0 to 1), exactly."""
    return Aggregate(Kind("percentile_disc", *parts(p)), expr(column))


def median(column: str | Expr) -> Aggregate:
    """The exact median: the middle of the sorted values."""
    return percentile(column, 0.5)


def parts(p: float | Sequence[float]) -> tuple[tuple[float, ...], bool]:
    """Fractions from 0 to 1, and whether they were passed as a list."""
    several = not isinstance(p, int | float)
    fractions = tuple(p) if isinstance(p, Sequence) else (p,)
    if not fractions or not all(type(x) in (int, float) and 0 <= x <= 1 for x in fractions):
        raise DefinitionError(f"{p!r} is not a fraction", hint="numbers from 0 to 1, e.g. 0.95", origin=here())
    return tuple(float(x) for x in fractions), several
