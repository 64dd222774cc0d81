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


def hashed(rows: pl.DataFrame, columns: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Two hashes of these columns, as signed integers."""
    hashes = np.repeat(_SEEDS, len(rows), axis=1)
    for column in columns:
        hashes = mixed(hashes ^ mixed(_values(rows[column]) + _SEEDS)) * _STEP  # makes the order of columns count
    first, second = mixed(hashes).view(np.int64)
    return first, second


def _values(column: pl.Series) -> np.ndarray:
    """A number for each value and each of the two hashes."""
    kind = column.dtype
    if kind.is_integer() or kind in (pl.Boolean, pl.Date) or isinstance(kind, pl.Datetime):
        numbers = column.cast(pl.Int64).fill_null(0).to_numpy().view(np.uint64)
    elif kind.is_float():
        plain = column.cast(pl.Float64).fill_null(0.0).to_numpy() + 0.0
        numbers = np.where(np.isnan(plain), np.nan, plain).view(np.uint64)
    else:
        numbers = _texts(column)
    return np.where(column.is_null().to_numpy(), _NULL, numbers)


def _texts(column: pl.Series) -> np.ndarray:
    """Hashes of values that are not numbers, by their bytes or their text form."""
    if column.dtype.is_nested():
        return _digests(repr(value).encode() for value in column.to_list())
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
    mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    spread: np.ndarray = mixed ^ (mixed >> np.uint64(31))
    return spread


def xxhash64(number: int) -> int:
    """Spark's ``xxhash64`` of one INT. NULLs in further columns do not change it."""
    first, second, third, fifth = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x27D4EB2F165667C5
    hash_value = (42 + fifth + 4) ^ (((number & 0xFFFFFFFF) * first) & _WORD)
    hash_value = ((((hash_value << 23) | (hash_value >> 41)) & _WORD) * second + third) & _WORD
    hash_value = ((hash_value ^ (hash_value >> 33)) * second) & _WORD
    hash_value = ((hash_value ^ (hash_value >> 29)) * third) & _WORD
    hash_value ^= hash_value >> 32
    return hash_value - (1 << 64) if hash_value >> 63 else hash_value
