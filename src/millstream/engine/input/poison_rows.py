"""Poison records: finds the positions of a slice's rows, reads a slice without some of them, and reports those as
errors.

A row is named by (``$part``, ``$pos``). For files that Spark reads, the position depends on how Spark splits them into
tasks. Every read by position therefore uses a session that splits files the same way on any number of cores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millstream.connect.port import SourcePort, SourceSlice
from millstream.connect.text_lines import shortened
from millstream.engine.driver.epoch_io import EpochInput
from millstream.engine.input.readers.slices import SliceRead, read
from millstream.engine.input.rejects import _in_files
from millstream.errors import EngineLost, MillstreamError
from millstream.model.dead_letters import ERRORS
from millstream.plan.plan import PlannedSource

TASKS = 8
"""The least number of tasks into which the files of a slice are split (large files into more)."""

_MARK = 1_000


def steady(spark: SparkSession) -> SparkSession:
    """A session in which a slice of files is always split the same way."""
    own = spark.newSession()
    own.conf.set("spark.sql.files.minPartitionNum", str(TASKS))
    return own


def concerns(epoch_input: EpochInput, source: str) -> bool:
    """Whether rows of a source are left out."""
    return epoch_input.only is not None or bool(epoch_input.without.get(source))


def reading(
    spark: SparkSession, stage: PlannedSource, port: SourcePort, part: SourceSlice, epoch_input: EpochInput
) -> SliceRead:
    """A slice without the rows that are left out."""
    whole = read(spark, replace(stage, positions=True), port, part, epoch_input.now)
    frame = whole.frame
    if epoch_input.only is not None:
        frame = frame.where(_inside(epoch_input.only.get(stage.name, ())))
    out = epoch_input.without.get(stage.name, ())
    if out:
        frame = frame.where(f"NOT ({_one_of(out)})")
    return SliceRead(frame, whole.scanned)


def places(
    spark: SparkSession, stage: PlannedSource, port: SourcePort, part: SourceSlice, epoch_input: EpochInput
) -> tuple[np.ndarray, np.ndarray]:
    """The partitions and positions of the good rows of a slice, in order."""
    rows = reading(spark, stage, port, part, epoch_input).frame.where("`$bad` = 0").select("$part", "$pos").toArrow()
    rows = rows.sort_by([("$part", "ascending"), ("$pos", "ascending")])
    return rows["$part"].to_numpy(), rows["$pos"].to_numpy()


def errors(
    spark: SparkSession,
    stage: PlannedSource,
    port: SourcePort,
    part: SourceSlice,
    epoch_input: EpochInput,
    others: pa.Table,
) -> pa.Table:
    """The rows for the error table: those of `others`, and the poison records, as far as they can be read."""
    out = epoch_input.without[stage.name]
    try:
        found = _looked_up(spark, stage, port, part, epoch_input.now, out)
    except EngineLost:
        raise
    except MillstreamError:
        found = {}
    rows = [
        {
            "epoch": epoch_input.number,
            "reason": reason,
            "raw": _readable(found.get(i, {}).get("raw")),
            "partition": found.get(i, {}).get("place", str(partition)),
            "offset": found.get(i, {}).get("position", position),
            "seen_at": epoch_input.now,
        }
        for i, (partition, position, reason) in enumerate(out)
    ]
    told = {(r["partition"], r["offset"]) for r in rows}
    rest = [r for r in others.to_pylist() if (r["partition"], r["offset"]) not in told]
    return pa.Table.from_pylist([*rest, *rows], schema=ERRORS)


def _looked_up(
    spark: SparkSession,
    stage: PlannedSource,
    port: SourcePort,
    part: SourceSlice,
    now: int,
    out: Sequence[tuple[int, int, str]],
) -> Mapping[int, dict[str, Any]]:
    """Raw text and position of the poison records, by their number in the list."""
    frame = read(spark, stage, port, part, now, details=True).frame
    cases = " ".join(f"WHEN {_is(p, q)} THEN {_MARK + i}" for i, (p, q, _) in enumerate(out))
    frame = frame.withColumn("$bad", F.expr(f"CASE {cases} ELSE 0 END"))
    raw = f"to_json(struct({', '.join(f'`{n}`' for n in stage.schema.names)}))"
    if "$block" in frame.columns:
        rows = _in_files(frame, raw)
    else:
        chosen = frame.where("`$bad` <> 0")
        wanted = ("`$bad` AS bad", f"CAST({raw} AS BINARY) AS raw", "`$where` AS place", "`$pos` AS position")
        rows = chosen.selectExpr(*wanted).toArrow().to_pylist()
    return {r["bad"] - _MARK: r for r in rows}


def _readable(raw: bytes | None) -> str | None:
    return None if raw is None else shortened(bytes(raw))


def _is(partition: int, position: int) -> str:
    return f"(`$part` = {partition} AND `$pos` = {position}L)"


def _one_of(rows: Sequence[tuple[int, int, str]]) -> str:
    by: dict[int, list[int]] = {}
    for partition, position, _ in rows:
        by.setdefault(partition, []).append(position)
    return " OR ".join(f"(`$part` = {p} AND `$pos` IN ({', '.join(f'{q}L' for q in qs)}))" for p, qs in by.items())


def _inside(ranges: Sequence[tuple[int, int, int]]) -> str:
    if not ranges:
        return "false"
    return " OR ".join(f"(`$part` = {p} AND `$pos` BETWEEN {first}L AND {last}L)" for p, first, last in ranges)
