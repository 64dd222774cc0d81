"""Aggregates of how values are distributed, exactly: percentiles, the mode, and the shape around the mean."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.errors import DefinitionError
from millstream.model.aggregates.aggregate import Aggregate, Kind
from millstream.model.expression import Expr, expr
from millstream.model.origin import here


def var_pop(column: str | Expr) -> Aggregate:
    """The variance of the values as a whole population."""
    return Aggregate("var_pop", expr(column))


def stddev_pop(column: str | Expr) -> Aggregate:
    """The standard deviation of the values as a whole population."""
    return Aggregate("stddev_pop", expr(column))


def skewness(column: str | Expr) -> Aggregate:
    """How far values lean to one side of their mean, NULL where all are equal."""
    return Aggregate("skewness", expr(column))


def kurtosis(column: str | Expr) -> Aggregate:
    """How heavy the tails are, 0 for a normal distribution, NULL where all values are equal."""
    return Aggregate("kurtosis", expr(column))


def mode(column: str | Expr) -> Aggregate:
    """The value that is there most often; of several the smallest."""
    return Aggregate("mode", expr(column))


def percentile(column: str | Expr, p: float | Sequence[float]) -> Aggregate:
    """The value at the part `p` (0 to 1) of the sorted values, exactly; between two values it is interpolated.

    For a list of parts the answer is a list.
    """
    return Aggregate(Kind("percentile", *parts(p)), expr(column))


def percentile_disc(column: str | Expr, p: float | Sequence[float]) -> Aggregate:
    """The first of the sorted values at or behind the part `p` (0 to 1), exactly."""
    return Aggregate(Kind("percentile_disc", *parts(p)), expr(column))


def median(column: str | Expr) -> Aggregate:
    """The value in the middle of the sorted values, exactly."""
    return percentile(column, 0.5)


def parts(p: float | Sequence[float]) -> tuple[tuple[float, ...], bool]:
    """Parts from 0 to 1, and whether they were given as a list."""
    several = not isinstance(p, int | float)
    given = tuple(p) if isinstance(p, Sequence) else (p,)
    if not given or not all(type(x) in (int, float) and 0 <= x <= 1 for x in given):
        raise DefinitionError(f"{p!r} is no part of the whole", hint="numbers from 0 to 1, e.g. 0.95", origin=here())
    return tuple(float(x) for x in given), several
