"""A second pass over a slice that held rows to quarantine: errors with reason, raw text and place; complete late rows.

The engine adds them to the output of the epoch, for the ``$errors`` and ``$late`` tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.connect.port import FUTURE, REASONS, SourcePort, SourceSlice
from millstream.connect.text_lines import shortened
from millstream.engine.driver.epoch_io import polars
from millstream.engine.input import prelude
from millstream.engine.input.readers.slices import read
from millstream.engine.spark.frames import collected
from millstream.kernels.frames import concat_rows
from millstream.kernels.outcome import BEHIND, NO_WINDOW, Dropped
from millstream.kernels.scan_input import Role
from millstream.kernels.windows import late_rows
from millstream.kernels.windows.firing import LAST_INSTANT, shown_watermark
from millstream.model.dead_letters import ERRORS, LATE
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.plan import Plan, PlannedSource, Scan
from millstream.plan.rules.output_bounds import bounded


def errors(
    spark: SparkSession,
    stage: PlannedSource,
    port: SourcePort,
    part: SourceSlice,
    epoch: int,
    now: int,
    count: int = -1,
    doubtful: DataFrame | None = None,
) -> pa.Table:
    """The error rows of a slice. `offset` is the record in its partition, the line of a text file, or the row of
    another file, from 0. Where all of them, `count`, are among its `doubtful` rows, the slice is not read again.
    """
    if doubtful is not None:
        found = _errors(doubtful, stage, epoch, now)
        if found.num_rows == count:
            return found
    return _errors(read(spark, stage, port, part, now, details=True).frame, stage, epoch, now)


def _errors(frame: DataFrame, stage: PlannedSource, epoch: int, now: int) -> pa.Table:
    names = ", ".join(f"`{n}`" for n in stage.schema.names)
    raw = f"coalesce(`$raw`, to_json(struct({names})))" if "$raw" in frame.columns else f"to_json(struct({names}))"
    future = now + stage.options.future_bound.micros
    frame = frame.withColumn(
        "$bad", F.expr(f"CASE WHEN `$bad` = 0 AND `$ts` > {future}L THEN {FUTURE} ELSE `$bad` END")
    )
    if "$block" in frame.columns:
        found = _in_files(frame, raw)
    else:
        chosen = frame.where("`$bad` <> 0").selectExpr(
            "`$bad` AS bad", f"CAST({raw} AS BINARY) AS raw", "`$where` AS place", "`$pos` AS position"
        )
        found = chosen.toArrow().sort_by([("place", "ascending"), ("position", "ascending")]).to_pylist()
    rows = [
        {
            "epoch": epoch,
            "reason": REASONS[r["bad"]],
            "raw": None if r["raw"] is None else shortened(bytes(r["raw"])),
            "partition": r["place"],
            "offset": r["position"],
            "seen_at": now,
        }
        for r in found
    ]
    return pa.Table.from_pylist(rows, schema=ERRORS)


def _in_files(frame: DataFrame, raw: str) -> list[dict[str, Any]]:
    """Errors with their line or row. If it is not known (``$line`` is negative: it is -1 minus the number of lines
    before the first row), blocks of a file are numbered by the contents of the blocks before them.
    """
    row = F.monotonically_increasing_id()
    known = "`$line` AS line, `$bad` AS bad"
    item = F.expr(f"IF(`$bad` <> 0, struct(`$row` AS row, {known}, CAST({raw} AS BINARY) AS raw), NULL)")
    blocks = (
        frame.withColumn("$row", row)
        .groupBy("$where", "$block")
        .agg(F.min("$row").alias("first"), F.count(F.lit(1)).alias("rows"), F.collect_list(item).alias("items"))
        .toArrow()
        .sort_by([("$where", "ascending"), ("$block", "ascending")])
        .to_pylist()
    )
    found: list[dict[str, Any]] = []
    place, before = None, 0
    for block in blocks:
        if block["$where"] != place:
            place, before = block["$where"], 0
        for entry in sorted(block["items"], key=lambda e: e["row"]):
            counted = entry["row"] - block["first"] + before - (1 + entry["line"])
            number = counted if entry["line"] < 0 else entry["line"]
            found.append({"bad": entry["bad"], "raw": entry["raw"], "place": place, "position": number})
        before += block["rows"]
    return found


def late(
    frame: DataFrame,
    plan: Plan,
    scan: Scan,
    role: Role,
    dropped: Sequence[Dropped],
    tables: Mapping[str, DataFrame],
    epoch: int,
    now: int,
) -> pa.Table:
    """The rows of a scan that an operator did not accept, complete, as JSON: behind its watermark, or dropped by its
    kernel.
    """
    feed = role.feed
    source = plan.source(scan.source)
    rows = prelude.through(frame, scan, source, tables, now)
    sql = {c.name: bounded(c.sql) for c in scan.columns}
    future = now + source.options.future_bound.micros
    kept = f"`$bad` = 0 AND `$ts` <= {future}L"
    if not dropped and not role.operator.may_ignore_rows:
        kept += f" AND `$ts` < {role.watermark}L"  # no window over a later row has ended
    if feed.keep is not None and role.operator.filters_scan:
        kept += f" AND ({sql[feed.keep]})"
    named = {feed.hash, feed.slice, feed.gap} - {""}
    places = [f"`{c}`" for c in ("$part", "$pos") if c in rows.columns]
    wanted = ["`$ts`", *places, *(f"{sql[n]} AS `{n}`" for n in sorted(named)), f"{feed.record} AS record"]
    return apart(role, polars(collected(rows.where(kept).selectExpr(*wanted))), dropped, epoch, now)


def apart(role: Role, rows: pl.DataFrame, dropped: Sequence[Dropped], epoch: int, now: int) -> pa.Table:
    """From rows with their time, hash, slice and ``record``: those that an operator did not accept."""
    operator, feed = role.operator, role.feed
    if not operator.keyed_scan:
        past = rows.filter(pl.col("$ts") < role.watermark)
        past = past.select("$ts", pl.col("$ts").alias("$e"), pl.lit(BEHIND).alias("reason"), "record")
        return _late(past, role, epoch, now)
    gap = [pl.col(feed.gap).alias("$gap")] if feed.gap else []
    places = [c for c in ("$part", "$pos") if c in rows.columns]
    rows = rows.select("$ts", *places, pl.col(feed.hash).alias("$h"), pl.col(feed.slice).alias("$s"), *gap, "record")
    behind: list[pl.DataFrame] = []
    if not operator.corrected:
        _, late = late_rows.in_time(operator, rows, role.watermark)
        behind, rows = [_behind(operator, rows.filter(late))], rows.filter(~late)
    found = concat_rows([*behind, *(_dropped(rows, d) for d in dropped)])
    return LATE.empty_table() if found is None else _late(found, role, epoch, now)


def _late(found: pl.DataFrame, role: Role, epoch: int, now: int) -> pa.Table:
    shown = pl.Datetime("us", "UTC")
    return (
        found.select(
            pl.lit(epoch).cast(pl.Int64).alias("epoch"),
            pl.col("$ts").cast(shown).alias("event_time"),
            pl.col("$e").clip(upper_bound=LAST_INSTANT).cast(shown).alias("window_end"),
            pl.lit(shown_watermark(role.watermark), pl.Int64).cast(shown).alias("watermark"),
            "reason",
            "record",
            pl.lit(now).cast(pl.Int64).cast(shown).alias("seen_at"),
        )
        .to_arrow()
        .cast(LATE)
    )


def _behind(stage: Aggregation, late: pl.DataFrame) -> pl.DataFrame:
    ends = late_rows.last_ends(stage, late) if len(late) else pl.Series("$e", [], dtype=pl.Int64)
    reason = pl.when(ends.is_null()).then(pl.lit(NO_WINDOW)).otherwise(pl.lit(BEHIND))
    return late.select("$ts", ends.alias("$e"), reason.alias("reason"), "record")


def _dropped(rows: pl.DataFrame, dropped: Dropped) -> pl.DataFrame:
    inside = (pl.col("$h") == dropped.hash) & (pl.col("$ts") >= dropped.start) & (pl.col("$ts") < dropped.end)
    if dropped.place is not None:
        inside &= (pl.col("$part") == dropped.place[0]) & (pl.col("$pos") == dropped.place[1])
    end = pl.lit(dropped.window_end, dtype=pl.Int64).alias("$e")
    return rows.filter(inside).select("$ts", end, pl.lit(dropped.reason).alias("reason"), "record")
