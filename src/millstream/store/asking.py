"""Questions answered in the process of the home, within limits of time and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

import duckdb
import pyarrow as pa

from millstream.limits import Limits, Watch, too_large
from millstream.store.apart import explained
from millstream.store.apart_child import is_memory

_BATCH = 10_000
"""Rows that are taken from a question at a time."""


def answered(
    cursor: duckdb.DuckDBPyConnection,
    sql: str,
    given: Mapping[str, pa.Table],
    limits: Limits,
    used: Callable[[], int],
) -> pa.Table:
    """The rows of a checked SELECT; `used` tells how many bytes the questions of the store hold now."""
    with Watch(limits, cursor.interrupt, used=used) as watch, ExitStack() as stack:
        try:
            if limits.bytes:  # sorts, joins and groups are told to spill to disk before the limit ends them
                cursor.execute(f"SET operator_memory_limit = '{limits.bytes // 2}B'")
            for name, table in given.items():
                cursor.register(name, table)
            reader = cursor.sql(sql).to_arrow_reader(_BATCH)
            stack.callback(reader.close)  # it would keep the file of the store open
            batches, size = [], 0
            for batch in reader:
                watch.check()
                batches.append(batch)
                size += batch.nbytes
                if limits.bytes and size > limits.bytes:
                    raise too_large(limits)
            return pa.Table.from_batches(batches, reader.schema)
        except (duckdb.Error, OSError, MemoryError) as error:
            if watch.reason is not None:
                raise watch.reason from None
            if isinstance(error, MemoryError) or is_memory(error):
                raise too_large(limits) from None
            if isinstance(error, OSError):  # an error of DuckDB that came through the reader
                raise explained(str(error)) from None
            raise
