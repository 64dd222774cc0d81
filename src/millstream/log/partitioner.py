"""Maps the key of a record to its partition: stable over time and across machines."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import DefinitionError
from millstream.model.types.assignment import from_values

_MASK = (1 << 64) - 1
_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
"""Two large odd numbers: each step spreads low bits upwards and folds them back."""


def check_key(schema: pa.Schema, key: str | None) -> None:
    """Refuse a key column that does not exist, or whose type has no canonical form."""
    if key is None:
        return
    if key not in schema.names:
        raise DefinitionError(f"the key `{key}` is not a column", detail="columns: " + ", ".join(schema.names))
    kind = schema.field(key).type
    if not (_numbers(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        raise DefinitionError(
            f"the column `{key}` cannot be a key: its type is {kind}",
            hint="a key is a whole number, text, bytes, a date, a time or a truth value",
        )


def partitions_of(batch: pa.RecordBatch, key: str, partitions: int) -> np.ndarray:
    """The partition of every row; rows without a key go to partition 0."""
    column = batch.column(key)
    if _numbers(column.type):
        hashes = _mixed(_as_int64(column))
    else:
        encoded = column.dictionary_encode()
        words = [zlib.crc32(v.encode() if isinstance(v, str) else v) for v in encoded.dictionary.to_pylist()]
        indices = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
        hashes = np.array(words, np.uint64)[indices] if words else np.zeros(len(column), np.uint64)
    numbers = (hashes % np.uint64(partitions)).astype(np.int64)
    numbers[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return numbers


def partition_of(value: Any, kind: pa.DataType, partitions: int) -> int:
    """The partition of one key."""
    if value is None:
        return 0
    if isinstance(value, str) and pa.types.is_string(kind):
        return zlib.crc32(value.encode()) % partitions
    if type(value) is int and pa.types.is_int64(kind) and -(1 << 63) <= value < 1 << 63:
        mixed = value & _MASK
        for factor in _FACTORS:
            mixed = (mixed ^ mixed >> 32) * factor & _MASK
        return (mixed ^ mixed >> 32) % partitions
    batch = pa.record_batch([from_values([value], kind, seconds=True)], names=["key"])
    return int(partitions_of(batch, "key", partitions)[0])


def _numbers(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_duration(kind)
    )


def _as_int64(column: pa.Array) -> np.ndarray:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values: np.ndarray = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return values


def _mixed(values: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = values.astype(np.int64).view(np.uint64)
    for factor in _FACTORS:
        mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(factor)
    hashes: np.ndarray = mixed ^ mixed >> np.uint64(32)
    return hashes
