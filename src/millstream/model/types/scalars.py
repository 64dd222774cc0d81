"""Scalar column types: one table row per type, with its name in every part of the system.

| SQL | in memory | in the store | in Python |
|---|---|---|---|
| TIMESTAMP | Arrow timestamp in UTC | TIMESTAMPTZ | datetime with the zone UTC |
| TIMESTAMP_NTZ | Arrow timestamp without a zone | TIMESTAMP | datetime without a zone |
| INTERVAL DAY TO SECOND | Arrow duration | INTERVAL | timedelta |

DECIMAL has digits, and ARRAY, MAP and STRUCT have element types: `schema.py` and `store/names.py` handle these.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")
"""TIMESTAMP_NTZ: local wall-clock time without a zone."""
INTERVAL = pa.duration("us")


@dataclass(frozen=True)
class Scalar:
    """A scalar type: its SQL name, its types in memory and in the store, and its names in the parser."""

    name: str
    arrow: pa.DataType
    stored: str
    read: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        """Its names in the parser."""
        return self.read or (self.name,)


SCALARS = (
    Scalar("BOOLEAN", pa.bool_(), "BOOLEAN"),
    Scalar("TINYINT", pa.int8(), "TINYINT"),
    Scalar("SMALLINT", pa.int16(), "SMALLINT"),
    Scalar("INT", pa.int32(), "INTEGER"),
    Scalar("BIGINT", pa.int64(), "BIGINT"),
    Scalar("FLOAT", pa.float32(), "FLOAT"),
    Scalar("DOUBLE", pa.float64(), "DOUBLE"),
    Scalar("STRING", pa.string(), "VARCHAR", ("VARCHAR", "TEXT", "CHAR")),
    Scalar("BINARY", pa.binary(), "BLOB", ("BINARY", "VARBINARY")),
    Scalar("DATE", pa.date32(), "DATE"),
    Scalar("TIMESTAMP", TIMESTAMP, "TIMESTAMPTZ", ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ")),
    Scalar("TIMESTAMP_NTZ", LOCAL_TIMESTAMP, "TIMESTAMP", ("TIMESTAMPNTZ",)),
    Scalar("INTERVAL DAY TO SECOND", INTERVAL, "INTERVAL", ("INTERVAL DAY TO SECOND",)),
)

BY_SPELLING = {spelling: s.arrow for s in SCALARS for spelling in s.spellings}
NAMES = {s.arrow: s.name for s in SCALARS}
STORED = {s.arrow: s.stored for s in SCALARS}
LISTED = ", ".join([*(s.name for s in SCALARS), "DECIMAL(p, s)", "ARRAY<t>", "MAP<k, v>", "STRUCT<name: t>"])
"""All types, for messages."""

DAY_TIME = ("DAY", "HOUR", "MINUTE", "SECOND")
"""The units of intervals with a fixed length."""

WIDTHS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
"""Numeric types, each of which can be cast to any that follows it."""


def widest(kinds: Collection[pa.DataType | None]) -> pa.DataType | None:
    """The numeric type that all of these can be cast to; None if one of them is not numeric."""
    return max(kinds, key=WIDTHS.index) if kinds and all(k in WIDTHS for k in kinds) else None


def mean_type(of: pa.DataType | None) -> pa.DataType:
    """The type of the mean of values of a type: an interval for intervals, DOUBLE for numbers."""
    return INTERVAL if of is not None and pa.types.is_duration(of) else pa.float64()
