"""Helpers for Polars frames that several kernels share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import polars as pl
import pyarrow as pa


def concat_rows(frames: Iterable[pl.DataFrame | None]) -> pl.DataFrame | None:
    """Concatenate frames, with columns in the order of the first; None if there are no rows."""
    filled = [f for f in frames if f is not None and len(f)]
    if len(filled) < 2:
        return filled[0] if filled else None
    return pl.concat([f.select(filled[0].columns) for f in filled], how="vertical_relaxed")


def polars_types(names: Sequence[str], types: Sequence[pa.DataType | None]) -> dict[str, pl.DataType]:
    """The Polars types of columns with these Arrow types."""
    return dict(_polars_schema(tuple(names), tuple(types)))


@lru_cache(maxsize=1024)
def _polars_schema(names: tuple[str, ...], types: tuple[pa.DataType | None, ...]) -> pl.Schema:
    empty = pl.from_arrow(pa.schema(list(zip(names, types, strict=True))).empty_table())
    assert isinstance(empty, pl.DataFrame)
    return empty.schema
