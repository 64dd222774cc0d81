"""The prelude in Spark: a scan's row-changing ops and then its columns, as one Spark SQL plan over a slice.

Its output goes to `kernels/intake.py`, or to Spark's own combining (`combine.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.engine.input.python_batches import runner
from millstream.errors import Unsupported
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
    return plain.mapInArrow(runner(op, event_time), fields)


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
