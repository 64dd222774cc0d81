"""Runs queries in the process of the home, within limits of time and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from time import monotonic

import duckdb
import pyarrow as pa

from millstream.budget import Budget
from millstream.limits import Limits, Watch, too_large
from millstream.model.types.duckdb_values import DuckBatches
from millstream.store.port import AsOf
from millstream.store.query_errors import explained
from millstream.store.statements import value
from millstream.store.subprocess_child import is_memory

_BATCH = 10_000
"""The number of rows that are fetched at a time."""
_USED = "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag NOT IN ('BASE_TABLE', 'METADATA', 'ART_INDEX')"
_MEASURE_SECONDS = 0.04
_EPOCHS = """
SELECT lower(v.name), v.flow, max(e.number) FROM millstream.views v JOIN millstream.epochs e ON e.flow = v.flow
GROUP BY ALL"""


def begin(cursor: duckdb.DuckDBPyConnection, as_of: AsOf | None) -> None:
    """Begin a transaction: all reads in it are as of the same epochs, which are added to `as_of`."""
    cursor.execute("BEGIN")
    if as_of is not None:
        as_of |= {view: (flow, epoch) for view, flow, epoch in cursor.execute(_EPOCHS).fetchall()}


class Used:
    """Measures the bytes that all queries of a store currently hold, without the cache of its file."""

    def __init__(self, cursor: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._cursor = cursor
        self._last = (0.0, 0)

    def __call__(self) -> int:
        """The bytes. Measured once for all calls within a few milliseconds."""
        at, size = self._last
        if monotonic() - at > _MEASURE_SECONDS:
            self._last = monotonic(), size  # first: other threads do not measure meanwhile
            with suppress(duckdb.Error):
                size = int(value(self._cursor(), _USED) or 0)
            self._last = monotonic(), size
        return size


def answered(
    cursor: duckdb.DuckDBPyConnection,
    sql: str,
    inputs: Mapping[str, pa.Table],
    limits: Limits,
    used: Callable[[], int],
    budget: Budget,
) -> pa.Table:
    """Return the rows of a validated SELECT; `used` returns the bytes that the queries of the store currently hold."""
    limits = budget.at_most(limits)
    with (
        budget.claim() as claim,
        Watch(limits, cursor.interrupt, used=used, shared=budget.exceeded) as watch,
        ExitStack() as stack,
    ):
        try:
            if limits.bytes:  # sorts, joins and groups spill to disk before the limit stops them
                cursor.execute(f"SET operator_memory_limit = '{limits.bytes // 2}B'")
            for name, table in inputs.items():
                cursor.register(name, table)
            reader = DuckBatches(cursor.sql(sql), _BATCH)
            stack.callback(reader.close)  # it would keep the file of the store open
            batches, size = [], 0
            for batch in reader:
                watch.check()
                batches.append(batch)
                size += batch.nbytes
                if limits.bytes and size > limits.bytes:
                    raise too_large(limits)
                claim.grow_to(size)
            table = pa.Table.from_batches(batches, reader.schema)
            claim.pass_on(table)
            return table
        except (duckdb.Error, OSError, MemoryError) as error:
            if watch.reason is not None:
                raise watch.reason from None
            if isinstance(error, MemoryError) or is_memory(str(error)):
                raise too_large(limits) from None
            if isinstance(error, OSError):  # an error of DuckDB that came through the reader
                raise explained(str(error)) from None
            raise
