"""Reads ranges with a Python function: short ones in the driver, longer ones in tasks on the executors."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from millstream.connect.forms import PythonRanges
from millstream.engine.input.readers.arrow_rows import LOCAL_ROWS, local, of_frame
from millstream.engine.input.readers.columns import FormRead, Wanted
from millstream.model.types.schema import ddl_type

_SYSTEM = (pa.field("$part", pa.int32()), pa.field("$pos", pa.int64()))
_WRONG = (pa.field("$bad", pa.int32()), pa.field("$raw", pa.string()))


def read(spark: SparkSession, wanted: Wanted, form: PythonRanges) -> FormRead:
    """The rows that the calls of the function return."""
    schema = wanted.schema.to_arrow()
    given = pa.schema([*schema, *_SYSTEM, *(_WRONG if form.marks else ())])
    if form.offsets <= LOCAL_ROWS:
        whole = [(p, start, end) for p, start, end in form.ranges if end > start]
        table = pa.concat_tables([given.empty_table(), *form.tables(schema, whole)])
        return of_frame(local(spark, table), scanned=form.costly)
    calls = form.calls()

    def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for table in form.tables(schema, [calls[number]]):
                    yield from table.to_batches()

    most = spark.sparkContext.defaultParallelism * 2
    ddl = ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in given)
    frame = spark.range(0, len(calls), 1, min(most, len(calls))).mapInArrow(tasks, ddl)
    return of_frame(frame, scanned=form.costly)
