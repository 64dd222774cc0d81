"""Reads JSON lines by byte ranges: tasks parse them with Arrow (`json_ranges.py`), and Spark's own parser decides about
the doubtful ones.

Any cut of a file into ranges gives the same rows. The position of a row is its first byte in its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession

from millstream.connect.forms import ByteRange
from millstream.connect.port import MISTYPED, UNPARSABLE
from millstream.engine.input.readers.arrow_rows import local
from millstream.engine.input.readers.columns import FormRead, Wanted, from_text
from millstream.engine.input.readers.json_lines import is_native
from millstream.engine.input.readers.json_ranges import DoubtfulLine, JsonRanges, shares
from millstream.engine.spark.cluster import parallelism
from millstream.model.types.schema import Schema, ddl_type

LOCAL_BYTES = 4 << 20
"""Slices up to this size are parsed in the driver."""
MOST_SENT = 4 << 20
"""Bytes of doubtful lines that a task sends to the driver, for error tables."""


def fits(schema: Schema) -> bool:
    """Whether Arrow can read all columns of a source."""
    return all(is_native(field.type) for field in schema)


def read(spark: SparkSession, wanted: Wanted, ranges: Sequence[ByteRange], *, by_line: bool) -> FormRead:
    """The lines of all ranges. Error tables name a row by its line, or by its first byte."""
    time = wanted.stage.options.event_time
    required = time if time in wanted.schema.names and wanted.stage.options.computed_time is None else None
    whole = JsonRanges(wanted.schema.to_arrow(), wanted.columns, ranges, wanted.details, by_line, required)
    if sum(r.end - r.start for r in ranges) <= LOCAL_BYTES:
        found: list[DoubtfulLine] = []
        frame = local(spark, pa.Table.from_batches(whole.batches(found.append), schema=whole.schema))
        return _form(frame, wanted, whole, lambda: found)
    tasks = [replace(whole, ranges=share) for share in shares(ranges, parallelism(spark))]
    sent = spark.sparkContext.accumulator([], _Lines())

    def read_ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        record = _Recorder()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from tasks[number].batches(record.add)
        sent.add([record.lines])

    columns = ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in whole.schema)
    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read_ranges, columns)
    return _form(frame, wanted, whole, lambda: _received(sent.value))


class _Lines(AccumulatorParam):  # type: ignore[type-arg]
    """Adds lists."""

    def zero(self, value: Any) -> Any:
        del value
        return []

    def addInPlace(self, value1: Any, value2: Any) -> Any:
        value1 += value2
        return value1


class _Recorder:
    """The doubtful lines that a task sends to the driver; None if they are too many."""

    def __init__(self) -> None:
        self.lines: list[DoubtfulLine] | None = []
        self._room = MOST_SENT

    def add(self, line: DoubtfulLine) -> None:
        self._room -= 200 + len(line.raw) + len(line.text or "")
        if self._room < 0:
            self.lines = None
        elif self.lines is not None:
            self.lines.append(line)


def _received(parts: Sequence[Sequence[DoubtfulLine] | None]) -> list[DoubtfulLine] | None:
    """The doubtful lines of all tasks, once each, although tasks may run again; None if there were too many."""
    found: dict[tuple[str, int], DoubtfulLine] = {}
    for part in parts:
        if part is None:
            return None
        found.update({(line.part.path, line.at): line for line in part})
    return list(found.values())


def _form(
    frame: DataFrame, wanted: Wanted, whole: JsonRanges, doubtful: Callable[[], list[DoubtfulLine] | None]
) -> FormRead:
    """Rows after Spark has read the doubtful lines."""

    def errors() -> FormRead | None:
        lines = doubtful()
        if lines is None:
            return None
        detailed = replace(wanted, details=True, only=None)
        ranges = replace(whole, wanted=detailed.columns, details=True)
        return _form(local(frame.sparkSession, ranges.of_doubtful(lines)), detailed, ranges, lambda: lines)

    names = [f"IF(`$text` IS NULL, `{n}`, `$record`.`{n}`) AS `{n}`" for n in wanted.columns]
    system = [f"`{n}`" for n in whole.schema.names if n.startswith("$") and n != "$text"]
    nulls = " AND ".join(f"`$record`.`{n}` IS NULL" for n in wanted.schema.names)
    frame = frame.selectExpr("*", from_text("json", wanted.schema)).selectExpr(
        *names, *system, "`$record`.`$corrupt` AS `$corrupt`", f"({nulls}) AS `$nothing`"
    )
    corrupt = f"IF(`$corrupt` IS NULL, 0, IF(`$nothing`, {UNPARSABLE}, {MISTYPED}))"
    return FormRead(
        frame,
        f"IF(`$wrong` <> 0, `$wrong`, {corrupt})",
        where="`$file`",
        block="0L",
        line="`$line`",
        raw="coalesce(`$raw`, `$corrupt`)",
        scanned=True,
        plain=False,
        doubtful=errors,
    )
