"""Calls a user's function over batches of rows (`map_batches`), and checks what it returns. Without Spark.

`prelude.py` runs it over rows of scans, `engine/tasks/batches_task.py` over changes between two levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.clock import EARLIEST, LATEST
from millstream.errors import UserCodeFailed
from millstream.model.reserved import OP
from millstream.plan.parts import Batches

ADDED = ("+I", "+U")
"""The kinds of changes that add a row."""


def runner(
    op: Batches, event_time: str | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function as a map over batches. With `event_time`, every row that it returns must have it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from called(op, pa.Table.from_batches([batch]), event_time).to_batches()

    return run


def called(op: Batches, table: pa.Table, event_time: str | None = None) -> pa.Table:
    """The rows that the function returns for some rows. Raises UserCodeFailed."""
    name = getattr(op.function, "__qualname__", "function")
    try:
        result = op.function(_given(table, op.takes))
    except Exception as error:
        msg = f"{name} failed on a batch of {table.num_rows} rows: {type(error).__name__}: {error}"
        raise UserCodeFailed(msg) from error
    taken = _taken(result, name, op.schema.to_arrow())
    if event_time is not None and taken[event_time].null_count:
        msg = f"{name} gave a row without its event time `{event_time}`"
        raise UserCodeFailed(msg)
    if event_time is not None and not _in_range(taken[event_time]):
        msg = f"{name} gave an event time outside of the years 1 to 9999"
        raise UserCodeFailed(msg)
    return taken


def called_on_changes(op: Batches, changes: pa.Table) -> pa.Table:
    """The changes that the function makes of changes. It receives removed and added rows separately, without columns
    that are not the user's.
    """
    adds = pc.is_in(changes[OP], pa.array(ADDED))
    names = [n for n in changes.column_names if not n.startswith("$")]
    parts = [pa.schema([pa.field(OP, pa.string()), *op.schema.to_arrow()]).empty_table()]
    for kind, mine in (("-D", changes.filter(pc.invert(adds))), ("+I", changes.filter(adds))):
        if mine.num_rows:
            rows = called(op, mine.select(names))
            parts.append(rows.add_column(0, parts[0].schema.field(0), pa.repeat(pa.scalar(kind), rows.num_rows)))
    return pa.concat_tables(parts)


def _in_range(times: pa.ChunkedArray) -> bool:
    """Whether all times are within the range of event times."""
    ends = pc.min_max(times.cast(pa.timestamp("us")).cast(pa.int64()))
    return not len(times) or (ends["min"].as_py() >= EARLIEST and ends["max"].as_py() <= LATEST)


def _given(table: pa.Table, takes: str) -> Any:
    if takes == "arrow":
        return table
    if takes == "pandas":
        return table.to_pandas()
    import polars as pl

    return pl.from_arrow(table)


def _taken(result: Any, name: str, schema: pa.Schema) -> pa.Table:
    if isinstance(result, pa.RecordBatch):
        result = pa.Table.from_batches([result])
    elif hasattr(result, "to_arrow"):
        result = result.to_arrow()
    elif not isinstance(result, pa.Table):
        result = pa.Table.from_pandas(result, preserve_index=False)
    missing = [n for n in schema.names if n not in result.column_names]
    if missing:
        msg = f"{name} did not give the column `{missing[0]}`; it gave {', '.join(result.column_names)}"
        raise UserCodeFailed(msg)
    try:
        return result.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        msg = f"{name} gave columns of other types than it declares: {error}"
        raise UserCodeFailed(msg) from error
