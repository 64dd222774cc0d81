"""The prelude in Spark: a scan's row-changing ops and then its columns, as one Spark SQL plan over a slice.

Its output goes to `kernels/intake.py`, or to Spark's own combining (`combine.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.clock import EARLIEST, LATEST
from millstream.errors import Unsupported, UserCodeFailed
from millstream.model.types.schema import ddl_type
from millstream.model.types.unknown_column import missing_column
from millstream.plan.parts import Batches, Explode, Lookup, Op, Project
from millstream.plan.plan import PlannedSource, Scan
from millstream.plan.rules.output_bounds import bounded

SYSTEM = ("$ts", "$part", "$pos", "$bad", "$mark", "$kh", "$key", "$del", "$ver")


def through(
    frame: DataFrame, scan: Scan, source: PlannedSource, tables: Mapping[str, DataFrame], now: int
) -> DataFrame:
    """Apply the ops of a scan. Error rows do not pass the first one."""
    if scan.ops:
        frame = frame.where("`$bad` = 0")
    for op in scan.ops:
        frame = _apply(frame, op, source, tables, now)
    return frame


def columns(frame: DataFrame, scan: Scan) -> DataFrame:
    """The system columns and the scan's own."""
    system = [f"`{c}`" for c in SYSTEM if c in frame.columns]
    return frame.selectExpr(*system, *(f"{bounded(c.sql)} AS `{c.name}`" for c in scan.columns))


def _apply(frame: DataFrame, op: Op, source: PlannedSource, tables: Mapping[str, DataFrame], now: int) -> DataFrame:
    system = [f"`{c}`" for c in SYSTEM if c in frame.columns]
    if isinstance(op, Project):
        kept = frame if op.keep is None else frame.where(bounded(op.keep))
        return kept.selectExpr(*system, *(f"{bounded(c.sql)} AS `{c.name}`" for c in op.columns))
    if isinstance(op, Explode):
        return exploded(frame, op)
    if isinstance(op, Lookup):
        return _join(frame, op, tables[op.table])
    return _batches(frame, op, source, now)


def exploded(frame: DataFrame, op: Explode) -> DataFrame:
    """One row per element of an array."""
    function = F.explode_outer if op.keep_empty else F.explode
    others = [c for c in frame.columns if c != op.name]
    return frame.select(*(F.col(f"`{c}`") for c in others), function(F.expr(bounded(op.array))).alias(op.name))


def mapped(frame: DataFrame, op: Batches, event_time: str | None = None) -> DataFrame:
    """The rows that a Python function returns."""
    fields = ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in op.schema if f.type is not None)
    plain = frame.select(*(F.col(f"`{c}`") for c in frame.columns if not c.startswith("$")))
    return plain.mapInArrow(_runner(op.function, op.takes, op.schema.to_arrow(), event_time), fields)


def _join(frame: DataFrame, op: Lookup, table: DataFrame) -> DataFrame:
    missing = [n for n in (*(c for _, c in op.on), *(f.name for f in op.columns)) if n not in table.columns]
    if missing:
        hint = "correct on=... or columns=... of enrich"
        raise missing_column(Unsupported, f"the table `{op.table}`", missing[0], table.columns, hint=hint)
    wanted = [F.col(f"`{theirs}`").alias(f"$on{i}") for i, (_, theirs) in enumerate(op.on)]
    added = [F.col(f"`{f.name}`").cast(ddl_type(f.type)).alias(f.name) for f in op.columns if f.type is not None]
    small = F.broadcast(table.select(*wanted, *added))
    matches = [F.col(f"`{mine}`") == F.col(f"`$on{i}`") for i, (mine, _) in enumerate(op.on)]
    joined = frame.join(small, matches, "inner" if op.required else "left")
    return joined.drop(*(f"$on{i}" for i in range(len(op.on))))


def _batches(frame: DataFrame, op: Batches, source: PlannedSource, now: int) -> DataFrame:
    name = source.options.event_time
    result = mapped(frame, op, name)
    time = F.expr(f"unix_micros(`{name}`)") if name else F.lit(now).cast("bigint")
    return (
        result.withColumn("$ts", time)
        .withColumn("$part", F.lit(0))
        .withColumn("$pos", F.lit(0).cast("bigint"))
        .withColumn("$bad", F.lit(0))
    )


def _runner(
    function: Callable[[Any], Any], takes: str, schema: pa.Schema, event_time: str | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    name = getattr(function, "__qualname__", "function")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            try:
                result = function(_given(table, takes))
            except Exception as error:
                msg = f"{name} failed on a batch of {table.num_rows} rows: {type(error).__name__}: {error}"
                raise UserCodeFailed(msg) from error
            taken = _taken(result, name, schema)
            if event_time is not None and taken[event_time].null_count:
                msg = f"{name} gave a row without its event time `{event_time}`"
                raise UserCodeFailed(msg)
            if event_time is not None and not _in_range(taken[event_time]):
                msg = f"{name} gave an event time outside of the years 1 to 9999"
                raise UserCodeFailed(msg)
            yield from taken.to_batches()

    return run


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
