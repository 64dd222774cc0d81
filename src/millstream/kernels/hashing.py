"""Hashes of rows that never change between versions: state written by an earlier version is looked up by them.

Numbers are mixed as columns. Each distinct text is hashed once. Equal values (0.0 and -0.0, all NaN) have equal hashes,
and NULL has its own. Two hashes together identify a row by its content. Kernels use them as keys of state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

_SEEDS = np.array([[0x9E3779B97F4A7C15], [0xC2B2AE3D27D4EB4F]], dtype=np.uint64)
_NULL = np.uint64(0x6A09E667F3BCC909)
_WORD = (1 << 64) - 1
_STEP = np.uint64(0x100000001B3)
_FIRST, _SECOND, _THIRD = np.uint64(30), np.uint64(27), np.uint64(31)
_ONCE, _TWICE = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_FEW = 256
"""So many rows are looked at one by one: a call of Polars takes longer."""


def hashed(rows: pl.DataFrame, columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Two hashes of these columns, as signed integers."""
    if not len(rows):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    hashes = np.repeat(_SEEDS, len(rows), axis=1)
    for column in columns:
        hashes = mixed(hashes ^ mixed(_values(rows[column]) + _SEEDS)) * _STEP  # makes the order of columns count
    first, second = mixed(hashes).view(np.int64)
    return first, second


def _values(column: pl.Series) -> np.ndarray:
    """A number for each value and each of the two hashes."""
    kind = column.dtype
    if kind.is_integer() or kind in (pl.Boolean, pl.Date) or isinstance(kind, pl.Datetime):
        numbers = _filled(column.cast(pl.Int64), np.int64).view(np.uint64)
    elif kind.is_float():
        plain = _filled(column.cast(pl.Float64), np.float64) + 0.0
        numbers = np.where(np.isnan(plain), np.nan, plain).view(np.uint64)
    else:
        numbers = _texts(column)
    if not column.null_count():
        return numbers
    few = len(column) <= _FEW
    missing = np.array([v is None for v in column.to_list()]) if few else column.is_null().to_numpy()
    return np.where(missing, _NULL, numbers)


def _filled(column: pl.Series, kind: type[np.generic]) -> np.ndarray:
    """Numbers, with 0 for NULL."""
    if not column.null_count():
        return column.to_numpy()
    if len(column) <= _FEW:
        return np.array([0 if v is None else v for v in column.to_list()], dtype=kind)
    return column.fill_null(0).to_numpy()


def _texts(column: pl.Series) -> np.ndarray:
    """Hashes of values that are not numbers, by their bytes or their text form."""
    if column.dtype.is_nested():
        return _digests(repr(value).encode() for value in column.to_list())
    if len(column) <= _FEW:
        return _digests(v if isinstance(v, bytes) else str(v).encode() for v in column.to_list())
    values = column.unique(maintain_order=True)
    listed = values.to_list()
    known = _digests(v if isinstance(v, bytes) else str(v).encode() for v in listed)
    if len(listed) == len(column):
        return known
    places = pl.DataFrame([values.alias("$value")]).with_row_index("$at")
    mine = pl.DataFrame([column.alias("$value")])
    at = mine.join(places, on="$value", how="left", nulls_equal=True, maintain_order="left")["$at"].to_numpy()
    return known[:, at]


def _digests(texts: Iterable[bytes]) -> np.ndarray:
    joined = b"".join(hashlib.blake2b(text, digest_size=16).digest() for text in texts)
    return np.frombuffer(joined, dtype="<u8").reshape(-1, 2).T.astype(np.uint64)


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Spread every bit of a number over all bits (the finalizer of splitmix64)."""
    mixed = (numbers ^ (numbers >> _FIRST)) * _ONCE
    mixed = (mixed ^ (mixed >> _SECOND)) * _TWICE
    spread: np.ndarray = mixed ^ (mixed >> _THIRD)
    return spread
