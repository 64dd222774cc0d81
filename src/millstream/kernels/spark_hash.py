"""Spark's ``xxhash64`` over columns, without Spark: keys of state are looked up by it.

A row is hashed column by column; the hash so far is the seed of the next column, and NULL does not change it. Numbers
are hashed as arrays. Each distinct text is hashed once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

_SEED = 42
_WORD = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_N1, _N2, _N3, _N4, _N5 = (np.uint64(p) for p in (_P1, _P2, _P3, _P4, _P5))


def xxhash64(number: int) -> int:
    """The hash of one INT. NULLs in further columns do not change it."""
    return int(_of_ints(np.array([number], np.int64), np.array([_SEED], np.uint64)).view(np.int64)[0])


def is_hashable(dtype: pl.DataType) -> bool:
    """Whether values of a type are hashed here as Spark hashes them."""
    if isinstance(dtype, pl.Datetime):
        return dtype.time_unit == "us"
    return dtype in (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Boolean, pl.Date, pl.Float32, pl.Float64, pl.String)


def hashed_rows(columns: Sequence[pl.Series], rows: int) -> np.ndarray:
    """The hash of each row of some columns, as signed integers."""
    hashes = np.full(rows, _SEED, np.uint64)
    for column in columns:
        after = _of_column(column, hashes)
        hashes = np.where(column.is_null().to_numpy(), hashes, after) if column.null_count() else after
    return hashes.view(np.int64)


def _of_column(column: pl.Series, seeds: np.ndarray) -> np.ndarray:
    kind = column.dtype
    if kind == pl.String:
        return _of_texts(column, seeds)
    if kind == pl.Int64 or isinstance(kind, pl.Datetime):
        return _of_longs(_numbers(column.to_physical()), seeds)
    if kind == pl.Float64:
        return _of_longs(_bits(column, np.float64, np.int64), seeds)
    if kind == pl.Float32:
        return _of_ints(_bits(column, np.float32, np.int32).astype(np.int64), seeds)
    return _of_ints(_numbers(column.to_physical().cast(pl.Int64)), seeds)


def _numbers(column: pl.Series) -> np.ndarray:
    return (column.fill_null(0) if column.null_count() else column).to_numpy()


def _bits(column: pl.Series, kind: type[np.floating], bits: type[np.integer]) -> np.ndarray:
    """The bits of floating-point numbers: 0.0 and -0.0 have the same, and so have all NaN."""
    plain = (column.fill_null(0.0) if column.null_count() else column).to_numpy() + kind(0.0)
    return np.where(np.isnan(plain), kind("nan"), plain).view(bits)


def _rotated(words: np.ndarray, bits: int) -> np.ndarray:
    turned: np.ndarray = (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
    return turned


def _finished(words: np.ndarray) -> np.ndarray:
    words = (words ^ (words >> np.uint64(33))) * _N2
    words = (words ^ (words >> np.uint64(29))) * _N3
    spread: np.ndarray = words ^ (words >> np.uint64(32))
    return spread


def _of_longs(numbers: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    words = seeds + np.uint64((_P5 + 8) & _WORD)
    words ^= _rotated(numbers.view(np.uint64) * _N2, 31) * _N1
    return _finished(_rotated(words, 27) * _N1 + _N4)


def _of_ints(numbers: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    words = seeds + np.uint64((_P5 + 4) & _WORD)
    words ^= (numbers.view(np.uint64) & np.uint64(0xFFFFFFFF)) * _N1
    return _finished(_rotated(words, 23) * _N2 + _N3)


def _of_texts(column: pl.Series, seeds: np.ndarray) -> np.ndarray:
    """The hashes of texts, each pair of a text and a seed once."""
    if not len(column):
        return seeds
    pairs = pl.DataFrame([column.alias("text"), pl.Series("seed", seeds)])
    known = pairs.unique(maintain_order=True)
    texts, starts = known["text"].to_list(), known["seed"].to_list()
    hashes = [_of_bytes(b"" if t is None else t.encode(), s) for t, s in zip(texts, starts, strict=True)]
    known = known.with_columns(pl.Series("hash", hashes, dtype=pl.UInt64))
    found = pairs.join(known, on=["text", "seed"], how="left", nulls_equal=True, maintain_order="left")
    return found["hash"].to_numpy()


def _rotate(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _WORD


def _round(word: int, data: int) -> int:
    return _rotate((word + data * _P2) & _WORD, 31) * _P1 & _WORD


def _of_bytes(data: bytes, seed: int) -> int:
    """The standard XXH64 of some bytes."""
    length, at = len(data), 0
    word_at = int.from_bytes
    if length >= 32:
        lanes = [(seed + _P1 + _P2) & _WORD, (seed + _P2) & _WORD, seed, (seed - _P1) & _WORD]
        while at <= length - 32:
            for i in range(4):
                lanes[i] = _round(lanes[i], word_at(data[at : at + 8], "little"))
                at += 8
        word = sum(_rotate(v, r) for v, r in zip(lanes, (1, 7, 12, 18), strict=True)) & _WORD
        for value in lanes:
            word = ((word ^ _round(0, value)) * _P1 + _P4) & _WORD
    else:
        word = (seed + _P5) & _WORD
    word = (word + length) & _WORD
    while at <= length - 8:
        word = (_rotate(word ^ _round(0, word_at(data[at : at + 8], "little")), 27) * _P1 + _P4) & _WORD
        at += 8
    if at <= length - 4:
        word = (_rotate(word ^ (word_at(data[at : at + 4], "little") * _P1 & _WORD), 23) * _P2 + _P3) & _WORD
        at += 4
    for byte in data[at:]:
        word = _rotate(word ^ (byte * _P5 & _WORD), 11) * _P1 & _WORD
    word = (word ^ (word >> 33)) * _P2 & _WORD
    word = (word ^ (word >> 29)) * _P3 & _WORD
    return word ^ (word >> 32)
