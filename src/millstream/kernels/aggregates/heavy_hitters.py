"""Heavy hitters: the most frequent values, from tallies of bounded length (the algorithm of Misra and Gries).

A tally records the greatest count that any value can have lost to truncation (``$e``). Truncation depends on how rows
were grouped, so all rows of a group in an epoch are tallied at once, whatever the placement.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.kernels.aggregates.tallies import added, packed, plain_values, rows_of, tallied, unpacked
from millstream.model.aggregates.aggregate import settings_of
from millstream.plan.parts import Measure


def combine(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """Tally the most frequent values of the rows."""
    return _lessened(m, tallied(at, plain_values(rows[f"@{m.name}"])), np.zeros(groups, np.int64))


def fold(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """Add counts; the possible losses of each side add up too."""
    missed = np.bincount(at, rows[f"{m.name}$e"].to_numpy(), groups).astype(np.int64)
    return _lessened(m, added(rows[f"{m.name}$t"], at), missed)


def result(m: Measure, partials: pl.DataFrame) -> pl.Series:
    """The most frequent values, each with an upper bound of its count."""
    k, _ = settings_of(m.kind)
    flat = unpacked(partials[f"{m.name}$t"])
    missed = partials[f"{m.name}$e"].fill_null(0).to_numpy()[flat["g"].to_numpy()]
    flat = flat.select("g", pl.col("v").alias("item"), (pl.col("n") + pl.Series(missed)).alias("count"))
    first = flat.sort("g", "count", "item", descending=[False, True, False]).group_by("g", maintain_order=True).head(k)
    return packed(m.name, first, len(partials))


def _lessened(m: Measure, flat: pl.DataFrame, missed: np.ndarray) -> list[pl.Series]:
    """Reduce all counts by the first one that does not fit, and drop those that reach zero (Misra and Gries)."""
    _, most = settings_of(m.kind)
    groups = len(missed)
    if (rows_of(flat, groups) > most).any():
        order = flat.sort("g", "n", descending=[False, True])
        place = order.select(pl.int_range(pl.len()).over("g")).to_series().to_numpy()
        cut = np.zeros(groups, np.int64)
        cut[order["g"].to_numpy()[place == most]] = order["n"].to_numpy()[place == most]
        less = pl.Series(cut[flat["g"].to_numpy()])
        flat = flat.with_columns(pl.col("n") - less).filter(pl.col("n") > 0)
        missed = missed + cut
    return [packed(f"{m.name}$t", flat, groups), pl.Series(f"{m.name}$e", missed, dtype=pl.Int64)]
