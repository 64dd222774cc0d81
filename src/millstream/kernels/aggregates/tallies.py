"""Tallies: how often each value occurs, and the aggregates computed from that: percentiles and the mode.

A **tally** is a list of values with their counts, sorted by value, one list per group. An exact percentile keeps a
tally of all values. `approx_percentile` keeps a bounded number of *buckets*: the leading bits of a number. While there
are few distinct values, a bucket is a value. When there are too many, all buckets lose their last bit. The number of
lost bits depends on the values alone, so tallies may be merged in any grouping and order.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from millstream.model.aggregates.aggregate import settings_of
from millstream.plan.parts import Measure

_SIGN = np.int64(2**63 - 1)


def tallied(at: np.ndarray, values: pl.Series, counts: np.ndarray | None = None) -> pl.DataFrame:
    """Group (``g``), value (``v``) and count (``n``), each value once per group, sorted; NULLs are omitted."""
    times = pl.Series("n", np.ones(len(at), np.int64) if counts is None else counts)
    flat = pl.DataFrame([pl.Series("g", at, dtype=pl.Int64), values.alias("v"), times]).drop_nulls("v")
    return flat.group_by("g", "v").agg(pl.col("n").sum()).sort("g", "v")


def packed(name: str, flat: pl.DataFrame, groups: int) -> pl.Series:
    """Pack rows, sorted by group, into one list of structs per group."""
    items = flat.drop("g").to_struct("item").to_arrow()
    borders = np.searchsorted(flat["g"].to_numpy(), np.arange(groups + 1))
    lists = pl.from_arrow(pa.LargeListArray.from_arrays(pa.array(borders, pa.int64()), items))
    assert isinstance(lists, pl.Series)
    return lists.alias(name)


def unpacked(lists: pl.Series) -> pl.DataFrame:
    """The rows that lists were packed from; ``g`` is the number of the list."""
    lengths = lists.list.len().fill_null(0).to_numpy()
    items = lists.drop_nulls().list.explode(keep_nulls=False, empty_as_null=False)
    return items.struct.unnest().with_columns(pl.Series("g", np.repeat(np.arange(len(lists)), lengths), dtype=pl.Int64))


def added(lists: pl.Series, at: np.ndarray) -> pl.DataFrame:
    """Add the tallies of several lists; `at` is the group of each list."""
    flat = unpacked(lists)
    return tallied(at[flat["g"].to_numpy()], flat["v"], flat["n"].to_numpy())


# ------------------------------------------------------------ exact: percentile, mode


def combine_values(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """Tally all values."""
    return [packed(f"{m.name}$t", tallied(at, plain_values(rows[f"@{m.name}"])), groups)]


def combine_numbers(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """Tally all values as DOUBLE."""
    return [packed(f"{m.name}$t", tallied(at, _numbers(rows[f"@{m.name}"])), groups)]


def fold_tallies(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """Add tallies."""
    return [packed(f"{m.name}$t", added(rows[f"{m.name}$t"], at), groups)]


def percentile(m: Measure, partials: pl.DataFrame) -> pl.Series:
    """The value at a fraction of the sorted values, interpolated between two values if it falls between them."""
    percentiles, several = settings_of(m.kind)
    flat = unpacked(partials[f"{m.name}$t"])
    values, totals = flat["v"].to_numpy(), _totals(flat, len(partials))
    answers_by_rank = []
    for p in percentiles:
        place = p * (totals - 1)
        low, high = np.floor(place), np.ceil(place)
        below, above = _at_rank(flat, totals, low, values), _at_rank(flat, totals, high, values)
        with np.errstate(invalid="ignore"):
            between = (high - place) * below + (place - low) * above
        answers_by_rank.append(np.where((low == high) | (below == above), below, between))
    return answers(m.name, answers_by_rank, totals > 0, pl.Float64(), several=several)


def percentile_disc(m: Measure, partials: pl.DataFrame) -> pl.Series:
    """The first of the sorted values at or after a fraction of them."""
    percentiles, several = settings_of(m.kind)
    flat = unpacked(partials[f"{m.name}$t"])
    values, totals = flat["v"].to_numpy(), _totals(flat, len(partials))
    answers_by_rank = [_at_rank(flat, totals, _rank(p, totals), values) for p in percentiles]
    return answers(m.name, answers_by_rank, totals > 0, pl.Float64(), several=several)


def mode(m: Measure, partials: pl.DataFrame) -> pl.Series:
    """The most frequent value; the least of them in case of a tie."""
    lists = partials[f"{m.name}$t"]
    flat = unpacked(lists).sort("g", "n", "v", descending=[False, True, False])
    first = flat.unique("g", keep="first", maintain_order=True)
    every = pl.DataFrame({"g": np.arange(len(lists), dtype=np.int64)})
    return every.join(first, on="g", how="left", maintain_order="left")["v"].alias(m.name)


# ------------------------------------------------------------ approx_percentile


def combine_buckets(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """Count values by bucket."""
    keys = pl.Series(_keys(_numbers(rows[f"@{m.name}"])))
    there = rows[f"@{m.name}"].is_not_null().to_numpy()
    flat = tallied(at[there], keys.filter(pl.Series(there)))
    return _buckets(m, flat, np.zeros(groups, np.int64), _edges(flat, groups))


def fold_buckets(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """Merge buckets. All buckets of a group lose as many bits as any of them has lost, and more if there are still too
    many.
    """
    lost = np.zeros(groups, np.int64)
    np.maximum.at(lost, at, rows[f"{m.name}$b"].to_numpy())
    flat = unpacked(rows[f"{m.name}$t"])
    flat = flat.with_columns(pl.Series("g", at[flat["g"].to_numpy()], dtype=pl.Int64))
    edges = pl.DataFrame([pl.Series("g", at, dtype=pl.Int64), rows[f"{m.name}$lo"], rows[f"{m.name}$hi"]])
    edges = edges.group_by("g").agg(pl.col(f"{m.name}$lo").min(), pl.col(f"{m.name}$hi").max()).sort("g")
    return _buckets(m, _shortened(flat, lost), lost, [edges[f"{m.name}$lo"], edges[f"{m.name}$hi"]])


def approx_percentile(m: Measure, partials: pl.DataFrame) -> pl.Series:
    """The middle of the bucket that holds the value. While buckets are values, this is the value itself."""
    percentiles, several, _ = settings_of(m.kind)
    flat = unpacked(partials[f"{m.name}$t"])
    totals = _totals(flat, len(partials))
    lost = np.repeat(partials[f"{m.name}$b"].to_numpy(), rows_of(flat, len(partials)))
    low, high = (
        np.repeat(partials[f"{m.name}${e}"].fill_null(0).to_numpy(), rows_of(flat, len(partials))) for e in ("lo", "hi")
    )
    first = flat["v"].to_numpy()
    last = first | ((np.int64(1) << lost) - 1)
    middle = _middle(np.maximum(first, low), np.minimum(last, high))
    answers_by_rank = [_at_rank(flat, totals, _rank(p, totals), middle) for p in percentiles]
    for i, p in enumerate(percentiles):  # the ends are known exactly
        for end, name in ((0.0, "lo"), (1.0, "hi")):
            if p == end:
                answers_by_rank[i] = _value(partials[f"{m.name}${name}"].fill_null(0).to_numpy())
    return answers(m.name, answers_by_rank, totals > 0, _type_of(m), several=several)


def _buckets(m: Measure, flat: pl.DataFrame, lost: np.ndarray, edges: list[pl.Series]) -> list[pl.Series]:
    """The parts of the sketch, after groups with too many buckets have lost bits."""
    most, groups = settings_of(m.kind)[2], len(lost)
    at, keys = flat["g"].to_numpy(), flat["v"].to_numpy()
    full = rows_of(flat, groups) > most
    if full.any():
        # two neighbors merge when the highest bit in which they differ is lost
        near = (at[1:] == at[:-1]) & full[at[1:]]
        differ = np.zeros((groups, 65), np.int64)
        np.add.at(differ, (at[1:][near], _width(keys[1:][near] ^ keys[:-1][near])), 1)
        left = 1 + np.cumsum(differ[:, ::-1], axis=1)[:, ::-1]  # number of buckets by lost bits, from 1 on
        need = np.argmax(left[:, 1:] <= most, axis=1)
        lost = np.where(full, np.maximum(lost, need), lost)
        flat = _shortened(flat, lost)
    return [
        packed(f"{m.name}$t", flat.select("g", "v", "n"), groups),
        pl.Series(f"{m.name}$b", lost, dtype=pl.Int64),
        edges[0].alias(f"{m.name}$lo"),
        edges[1].alias(f"{m.name}$hi"),
    ]


def _shortened(flat: pl.DataFrame, lost: np.ndarray) -> pl.DataFrame:
    bits = lost[flat["g"].to_numpy()]
    return tallied(flat["g"].to_numpy(), pl.Series(flat["v"].to_numpy() >> bits << bits), flat["n"].to_numpy())


def _edges(flat: pl.DataFrame, groups: int) -> list[pl.Series]:
    every = pl.DataFrame({"g": np.arange(groups, dtype=np.int64)})
    ends = flat.group_by("g").agg(pl.col("v").min().alias("lo"), pl.col("v").max().alias("hi"))
    known = every.join(ends, on="g", how="left", maintain_order="left")
    return [known["lo"], known["hi"]]


def _width(numbers: np.ndarray) -> np.ndarray:
    """The number of bits of each number: 64 if the sign bit is set."""
    return 64 - pl.Series(numbers).bitwise_leading_zeros().to_numpy().astype(np.int64)


def _keys(numbers: pl.Series) -> np.ndarray:
    """Integers in the same order as floating-point numbers, NaN the greatest."""
    plain = numbers.fill_null(0.0).to_numpy()
    bits = np.where(np.isnan(plain), np.nan, plain).view(np.int64)
    return np.where(bits < 0, bits ^ _SIGN, bits)


def _value(keys: np.ndarray) -> np.ndarray:
    """The number that a key represents."""
    return np.where(keys < 0, keys ^ _SIGN, keys).view(np.float64)


def _middle(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    low, high = _value(first), _value(last)
    with np.errstate(invalid="ignore", over="ignore"):
        between = low / 2 + high / 2
    return np.where((first == last) | ~np.isfinite(between), low, between)


# ------------------------------------------------------------ ranks and results


def answers(
    name: str, numbers_by_column: list[np.ndarray], there: np.ndarray, kind: pl.DataType, *, several: bool
) -> pl.Series:
    """The numbers of each group as one value or a list of values; NULL if there is nothing to compute from."""
    none = ~there
    columns = []
    for i, numbers in enumerate(numbers_by_column):
        column = pl.Series(str(i), numbers, dtype=pl.Float64)
        if kind.is_integer():
            column = column.round(0)
        columns.append(column.set(pl.Series(none), None).cast(kind))
    if not several:
        return columns[0].alias(name)
    joined = pl.DataFrame(columns).select(pl.concat_list(pl.all()).alias(name)).to_series()
    return pl.DataFrame([joined, pl.Series("$none", none)]).select(
        pl.when(~pl.col("$none")).then(pl.col(name)).alias(name)
    )[name]


def one_zero(number: pl.Expr) -> pl.Expr:
    """Replace -0.0 by 0.0, because both are the same value."""
    return pl.when(number == 0).then(0.0).otherwise(number)


def plain_values(values: pl.Series) -> pl.Series:
    """Normalize values so that equal ones have one representation."""
    return values.to_frame("v").select(one_zero(pl.col("v"))).to_series() if values.dtype.is_float() else values


def _numbers(values: pl.Series) -> pl.Series:
    return plain_values(values.cast(pl.Float64))


def rows_of(flat: pl.DataFrame, groups: int) -> np.ndarray:
    """How many rows each group has."""
    return np.bincount(flat["g"].to_numpy(), minlength=groups)


def _totals(flat: pl.DataFrame, groups: int) -> np.ndarray:
    """How many values each group counts."""
    totals = np.zeros(groups, np.int64)
    np.add.at(totals, flat["g"].to_numpy(), flat["n"].to_numpy())
    return totals


def _rank(p: float, totals: np.ndarray) -> np.ndarray:
    """The position, from 0, of the first value that covers a fraction of all values."""
    rank: np.ndarray = np.maximum(np.ceil(p * totals - 1e-9), 1) - 1
    return rank


def _at_rank(flat: pl.DataFrame, totals: np.ndarray, ranks: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each group, the value at its own position among sorted values."""
    if not len(values):
        return np.zeros(len(totals))
    upto = np.cumsum(flat["n"].to_numpy())
    before = np.cumsum(totals) - totals
    places = np.searchsorted(upto, before + ranks.astype(np.int64), side="right")
    chosen: np.ndarray = values[np.minimum(places, len(values) - 1)]
    return chosen


def _type_of(m: Measure) -> pl.DataType:
    empty = pl.from_arrow(pa.array([], type=m.type))
    assert isinstance(empty, pl.Series)
    return empty.dtype
