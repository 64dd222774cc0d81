"""Aggregates that keep a structure per group instead of plain columns: sketches, tallies and samples.

Functions over all groups at once combine rows, fold partials and compute results. `at` is the number of each row's
group; rows of one group are adjacent. All aggregates but `approx_top_k` give the same result however rows and partials
are grouped and ordered. `kernels/aggregates/combine.py` calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from millstream.kernels.aggregates import heavy_hitters as hitters
from millstream.kernels.aggregates import hyperloglog as hll
from millstream.kernels.aggregates import tallies as tally
from millstream.kernels.hashing import hashed
from millstream.model.aggregates.aggregate import settings_of
from millstream.plan.parts import Measure

_RECORD = ("$ts", "$part", "$pos")
_ROW = ("$a", "$b")
"""The columns that identify a record of a source, or a row of another operator."""

_LINES = 5
"""The number of estimates of a frequency moment; the result is their median."""
_MIX = 0x9E3779B97F4A7C15

Grouped = Callable[[Measure, pl.DataFrame, np.ndarray, int], list[pl.Series]]


@dataclass(frozen=True)
class Sketch:
    """How a measure is combined from rows, folded from partials, and evaluated."""

    combine: Grouped
    fold: Grouped
    result: Callable[[Measure, pl.DataFrame], pl.Series]


# ------------------------------------------------------------ a sample: the values whose records hash lowest


def _sampled(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    marks = [c for c in (_RECORD if "$ts" in rows.columns else _ROW) if c in rows.columns]
    lots = hashed(rows, [*marks, f"@{m.name}"])[0]
    flat = pl.DataFrame([pl.Series("g", at, dtype=pl.Int64), pl.Series("h", lots), rows[f"@{m.name}"].alias("v")])
    return [_lowest(m, flat.drop_nulls("v"), groups)]


def _samples_joined(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    flat = tally.unpacked(rows[f"{m.name}$l"])
    return [_lowest(m, flat.with_columns(pl.Series("g", at[flat["g"].to_numpy()], dtype=pl.Int64)), groups)]


def _lowest(m: Measure, flat: pl.DataFrame, groups: int) -> pl.Series:
    lowest = flat.sort("g", "h").group_by("g", maintain_order=True).head(settings_of(m.kind)[0])
    return tally.packed(f"{m.name}$l", lowest.select("g", "h", "v"), groups)


def _sample(m: Measure, partials: pl.DataFrame) -> pl.Series:
    values = partials[f"{m.name}$l"].list.eval(pl.element().struct.field("v"))
    return values.alias(m.name)


# ------------------------------------------------------------ the second frequency moment: counters up and down


def _counters(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    there = rows[f"@{m.name}"].is_not_null().to_numpy()
    hashes = rows[f"@{m.name}"].drop_nulls().to_numpy().view(np.uint64)
    width = settings_of(m.kind)[0]
    places, signs = [], []
    for line in range(_LINES):
        mixed = hashes + np.uint64((line + 1) * _MIX % 2**64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        places.append((mixed >> np.uint64(1)) % np.uint64(width) + np.uint64(line * width))
        signs.append(1 - 2 * (mixed & np.uint64(1)).astype(np.int64))
    flat = tally.tallied(
        np.tile(at[there], _LINES), pl.Series(np.concatenate(places)).cast(pl.Int32), np.concatenate(signs)
    )
    return [_moved(m, flat, groups)]


def _counters_added(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    return [_moved(m, tally.added(rows[f"{m.name}$t"], at), groups)]


def _moved(m: Measure, flat: pl.DataFrame, groups: int) -> pl.Series:
    return tally.packed(f"{m.name}$t", flat.filter(pl.col("n") != 0), groups)


def _second_moment(m: Measure, partials: pl.DataFrame) -> pl.Series:
    width = settings_of(m.kind)[0]
    flat = tally.unpacked(partials[f"{m.name}$t"])
    lines = np.zeros((len(partials), _LINES))
    squares = flat["n"].to_numpy().astype(np.float64) ** 2
    np.add.at(lines, (flat["g"].to_numpy(), flat["v"].to_numpy() // width), squares)
    return pl.Series(m.name, np.median(lines, axis=1), dtype=pl.Float64)


SKETCHES: dict[str, Sketch] = {
    "percentile": Sketch(tally.combine_numbers, tally.fold_tallies, tally.percentile),
    "percentile_disc": Sketch(tally.combine_numbers, tally.fold_tallies, tally.percentile_disc),
    "mode": Sketch(tally.combine_values, tally.fold_tallies, tally.mode),
    "approx_count_distinct": Sketch(hll.combine, hll.fold, hll.result),
    "approx_percentile": Sketch(tally.combine_buckets, tally.fold_buckets, tally.approx_percentile),
    "approx_top_k": Sketch(hitters.combine, hitters.fold, hitters.result),
    "approx_f2": Sketch(_counters, _counters_added, _second_moment),
    "sample": Sketch(_sampled, _samples_joined, _sample),
}
