"""Distinct counts in bounded memory: HyperLogLog sketches, as bytes in the format of Apache DataSketches.

Spark writes the same bytes (`hll_sketch_agg`), so it may combine rows itself. Every value maps to a *coupon*: an
address of 26 bits and the number of leading zeros of its hash. A small sketch is the list of its coupons. A larger one
holds the greatest number of zeros for every address of `precision` bits, its *registers*. Both forms, and the point at
which one becomes the other, depend on the values alone. DataSketches also keeps data that depends on the order of
arrival; we omit it and estimate from the registers (O. Ertl, "New cardinality estimation algorithms for HyperLogLog
sketches", 2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import polars as pl

from millstream.model.aggregates.aggregate import settings_of
from millstream.plan.parts import Measure

_LIST, _SET, _HLL = 2, 3, 10
"""The first byte of a sketch: the number of four-byte words before its content."""
_FAMILY, _SERIAL = 7, 1
_COMPACT, _EMPTY, _OUT_OF_ORDER = 8, 4, 16
_LIST_COUPONS = 8
_EIGHT_BITS = 8
"""The mode byte: registers of eight bits; the low bits select one of the three forms."""
_SEED = np.uint64(9001)
_ADDRESS = np.uint64(2**26 - 1)
_ZEROS = 62


def coupons(hashes: np.ndarray) -> np.ndarray:
    """The coupons of integers."""
    first, second = _murmur(hashes.astype(np.int64).view(np.uint64))
    zeros = pl.Series(second).bitwise_leading_zeros().to_numpy().astype(np.uint64)
    pairs: np.ndarray = ((np.minimum(zeros, _ZEROS) + np.uint64(1)) << np.uint64(26)) | (first & _ADDRESS)
    return pairs.astype(np.uint32)


def combine(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """A sketch of the values of every group. Rows of a group are adjacent."""
    values = rows[f"@{m.name}"]
    there = values.is_not_null().to_numpy()
    flat = _each_once((at[there].astype(np.uint64) << np.uint64(32)) | coupons(values.drop_nulls().to_numpy()))
    borders = np.searchsorted(flat >> np.uint64(32), np.arange(groups + 1, dtype=np.uint64))
    precision = settings_of(m.kind)[0]
    parts = (flat[a:b].astype(np.uint32) for a, b in pairwise(borders.tolist()))
    return [_series(m, (_written(part, precision) for part in parts))]


def fold(m: Measure, rows: pl.DataFrame, at: np.ndarray, groups: int) -> list[pl.Series]:
    """The union of the sketches of every group, including those that Spark wrote."""
    sketches = rows[f"{m.name}$h"].to_list()
    borders = np.searchsorted(at, np.arange(groups + 1)).tolist()
    precision = settings_of(m.kind)[0]
    return [_series(m, (_union(sketches[a:b], precision) for a, b in pairwise(borders)))]


def result(m: Measure, partials: pl.DataFrame) -> pl.Series:
    """The approximate number of distinct values."""
    estimates = [0 if s is None else round(estimate(s)) for s in partials[f"{m.name}$h"].to_list()]
    return pl.Series(m.name, estimates, dtype=pl.Int64)


def native(m: Measure, column: str) -> list[tuple[str, str]]:
    """Spark SQL that builds a sketch."""
    return [(f"{m.name}$h", f"hll_sketch_agg({column}, {settings_of(m.kind)[0]})")]


def estimate(sketch: bytes) -> float:
    """The approximate number of distinct values in a sketch: coupons are counted, registers are estimated from."""
    content = _read(sketch)
    if sketch[0] != _HLL:
        return float(len(content))
    counts = np.bincount(content, minlength=_ZEROS + 2).tolist()
    m = len(content)
    total = m * _tau(1 - counts[_ZEROS + 1] / m)
    for k in range(_ZEROS, 0, -1):
        total = 0.5 * (total + counts[k])
    total += m * _sigma(counts[0] / m)
    return m * m / (2 * math.log(2) * total)


def _union(sketches: list[bytes], precision: int) -> bytes:
    read = [(s[0] == _HLL, _read(s)) for s in sketches]
    few = [c for registers, c in read if not registers]
    together = _each_once(np.concatenate(few)) if few else np.empty(0, np.uint32)
    many = [r for registers, r in read if registers]
    if not many:
        return _written(together, precision)
    registers = np.maximum.reduce(many)
    return _registers_written(_taken_in(registers, together), precision)


def _written(coupons: np.ndarray, precision: int) -> bytes:
    """Write coupons, distinct and sorted, as a sketch."""
    count = len(coupons)
    if count > _most_coupons(precision):
        return _registers_written(_taken_in(np.zeros(1 << precision, np.uint8), coupons), precision)
    if count < _LIST_COUPONS:
        flags = _COMPACT | (0 if count else _EMPTY)
        head = bytes([_LIST, _SERIAL, _FAMILY, precision, 3, flags, count, _EIGHT_BITS])
        return head + coupons.astype("<u4").tobytes()
    size = max(5, ((4 * count - 1) // 3).bit_length())  # the smallest table that is at most three quarters full
    head = bytes([_SET, _SERIAL, _FAMILY, precision, size, _COMPACT, 0, _EIGHT_BITS | 1])
    return head + count.to_bytes(4, "little") + coupons.astype("<u4").tobytes()


def _most_coupons(precision: int) -> int:
    """How many coupons are kept before they become registers: three quarters of the largest table, or with few
    registers the capacity of a list.
    """
    return _LIST_COUPONS - 1 if precision < 8 else 3 * (1 << (precision - 3)) // 4


def _registers_written(registers: np.ndarray, precision: int) -> bytes:
    head = bytes([_HLL, _SERIAL, _FAMILY, precision, 0, _COMPACT | _OUT_OF_ORDER, 0, _EIGHT_BITS | 2])
    worth = np.ldexp(1.0, -registers.astype(np.int64))
    sums = [0.0, float(worth[registers < 32].sum()), float(worth[registers >= 32].sum())]
    zeros = int((registers == 0).sum())
    numbers = np.array(sums, "<f8").tobytes() + zeros.to_bytes(4, "little") + bytes(4)
    return head + numbers + registers.tobytes()


def _read(sketch: bytes) -> np.ndarray:
    """The registers of a sketch, or its coupons."""
    if sketch[0] == _HLL:
        return np.frombuffer(sketch, np.uint8, offset=40, count=1 << sketch[3])
    coupons: np.ndarray = np.frombuffer(sketch, "<u4", offset=4 * sketch[0])
    coupons = coupons[coupons != 0].astype(np.uint32)  # a table that is not compact has empty slots
    return coupons


def _each_once(numbers: np.ndarray) -> np.ndarray:
    """The distinct numbers, sorted."""
    ordered = np.sort(numbers)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered


def _taken_in(registers: np.ndarray, coupons: np.ndarray) -> np.ndarray:
    more = registers.copy()
    np.maximum.at(more, coupons & np.uint32(len(registers) - 1), (coupons >> np.uint32(26)).astype(np.uint8))
    return more


def _series(m: Measure, sketches: Iterable[bytes] | Iterator[bytes]) -> pl.Series:
    return pl.Series(f"{m.name}$h", list(sketches), dtype=pl.Binary)


def _murmur(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """MurmurHash3 (128 bits) over the eight bytes of each number."""
    c1, c2, length = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F), np.uint64(8)
    mixed = numbers * c1
    mixed = ((mixed << np.uint64(31)) | (mixed >> np.uint64(33))) * c2
    first, second = mixed ^ _SEED ^ length, np.full(len(numbers), _SEED ^ length, np.uint64)
    first = first + second
    second = second + first
    first, second = _final(first), _final(second)
    first = first + second
    return first, second + first


def _final(numbers: np.ndarray) -> np.ndarray:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(factor)
    numbers ^= numbers >> np.uint64(33)
    return numbers


def _sigma(x: float) -> float:
    if x == 1:
        return math.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        x *= x
        before = z
        z += x * y
        y += y
    return z


def _tau(x: float) -> float:
    if x in (0.0, 1.0):
        return 0.0
    y, z, before = 1.0, 1 - x, -1.0
    while z != before:
        x = math.sqrt(x)
        before = z
        y *= 0.5
        z -= (1 - x) ** 2 * y
    return z / 3
