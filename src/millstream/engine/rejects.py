"""A second look at a slice, only when it held rows to set apart: errors with reason, raw text and place; late rows
whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.connect.port import FUTURE, REASONS, SourcePort, SourceSlice
from millstream.engine import prelude
from millstream.engine.readers import read
from millstream.kernels.intake import Role
from millstream.model.schema import TIMESTAMP
from millstream.plan.stages import Aggregation, Plan, Scan, SourceStage

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


def errors(
    spark: SparkSession, stage: SourceStage, port: SourcePort, part: SourceSlice, epoch: int, now: int
) -> pa.Table:
    """The rows of a slice that are errors. `offset` counts records from the start of the partition or file."""
    frame = read(spark, stage, port, part, now, details=True).frame
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
            "`$bad` AS bad", f"{raw} AS raw", "`$where` AS place", "`$pos` AS position"
        )
        found = chosen.toArrow().sort_by([("place", "ascending"), ("position", "ascending")]).to_pylist()
    rows = [
        {
            "epoch": epoch,
            "reason": REASONS[r["bad"]],
            "raw": r["raw"],
            "partition": r["place"],
            "offset": r["position"],
            "seen_at": now,
        }
        for r in found
    ]
    return pa.Table.from_pylist(rows, schema=ERRORS)


def _in_files(frame: DataFrame, raw: str) -> list[dict[str, Any]]:
    """Errors with their record number: blocks of a file are numbered by what the blocks before them held."""
    row = F.monotonically_increasing_id()
    item = F.expr(f"IF(`$bad` <> 0, struct(`$row` AS row, `$bad` AS bad, {raw} AS raw), NULL)")
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
            number = entry["row"] - block["first"] + before
            found.append({"bad": entry["bad"], "raw": entry["raw"], "place": place, "position": number})
        before += block["rows"]
    return found


def late(
    frame: DataFrame,
    plan: Plan,
    scan: Scan,
    role: Role,
    tables: Mapping[str, DataFrame],
    epoch: int,
    now: int,
) -> pa.Table:
    """The rows of a scan that came behind the watermark of a stage, whole, as JSON."""
    stage = role.stage
    assert isinstance(stage, Aggregation)
    assert stage.window.size is not None and stage.window.slide is not None
    source = plan.source(scan.source)
    rows = prelude.through(frame, scan, source, tables, now)
    sql = {c.name: c.sql for c in scan.columns}
    future = now + source.options.future_bound.micros
    start = sql[role.feed.slice]
    slide, offset, size = stage.window.slide.micros, stage.window.offset.micros, stage.window.size.micros
    end = f"(({start}) - pmod(({start}) - {offset}L, {slide}L) + {size}L)"
    kept = f"`$bad` = 0 AND `$ts` <= {future}L AND {end} <= {role.watermark}L"
    if role.feed.keep is not None:
        kept += f" AND ({sql[role.feed.keep]})"
    found = rows.where(kept).selectExpr(
        f"{epoch}L AS epoch",
        "timestamp_micros(`$ts`) AS event_time",
        f"timestamp_micros({end}) AS window_end",
        f"timestamp_micros({min(role.watermark, 253402300799_000000)}L) AS watermark",
        "'behind the watermark' AS reason",
        f"{role.feed.record} AS record",
        f"timestamp_micros({now}L) AS seen_at",
    )
    return found.toArrow().cast(LATE)
