"""Evaluates projections over changes without Spark.

Where a result might differ from Spark's, the functions return None and the caller evaluates the projection with Spark.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from millstream.kernels import native_expressions
from millstream.plan.parts import NativeProjection


def projected(
    rows: pl.DataFrame, projections: Sequence[NativeProjection], carried: Sequence[str] = ()
) -> pl.DataFrame | None:
    """Rows after projections, with the columns that are `carried` along first; None if only Spark can compute them."""
    for projection in projections:
        columns = [native_expressions.value(value, rows) for _, value in projection.columns]
        if any(c is None for c in columns):
            return None
        if projection.keep is not None:
            kept = native_expressions.holds(projection.keep, rows)
            if kept is None:
                return None
            rows = rows.filter(kept)
        named = zip(projection.columns, columns, strict=True)
        rows = rows.select(*carried, *(c.alias(name) for (name, _), c in named if c is not None))
    return rows
