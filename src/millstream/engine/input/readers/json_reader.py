"""Reads JSON lines by byte ranges: tasks parse them with Arrow (`json_task.py`), and Spark's own parser reads the
doubtful ones.

The rows do not depend on how a file is divided into ranges. The position of a row is its first byte in its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.connect.forms import ByteRange
from millstream.engine.input.readers.arrow_rows import local
from millstream.engine.input.readers.columns import FormRead, Wanted, from_text, lines_read
from millstream.engine.input.readers.doubtful_lines import DoubtfulLines, accumulator, received
from millstream.engine.input.readers.json_parser import is_native
from millstream.engine.input.readers.json_task import DoubtfulLine, JsonRanges, shares
from millstream.engine.spark.cluster import parallelism
from millstream.model.types.schema import Schema, ddl_type

LOCAL_BYTES = 4 << 20
"""Slices up to this size are parsed in the driver."""


def fits(schema: Schema) -> bool:
    """Whether Arrow can read all columns of a source."""
    return all(is_native(field.type) for field in schema)


def is_small(ranges: Sequence[ByteRange]) -> bool:
    """Whether the driver parses the ranges itself."""
    return sum(r.end - r.start for r in ranges) <= LOCAL_BYTES


def ranges_of(wanted: Wanted, ranges: Sequence[ByteRange], *, by_line: bool) -> JsonRanges:
    """Ranges and what is wanted of them. Error tables name a row by its line, or by its first byte."""
    time = wanted.stage.options.event_time
    required = time if time in wanted.schema.names and wanted.stage.options.computed_time is None else None
    return JsonRanges(wanted.schema.to_arrow(), wanted.columns, ranges, wanted.details, by_line, required)


def parsed_shares(spark: SparkSession, whole: JsonRanges) -> list[JsonRanges]:
    """Shares of ranges for tasks, without doubtful lines."""
    parsed = replace(whole, only_parsed=True)
    if is_small(whole.ranges):
        return [parsed]
    return [replace(parsed, ranges=share) for share in shares(whole.ranges, parallelism(spark))]


def of_lines(spark: SparkSession, wanted: Wanted, whole: JsonRanges, lines: Sequence[DoubtfulLine]) -> FormRead:
    """The rows of doubtful lines."""
    return _form(local(spark, whole.of_doubtful(lines)), wanted, whole, lambda: lines)


def read(spark: SparkSession, wanted: Wanted, ranges: Sequence[ByteRange], *, by_line: bool) -> FormRead:
    """The lines of all ranges, as a DataFrame."""
    whole = ranges_of(wanted, ranges, by_line=by_line)
    if is_small(ranges):
        found: list[DoubtfulLine] = []
        frame = local(spark, pa.Table.from_batches(whole.batches(found.append), schema=whole.schema))
        return _form(frame, wanted, whole, lambda: found)
    tasks = [replace(whole, ranges=share) for share in shares(ranges, parallelism(spark))]
    sent = accumulator(spark)

    def read_ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        doubtful = DoubtfulLines()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from tasks[number].batches(doubtful.add)
        sent.add([doubtful.lines])

    columns = ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in whole.schema)
    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read_ranges, columns)
    return _form(frame, wanted, whole, lambda: received(sent.value))


def _form(
    frame: DataFrame, wanted: Wanted, whole: JsonRanges, doubtful: Callable[[], Sequence[DoubtfulLine] | None]
) -> FormRead:
    """Rows after Spark has read the doubtful lines."""

    def errors() -> FormRead | None:
        lines = doubtful()
        if lines is None:
            return None
        detailed = replace(wanted, details=True, only=None)
        return of_lines(frame.sparkSession, detailed, replace(whole, wanted=detailed.columns, details=True), lines)

    names = [f"IF(`$text` IS NULL, `{n}`, `$record`.`{n}`) AS `{n}`" for n in wanted.columns]
    system = [f"`{n}`" for n in whole.schema.names if n.startswith("$") and n != "$text"]
    nulls = " AND ".join(f"`$record`.`{n}` IS NULL" for n in wanted.schema.names)
    frame = frame.selectExpr("*", from_text("json", wanted.schema)).selectExpr(
        *names, *system, "`$record`.`$corrupt` AS `$corrupt`", f"({nulls}) AS `$nothing`"
    )
    return lines_read(frame, "`$nothing`", doubtful=errors)
