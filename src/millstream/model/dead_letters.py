"""The schemas of dead letters: the columns of ``<source>$errors``, ``<view>$errors`` and ``<view>$late``."""

from __future__ import annotations

import pyarrow as pa

from millstream.model.types.schema import TIMESTAMP

ERRORS = pa.schema(
    [
        ("epoch", pa.int64()),
        ("reason", pa.string()),
        ("raw", pa.string()),
        ("partition", pa.string()),
        ("offset", pa.int64()),
        ("seen_at", TIMESTAMP),
    ]
)

LATE = pa.schema(
    [
        ("epoch", pa.int64()),
        ("event_time", TIMESTAMP),
        ("window_end", TIMESTAMP),
        ("watermark", TIMESTAMP),
        ("reason", pa.string()),
        ("record", pa.string()),
        ("seen_at", TIMESTAMP),
    ]
)

REPLAYED_IN = pa.field("replayed_in", pa.int64())
"""An additional column in the store: the epoch in which a late record was replayed."""
