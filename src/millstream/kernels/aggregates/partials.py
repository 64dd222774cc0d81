"""Aggregates as partials: how rows become partials, how partials fold, and how results are computed from them.

A **partial** is the set of columns that an aggregate keeps per key and slice, named ``<measure>$<part>``. An aggregate
is *exact* if folding partials in any grouping and order gives the same result. Only then may executors combine rows
piece by piece. The others (floating-point sums) see all rows of a key and slice of an epoch at once, in a fixed order,
so that the result does not depend on the number of cores. Aggregates with a separate structure per key (sketches,
percentiles) are in `kernels/aggregates/sketches.py`. `kernels/aggregates/combine.py` applies the entries of this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import polars as pl
import pyarrow as pa

from millstream.kernels.aggregates import hyperloglog, interval_sums, ordered_partials
from millstream.kernels.aggregates.sketches import SKETCHES
from millstream.kernels.aggregates.tallies import one_zero
from millstream.plan.parts import Measure

_WIDE = Context(prec=100)
ORDER = ("$ts", "$part", "$pos")
"""The order of rows: event time, then position."""


@dataclass(frozen=True)
class Partial:
    """How one measure is kept. `argument` is the raw column; every list runs over the partial's columns."""

    combine: Callable[[Measure, pl.Expr | None], list[pl.Expr]]
    fold: Callable[[Measure], list[pl.Expr]]
    result: Callable[[Measure], pl.Expr]
    native: Callable[[Measure, str], list[tuple[str, str]]] | None = None
    """Spark SQL of the partials, if Spark can combine as exactly as the kernels."""


def is_float(measure: Measure) -> bool:
    """Whether the argument is a floating-point number."""
    return measure.type is not None and bool(pa.types.is_floating(measure.type))


def of_spans(measure: Measure) -> bool:
    """Whether the argument is an interval. Its sums are kept as whole microseconds."""
    return measure.type is not None and bool(pa.types.is_duration(measure.type))


def is_exact(measure: Measure) -> bool:
    """Whether partials may be folded in any grouping and order."""
    return measure.is_exact


def powers_of(measure: Measure) -> tuple[int, ...]:
    """The powers of the distances from the mean that are summed."""
    return (2, 3, 4) if measure.kind in ("skewness", "kurtosis") else (2,)


def by_expressions(measure: Measure) -> bool:
    """Whether partials are built, folded and evaluated by expressions over columns."""
    return is_exact(measure) and measure.kind not in SKETCHES


def longer_than_decimal(values: pl.Series, most: int, groups: Callable[[], pl.Series]) -> bool:
    """Whether the sum of decimals in some group has more than 38 digits. A group has at most `most` values."""
    ends: list[Any] = [values.min(), values.max()]
    if ends[0] is None:
        return False
    limit = Decimal(10**38 - 1).scaleb(-values.dtype.scale, _WIDE)  # type: ignore[attr-defined]
    if _WIDE.multiply(max(e.copy_abs() for e in ends), most) <= limit:
        return False
    for some in groups().to_list():
        total = Decimal(0)
        for value in some:
            total = total if value is None else _WIDE.add(total, value)
        if total.copy_abs() > limit:
            return True
    return False


def _p(measure: Measure, part: str) -> str:
    return f"{measure.name}${part}"


def _count(m: Measure, x: pl.Expr | None) -> list[pl.Expr]:
    counted = pl.len() if x is None else x.count()
    return [counted.cast(pl.Int64).alias(_p(m, "n"))]


def _widen(m: Measure, x: pl.Expr) -> pl.Expr:
    if m.type is not None and pa.types.is_decimal(m.type):
        return x.cast(pl.Decimal(38, m.type.scale))
    return x.cast(pl.Int64) if m.type is not None and (pa.types.is_integer(m.type) or of_spans(m)) else x


def _sum(m: Measure, x: pl.Expr | None) -> list[pl.Expr]:
    assert x is not None
    return [_widen(m, x).sum().alias(_p(m, "s")), x.count().cast(pl.Int64).alias(_p(m, "n"))]


def _fold_sum(m: Measure) -> list[pl.Expr]:
    return [pl.col(_p(m, "s")).sum(), pl.col(_p(m, "n")).sum()]


def _sum_result(m: Measure) -> pl.Expr:
    total = pl.when(pl.col(_p(m, "n")) > 0).then(pl.col(_p(m, "s")))
    return total.cast(interval_sums.SPAN) if of_spans(m) else total


def _avg_result(m: Measure) -> pl.Expr:
    if of_spans(m):
        return interval_sums.mean(pl.col(_p(m, "s")), pl.col(_p(m, "n")))
    total = pl.col(_p(m, "s")).cast(pl.Float64)
    return pl.when(pl.col(_p(m, "n")) > 0).then(total / pl.col(_p(m, "n")))


def _native_sum(m: Measure, x: str) -> list[tuple[str, str]]:
    value = x
    if m.type is not None and pa.types.is_decimal(m.type):
        value = f"CAST({x} AS DECIMAL(38, {m.type.scale}))"
    if of_spans(m):  # an interval as a number is its seconds
        micros = f"CAST(CAST(sum({x}) AS DECIMAL(20, 6)) * 1000000 AS BIGINT)"
        return [(_p(m, "s"), f"coalesce({micros}, 0)"), (_p(m, "n"), f"count({x})")]
    return [(_p(m, "s"), f"coalesce(sum({value}), 0)"), (_p(m, "n"), f"count({x})")]


def _extreme(which: str) -> Partial:
    def pick(m: Measure, x: pl.Expr) -> pl.Expr:
        if which == "max" and is_float(m):
            return x.nan_max()  # NaN is the greatest number, as in Spark
        return x.max() if which == "max" else x.min()

    def combine(m: Measure, x: pl.Expr | None) -> list[pl.Expr]:
        assert x is not None
        return [pick(m, x).alias(_p(m, "v"))]

    return Partial(
        combine,
        lambda m: [pick(m, pl.col(_p(m, "v")))],
        lambda m: pl.col(_p(m, "v")),
        lambda m, x: [(_p(m, "v"), f"{which}({x})")],
    )


def _by_another(which: str) -> Partial:
    """The value that belongs to the least or greatest of other values. Their position and the value form one struct."""

    def pick(m: Measure, pair: pl.Expr) -> pl.Expr:
        there = pair.filter(pair.struct.field("by").is_not_null())
        order = [there.struct.field(f) for f in ("by", "value")]
        ordered = there.sort_by(*order, nulls_last=False)
        return ordered.first() if which == "first" else ordered.last()

    def combine(m: Measure, x: pl.Expr | None) -> list[pl.Expr]:
        assert x is not None
        return [pick(m, x).alias(_p(m, "v"))]

    extreme = "min" if which == "first" else "max"
    return Partial(
        combine,
        lambda m: [pick(m, pl.col(_p(m, "v")))],
        lambda m: pl.col(_p(m, "v")).struct.field("value"),
        lambda m, x: [(_p(m, "v"), f"{extreme}({x}) FILTER (WHERE {x}.by IS NOT NULL)")],
    )


def _edge(which: str) -> Partial:
    """The value of the first or last record, kept with its position in the order."""

    def combine(m: Measure, x: pl.Expr | None) -> list[pl.Expr]:
        assert x is not None
        parts = [x.alias(_p(m, "v")), *(pl.col(c).alias(_p(m, c[1:])) for c in ORDER)]
        return [getattr(p.sort_by(*ORDER), which)() for p in parts]

    def fold(m: Measure) -> list[pl.Expr]:
        order = [_p(m, c[1:]) for c in ORDER]
        return [getattr(pl.col(c).sort_by(*order), which)() for c in (_p(m, "v"), *order)]

    return Partial(combine, fold, lambda m: pl.col(_p(m, "v")))


def _collect(m: Measure, x: pl.Expr | None) -> list[pl.Expr]:
    assert x is not None
    item = pl.struct(*(pl.col(c) for c in ORDER), x.alias("v"))
    return [item.filter(x.is_not_null()).sort_by(*(pl.col(c).filter(x.is_not_null()) for c in ORDER)).alias(_p(m, "l"))]


def _fold_collect(m: Measure) -> list[pl.Expr]:
    items = pl.col(_p(m, "l")).list.explode(keep_nulls=False, empty_as_null=False)
    return [items.sort_by(*(items.struct.field(c) for c in ORDER))]


def _distinct(m: Measure, x: pl.Expr | None) -> list[pl.Expr]:
    assert x is not None
    value = one_zero(x) if is_float(m) else x
    return [value.drop_nulls().unique().sort().alias(_p(m, "l"))]


def _fold_distinct(m: Measure) -> list[pl.Expr]:
    return [pl.col(_p(m, "l")).list.explode(keep_nulls=False, empty_as_null=False).unique().sort()]


def _variance_result(m: Measure) -> pl.Expr:
    n = pl.col(_p(m, "n"))
    return pl.when(n > 1).then(pl.col(_p(m, "m2")) / (n - 1))


def _population_result(m: Measure) -> pl.Expr:
    n = pl.col(_p(m, "n"))
    return pl.when(n > 0).then(pl.col(_p(m, "m2")) / n)


def _shape_result(m: Measure) -> pl.Expr:
    """Skewness or kurtosis; NULL if all values are equal, because the shape is then undefined."""
    n, spread = pl.col(_p(m, "n")), pl.col(_p(m, "m2"))
    if m.kind == "skewness":
        shape = n.sqrt() * pl.col(_p(m, "m3")) / spread**1.5
    else:
        shape = n * pl.col(_p(m, "m4")) / (spread * spread) - 3
    return pl.when((n > 0) & (spread != 0)).then(shape)


def _elsewhere(*_: object) -> list[pl.Expr]:
    msg = "this aggregate has its own functions: kernels/aggregates/combine.py, kernels/aggregates/sketches.py"
    raise NotImplementedError(msg)


PARTIALS: dict[str, Partial] = {
    "count": Partial(
        _count,
        lambda m: [pl.col(_p(m, "n")).sum()],
        lambda m: pl.col(_p(m, "n")),
        lambda m, x: [(_p(m, "n"), f"count({x or '1'})")],
    ),
    "sum": Partial(_sum, _fold_sum, _sum_result, _native_sum),
    "avg": Partial(_sum, _fold_sum, _avg_result, _native_sum),
    "min": _extreme("min"),
    "max": _extreme("max"),
    "first": _edge("first"),
    "last": _edge("last"),
    "collect": Partial(_collect, _fold_collect, lambda m: pl.col(_p(m, "l")).list.eval(pl.element().struct.field("v"))),
    "count_distinct": Partial(_distinct, _fold_distinct, lambda m: pl.col(_p(m, "l")).list.len().cast(pl.Int64)),
    "variance": Partial(_elsewhere, _elsewhere, _variance_result),
    "stddev": Partial(_elsewhere, _elsewhere, lambda m: _variance_result(m).sqrt()),
    "user": Partial(_elsewhere, _elsewhere, lambda m: pl.col(_p(m, "acc"))),
    "var_pop": Partial(_elsewhere, _elsewhere, _population_result),
    "stddev_pop": Partial(_elsewhere, _elsewhere, lambda m: _population_result(m).sqrt()),
    "skewness": Partial(_elsewhere, _elsewhere, _shape_result),
    "kurtosis": Partial(_elsewhere, _elsewhere, _shape_result),
    "bool_and": _extreme("min"),
    "bool_or": _extreme("max"),
    "min_by": _by_another("first"),
    "max_by": _by_another("last"),
    "collect_set": Partial(_distinct, _fold_distinct, lambda m: pl.col(_p(m, "l"))),
    "first_of": Partial(
        ordered_partials.combine_edge("first", ORDER),
        ordered_partials.fold_edge("first", ORDER),
        lambda m: pl.col(_p(m, "v")),
    ),
    "last_of": Partial(
        ordered_partials.combine_edge("last", ORDER),
        ordered_partials.fold_edge("last", ORDER),
        lambda m: pl.col(_p(m, "v")),
    ),
    "ordered_list": Partial(ordered_partials.combine_list, ordered_partials.fold_list, ordered_partials.list_result),
    "ordered_text": Partial(ordered_partials.combine_list, ordered_partials.fold_list, ordered_partials.text_result),
    "sum_distinct": Partial(_distinct, _fold_distinct, ordered_partials.sum_result),
    "avg_distinct": Partial(_distinct, _fold_distinct, ordered_partials.mean_result),
    **{kind: Partial(_elsewhere, _elsewhere, lambda m: pl.col(m.name)) for kind in SKETCHES},
    "approx_count_distinct": Partial(_elsewhere, _elsewhere, lambda m: pl.col(m.name), hyperloglog.native),
}
"""One entry per kind of aggregate. A test compares it with `model.aggregate.KINDS`."""
