"""The Spark job of a large epoch:

    union(scans.mapInArrow(scan task)) -> exchange -> mapInArrow(level 1) -> exchange -> mapInArrow(level 2) -> driver

Spark plans, retries and places the tasks. The driver receives counts, names of runs and files, and small results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from millstream.engine.exchange.level_task import LevelTask
from millstream.engine.exchange.parcels import PARCEL, Batches
from millstream.engine.exchange.scan_task import ScanTask
from millstream.engine.spark.frames import frame_of


def scanned(frame: DataFrame, task: ScanTask) -> DataFrame:
    """The parcels of a scan."""
    return frame.mapInArrow(_on_executor(task), PARCEL)


def run(
    spark: SparkSession, scans: Sequence[DataFrame], sent: Sequence[pa.RecordBatch], levels: Sequence[LevelTask]
) -> list[pa.RecordBatch]:
    """Run the levels over the parcels of scans and those `sent` by the driver. Returns the parcels for the driver."""
    inputs = list(scans)
    if sent:
        inputs.append(frame_of(spark, pa.Table.from_batches(sent)))
    parcels = reduce(DataFrame.unionAll, inputs)
    for task in levels:
        shards = task.routes.shards
        parcels = parcels.repartitionById(shards, parcels["shard"]).mapInArrow(_on_executor(task), PARCEL)
    table: pa.Table = parcels.toArrow()
    return table.to_batches()


def _on_executor(task: ScanTask | LevelTask) -> Callable[[Batches], Batches]:
    """A task as a function over batches, which learns from Spark which partition it is."""

    def run(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        yield from task.run(batches, context.partitionId(), context.taskAttemptId())

    return run
