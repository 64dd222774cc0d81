"""Reads slices whose rows are already in the driver."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.connect.forms import ArrowRows
from millstream.engine.input.readers.columns import FormRead, Wanted
from millstream.engine.spark.frames import frame_of

LOCAL_ROWS = 100_000
"""Generated slices up to this size are produced in the driver; larger ones on the executors."""


def read(spark: SparkSession, wanted: Wanted, form: ArrowRows) -> FormRead:
    """The rows, sent to Spark."""
    del wanted
    return of_frame(local(spark, form.table))


def of_frame(frame: DataFrame, *, scanned: bool = False) -> FormRead:
    """A frame with the system columns of the forms. ``$bad`` and ``$raw`` may be missing."""
    bad, raw = "$bad" in frame.columns, "$raw" in frame.columns
    return FormRead(
        frame,
        bad="`$bad`" if bad else "0",
        raw="`$raw`" if raw else None,
        scanned=scanned,
        plain=not bad and not raw,
    )


def local(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Rows of the driver as a DataFrame. Spark creates one task per chunk, so small chunks are merged."""
    if table.num_columns and table.column(0).num_chunks > 1 + table.num_rows // LOCAL_ROWS:
        table = table.combine_chunks()
    return frame_of(spark, table)
