"""Approximate aggregates with state of bounded size, and the sample. Each documents its error bound.

Distinct counts and frequencies use a hash of the value that Spark computes (`xxhash64`), so they accept every type.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millstream.errors import DefinitionError
from millstream.model.aggregates.aggregate import Aggregate, Kind
from millstream.model.aggregates.distribution import parts
from millstream.model.expression import Expr, expr
from millstream.model.origin import here


def approx_count_distinct(column: str | Expr, precision: int = 12) -> Aggregate:
    """The approximate number of distinct values, from a HyperLogLog sketch of at most 2 ** `precision` bytes.

    The standard error is 1.04 / sqrt(2 ** precision): 1.6 % for 12. Up to a few hundred values the result is exact.
    """
    _whole("precision", precision, 4, 21)
    return Aggregate(Kind("approx_count_distinct", precision), _hash(expr(column)))


def approx_percentile(column: str | Expr, p: float | Sequence[float], accuracy: int = 10_000) -> Aggregate:
    """The approximate percentile: the first of the sorted values at or after the fraction `p` (0 to 1).

    `accuracy` is the number of buckets of values. Up to this many distinct values the result is exact; with more, it is
    the middle of the bucket that contains the exact result. The ends, 0 and 1, are always exact.
    """
    _whole("accuracy", accuracy, 2, 1_000_000)
    return Aggregate(Kind("approx_percentile", *parts(p), accuracy), expr(column))


def approx_top_k(column: str | Expr, k: int = 5, tracked: int = 10_000) -> Aggregate:
    """The k most frequent values with their counts, as a list of structs (item, count), most frequent first.

    Up to `tracked` distinct values the result is exact. With more, a count may be too high by at most one in `tracked`
    of all records, and a value less frequent than that may be missing.
    """
    _whole("k", k, 1, 100_000)
    _whole("tracked", tracked, k, 1_000_000)
    return Aggregate(Kind("approx_top_k", k, tracked), expr(column))


def approx_f2(column: str | Expr, width: int = 1024) -> Aggregate:
    """The approximate second frequency moment: the sum of the squared frequencies of the values.

    It measures skew: count squared / F2 is approximately how many values share the records. The standard error is about
    sqrt(2 / width): 4 % for 1024. State is at most 5 * width counters.
    """
    _whole("width", width, 16, 1_000_000)
    return Aggregate(Kind("approx_f2", width), _hash(expr(column)))


def sample(column: str | Expr, n: int) -> Aggregate:
    """A uniform random sample of up to n non-NULL values, in no particular order. Every run returns the same sample."""
    _whole("n", n, 1, 100_000)
    return Aggregate(Kind("sample", n), expr(column))


def _hash(value: Expr) -> Expr:
    """The hash of a value; NULL stays NULL."""
    there = exp.Not(this=exp.Is(this=exp.paren(value.node.copy(), copy=False), expression=exp.Null()))
    hashed = exp.Anonymous(this="xxhash64", expressions=[value.node.copy()])
    return Expr(exp.Case(ifs=[exp.If(this=there, true=hashed)]), value.origin)


def _whole(name: str, value: int, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise DefinitionError(
            f"{name}={value!r} is out of range", hint=f"a whole number from {least} to {most}", origin=here()
        )
