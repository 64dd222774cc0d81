"""The Spark job of a large epoch:

    union(scans.mapInArrow(scan task)) -> exchange -> mapInArrow(level 1) -> exchange -> mapInArrow(level 2) -> driver

Spark plans, retries and places the tasks. The driver receives counts, names of runs and files, and small results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from millstream.engine.exchange.expressions import evaluated, parcel_columns
from millstream.engine.exchange.graph import Edge
from millstream.engine.exchange.parcels import SCHEMA, Batches
from millstream.engine.exchange.routes import Routes
from millstream.engine.spark.frames import frame_of
from millstream.engine.tasks.level_task import LevelTask
from millstream.engine.tasks.merge_task import MergeTask
from millstream.engine.tasks.native_scan_task import NativeScanTask
from millstream.engine.tasks.route_task import RouteTask
from millstream.engine.tasks.scan_task import ScanTask


def scanned(frame: DataFrame, task: ScanTask) -> DataFrame:
    """The parcels of a scan, and its records for Spark."""
    return _mapped(frame, task, () if task.routes is None else task.routes.graph.computed(0))


def read(spark: SparkSession, task: NativeScanTask) -> DataFrame:
    """The parcels of all scans of a source whose slice the tasks read themselves."""
    numbers = spark.range(0, len(task.shares), 1, len(task.shares))
    routes = task.scans[0][1].routes
    return _mapped(numbers, task, () if routes is None else routes.graph.computed(0))


def run(
    spark: SparkSession,
    scans: Sequence[DataFrame],
    sent: Sequence[pa.RecordBatch],
    levels: Sequence[LevelTask],
    routes: Routes,
    name: str,
) -> list[pa.RecordBatch]:
    """Run the levels over the parcels of scans and those `sent` by the driver. Returns the parcels for the driver.
    `name` is the beginning of the names of files.
    """
    parcels = _computed(reduce(DataFrame.unionAll, scans), routes, 0, name)
    if sent:
        parcels = parcels.unionAll(frame_of(spark, pa.Table.from_batches(sent)))
    for task in levels:
        shards = parcels.repartitionById(routes.shards, parcels["shard"])
        edges = routes.graph.computed(task.level)
        parcels = _computed(_mapped(shards, task, edges), routes, task.level, name)
    table: pa.Table = parcels.toArrow()
    return table.to_batches()


def merged(spark: SparkSession, task: MergeTask) -> list[pa.RecordBatch]:
    """Perform the parts of a merge of runs. Returns the parcels for the driver."""
    table: pa.Table = _mapped(spark.range(0, task.parts, 1, task.parts), task, ()).toArrow()
    return table.to_batches()


def _computed(parcels: DataFrame, routes: Routes, level: int, name: str) -> DataFrame:
    """Parcels after the expressions that Spark evaluates between two levels."""
    edges = routes.graph.computed(level)
    if not edges:
        return parcels
    return _mapped(evaluated(parcels, edges), RouteTask(level, routes, edges, name), ())


def _mapped(
    frame: DataFrame, task: ScanTask | NativeScanTask | LevelTask | RouteTask | MergeTask, edges: Sequence[Edge]
) -> DataFrame:
    """Run a task on the partitions of a DataFrame. It learns from Spark which partition it is."""
    records = [pa.field(e.column, pa.struct(list(e.schema or ()))) for e in edges]

    def run(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        for batch in task.run(batches, context.partitionId(), context.taskAttemptId()):
            yield _with_columns(batch, records)

    return frame.mapInArrow(run, parcel_columns(edges))


def _with_columns(batch: pa.RecordBatch, records: Sequence[pa.Field]) -> pa.RecordBatch:
    """A batch with all columns for records; those that it has not are NULL."""
    if not records:
        return batch
    columns = [batch.column(i) for i in range(len(SCHEMA))]
    for field in records:
        at = batch.schema.get_field_index(field.name)
        columns.append(pa.nulls(batch.num_rows, field.type) if at < 0 else batch.column(at))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*SCHEMA, *records]))
