"""Arrow tables as frames of Spark, for every table: also empty ones, and slices of others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows of a table as a frame."""
    return spark.createDataFrame(plain_chunks(table))


def plain_chunks(table: pa.Table) -> pa.Table:
    """The same rows in chunks that Spark can take. It cannot take a nested column without any chunk, as an empty table
    has, nor one with a chunk that is a slice of another.
    """
    if not any(pa.types.is_nested(t) for t in table.schema.types):
        return table
    if not table.num_rows:
        return pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema=table.schema)])
    if any(chunk.offset for column in table.columns for chunk in column.iterchunks()):
        return table.take(pa.array(np.arange(table.num_rows)))
    return table
