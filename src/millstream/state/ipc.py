"""Serializes tables to bytes, in Arrow's own formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa


def ipc_bytes(table: pa.Table, new: Callable[..., Any] = pa.ipc.new_file) -> pa.Buffer:
    """A table as the bytes of an Arrow file, or of a stream with `new=pa.ipc.new_stream`."""
    sink = pa.BufferOutputStream()
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
