"""Tallies: how often each value was there, and what is answered from that: percentiles and the mode.

A **tally** is a list of values with their counts, in the order of the values, one list per group. An exact percentile
keeps a tally of all values. `approx_percentile` keeps one of at most so many *buckets*: the leading bits of a number.
While there are few different values a bucket is a value; when there are too many, all buckets lose their last bit. How
many bits are lost depends on the values alone, so tallies may be joined in any grouping and order.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from millstream.model.aggregates.aggregate import settings_of
from millstream.plan.parts import Measure

_SIGN = np.int64(2**63 - 1)


def tallied(at: np.ndarray, values: pl.Series, counts: np.ndarray | None = None) -> pl.DataFrame:
    """Group (``g``), value (``v``) and count (``n``), each value once per group, in order; NULLs are left out."""
    times = pl.Series("n", np.ones(len(at), np.int64) if counts is None else counts)
    flat = pl.DataFrame([pl.Series("g", at, dtype=pl.Int64), values.alias("v"), times]).drop_nulls("v")
    return flat.group_by("g", "v").agg(pl.col("n").sum()).sort("g", "v")


def packed(name: str, flat: pl.DataFrame, groups: int) -> pl.Series:
    """One list of structs per group from rows that are in the order of their groups."""
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
    """The tallies of several lists added up; `at` is the group of each list."""
    flat = unpacked(lists)
    return tallied(at[flat["g"].to_numpy()], flat["v"], flat["n"].to_numpy())


# ------------------------------------------------------------ exact: percentile, mode


def combine_values(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """A tally of all values."""
    return [packed(f"{m.name}$t", tallied(at, plain_values(rows[f"@{m.name}"])), groups)]


def combine_numbers(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """A tally of all values as DOUBLE."""
    return [packed(f"{m.name}$t", tallied(at, _numbers(rows[f"@{m.name}"])), groups)]


def fold_tallies(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """Tallies added up."""
    return [packed(f"{m.name}$t", added(rows[f"{m.name}$t"], at), groups)]


def percentile(m: Measure, partials: pl.DataFrame) -> pl.Series:
    """The value at a part of the way through the sorted values, between two of them where it falls there."""
    wanted, several = settings_of(m.kind)
    flat = unpacked(partials[f"{m.name}$t"])
    values, totals = flat["v"].to_numpy(), _totals(flat, len(partials))
    found = []
    for p in wanted:
        place = p * (totals - 1)
        low, high = np.floor(place), np.ceil(place)
        below, above = _at_rank(flat, totals, low, values), _at_rank(flat, totals, high, values)
        with np.errstate(invalid="ignore"):
            between = (high - place) * below + (place - low) * above
        found.append(np.where((low == high) | (below == above), below, between))
    return answers(m.name, found, totals > 0, pl.Float64(), several=several)


def percentile_disc(m: Measure, partials: pl.DataFrame) -> pl.Series:
    """The first of the sorted values at or behind a part of the way."""
    wanted, several = settings_of(m.kind)
    flat = unpacked(partials[f"{m.name}$t"])
    values, totals = flat["v"].to_numpy(), _totals(flat, len(partials))
    found = [_at_rank(flat, totals, _rank(p, totals), values) for p in wanted]
    return answers(m.name, found, totals > 0, pl.Float64(), several=several)


def mode(m: Measure, partials: pl.DataFrame) -> pl.Series:
    """The value that is there most often, the least of those as often."""
    lists = partials[f"{m.name}$t"]
    flat = unpacked(lists).sort("g", "n", "v", descending=[False, True, False])
    first = flat.unique("g", keep="first", maintain_order=True)
    every = pl.DataFrame({"g": np.arange(len(lists), dtype=np.int64)})
    return every.join(first, on="g", how="left", maintain_order="left")["v"].alias(m.name)


# ------------------------------------------------------------ approx_percentile


def combine_buckets(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """Buckets of the values."""
    keys = pl.Series(_keys(_numbers(rows[f"@{m.name}"])))
    there = rows[f"@{m.name}"].is_not_null().to_numpy()
    flat = tallied(at[there], keys.filter(pl.Series(there)))
    return _buckets(m, flat, np.zeros(groups, np.int64), _edges(flat, groups))


def fold_buckets(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """Buckets joined: all of a group lose as many bits as one of them has lost, and more where that is too many."""
    lost = np.zeros(groups, np.int64)
    np.maximum.at(lost, at, rows[f"{m.name}$b"].to_numpy())
    flat = unpacked(rows[f"{m.name}$t"])
    flat = flat.with_columns(pl.Series("g", at[flat["g"].to_numpy()], dtype=pl.Int64))
    edges = pl.DataFrame([pl.Series("g", at, dtype=pl.Int64), rows[f"{m.name}$lo"], rows[f"{m.name}$hi"]])
    edges = edges.group_by("g").agg(pl.col(f"{m.name}$lo").min(), pl.col(f"{m.name}$hi").max()).sort("g")
    return _buckets(m, _shortened(flat, lost), lost, [edges[f"{m.name}$lo"], edges[f"{m.name}$hi"]])


def approx_percentile(m: Measure, partials: pl.DataFrame) -> pl.Series:
    """The middle of the bucket that holds the value, which is the value itself while buckets are values."""
    wanted, several, _ = settings_of(m.kind)
    flat = unpacked(partials[f"{m.name}$t"])
    totals = _totals(flat, len(partials))
    lost = np.repeat(partials[f"{m.name}$b"].to_numpy(), rows_of(flat, len(partials)))
    low, high = (
        np.repeat(partials[f"{m.name}${e}"].fill_null(0).to_numpy(), rows_of(flat, len(partials))) for e in ("lo", "hi")
    )
    first = flat["v"].to_numpy()
    last = first | ((np.int64(1) << lost) - 1)
    middle = _middle(np.maximum(first, low), np.minimum(last, high))
    found = [_at_rank(flat, totals, _rank(p, totals), middle) for p in wanted]
    for i, p in enumerate(wanted):  # the ends are known exactly
        for end, name in ((0.0, "lo"), (1.0, "hi")):
            if p == end:
                found[i] = _value(partials[f"{m.name}${name}"].fill_null(0).to_numpy())
    return answers(m.name, found, totals > 0, _type_of(m), several=several)


def _buckets(m: Measure, flat: pl.DataFrame, lost: np.ndarray, edges: list[pl.Series]) -> list[pl.Series]:
    """The parts of the sketch, after groups with too many buckets have lost bits."""
    most, groups = settings_of(m.kind)[2], len(lost)
    at, keys = flat["g"].to_numpy(), flat["v"].to_numpy()
    full = rows_of(flat, groups) > most
    if full.any():
        # two neighbours fall together when the highest bit in which they differ is lost
        near = (at[1:] == at[:-1]) & full[at[1:]]
        differ = np.zeros((groups, 65), np.int64)
        np.add.at(differ, (at[1:][near], _width(keys[1:][near] ^ keys[:-1][near])), 1)
        left = 1 + np.cumsum(differ[:, ::-1], axis=1)[:, ::-1]  # buckets after losing so many bits, from 1 on
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
    """How many bits numbers have: 64 where the sign bit is set."""
    return 64 - pl.Series(numbers).bitwise_leading_zeros().to_numpy().astype(np.int64)


def _keys(numbers: pl.Series) -> np.ndarray:
    """Whole numbers in the same order as floating ones, NaN the greatest."""
    plain = numbers.fill_null(0.0).to_numpy()
    bits = np.where(np.isnan(plain), np.nan, plain).view(np.int64)
    return np.where(bits < 0, bits ^ _SIGN, bits)


def _value(keys: np.ndarray) -> np.ndarray:
    """The number that a key stands for."""
    return np.where(keys < 0, keys ^ _SIGN, keys).view(np.float64)


def _middle(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    low, high = _value(first), _value(last)
    with np.errstate(invalid="ignore", over="ignore"):
        between = low / 2 + high / 2
    return np.where((first == last) | ~np.isfinite(between), low, between)


# ------------------------------------------------------------ ranks and answers


def answers(name: str, found: list[np.ndarray], there: np.ndarray, kind: pl.DataType, *, several: bool) -> pl.Series:
    """Numbers found for each group as one value, or a list of them; NULL where there is nothing to answer from."""
    none = ~there
    columns = []
    for i, numbers in enumerate(found):
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
    """Floating numbers in which -0.0 is 0.0, which is the same value."""
    return pl.when(number == 0).then(0.0).otherwise(number)


def plain_values(values: pl.Series) -> pl.Series:
    """Values of which equal ones are written alike."""
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
    """The place, from 0, of the first value that a part of all values is not behind."""
    rank: np.ndarray = np.maximum(np.ceil(p * totals - 1e-9), 1) - 1
    return rank


def _at_rank(flat: pl.DataFrame, totals: np.ndarray, ranks: np.ndarray, values: np.ndarray) -> np.ndarray:
    """For each group the value at a place of its own, among values that are in order."""
    if not len(values):
        return np.zeros(len(totals))
    upto = np.cumsum(flat["n"].to_numpy())
    before = np.cumsum(totals) - totals
    found = np.searchsorted(upto, before + ranks.astype(np.int64), side="right")
    taken: np.ndarray = values[np.minimum(found, len(values) - 1)]
    return taken


def _type_of(m: Measure) -> pl.DataType:
    empty = pl.from_arrow(pa.array([], type=m.type))
    assert isinstance(empty, pl.Series)
    return empty.dtype
