"""Groups changes of other operators by key, for kernels that keep one row of state per key.

Such a row has ``$h`` and ``$a``, hashes of the key, and ``$b``, which is 0.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from millstream.kernels.frames import polars_types
from millstream.kernels.hashing import hashed
from millstream.model.reserved import OP
from millstream.plan.operators.operator import Operator

KEY = ("$h", "$a")


def by_key(spec: Operator, changes: pl.DataFrame | None) -> pl.DataFrame | None:
    """The rows with their hashes and number (``$no``), grouped by key in the order of arrival."""
    if changes is None or not len(changes):
        return None
    rows = changes.select(OP, *spec.columns).cast(types(spec))  # type: ignore[arg-type]
    rows = rows.with_columns(pl.col(k) + 0.0 for k in spec.keys if rows.schema[k].is_float())  # -0.0 and 0.0 are one
    first, second = hashed(rows, spec.keys)
    order = np.lexsort((second, first))
    number = pl.int_range(pl.len(), dtype=pl.Int64).alias("$no")
    marks = (pl.Series("$h", first), pl.Series("$a", second))
    return rows.with_columns(*marks, number)[pl.Series(order, dtype=pl.UInt32)]


def keys_of(spec: Operator, rows: pl.DataFrame) -> pl.DataFrame:
    """The keys of such rows, and the range of each key's rows: ``$from`` inclusive to ``$upto`` exclusive."""
    h, a = rows["$h"].to_numpy(), rows["$a"].to_numpy()
    edges = np.flatnonzero(np.concatenate(([True], (h[1:] != h[:-1]) | (a[1:] != a[:-1]))))
    borders = pl.Series("$from", edges, pl.Int64), pl.Series("$upto", np.append(edges[1:], len(h)), pl.Int64)
    return rows[pl.Series(edges, dtype=pl.UInt32)].select(*KEY, *spec.keys).with_columns(*borders)


def hashes_of(rows: pl.DataFrame) -> np.ndarray:
    """The distinct hashes of the keys of such rows."""
    hashes = rows["$h"].to_numpy()
    return hashes[np.concatenate(([True], hashes[1:] != hashes[:-1]))]


def types(spec: Operator) -> dict[str, pl.DataType]:
    """The types of the columns that an operator reads."""
    return polars_types(spec.columns, spec.types)
