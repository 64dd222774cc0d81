"""Reads byte ranges of text files: whole lines, each checked before it is parsed, as for files that are read line by
line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from millstream.connect.forms import ByteRange, ByteRanges
from millstream.connect.text_lines import LINES, range_lines
from millstream.engine.input.readers import json_reader
from millstream.engine.input.readers.arrow_rows import local
from millstream.engine.input.readers.columns import FormRead, Wanted
from millstream.engine.input.readers.files import LOCAL_BYTES, parsed
from millstream.model.types.schema import ddl_type
from millstream.model.types.values import readable

_RANGE_LINES = pa.schema([*LINES, ("$part", pa.int32()), ("$pos", pa.int64()), ("$file", pa.string())])


def read(spark: SparkSession, wanted: Wanted, form: ByteRanges) -> FormRead:
    """The lines of all ranges. Error tables name a row by its file and the byte at which it begins."""
    format = form.format
    if format == "json" and json_reader.fits(wanted.schema):
        return json_reader.read(spark, wanted, form.ranges, by_line=False)
    if sum(r.end - r.start for r in form.ranges) <= LOCAL_BYTES:
        batches = [b for r in form.ranges for b in _lines(r, format)]
        frame = local(spark, pa.Table.from_batches(batches, schema=_RANGE_LINES))
    else:
        ranges = form.ranges

        def read_ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _lines(ranges[number], format)

        numbers = spark.range(0, len(ranges), 1, len(ranges))
        frame = numbers.mapInArrow(read_ranges, ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in _RANGE_LINES))
    return parsed(frame, wanted, format, position="`$pos`", part="`$part`", system=("$line", "$file", "$part", "$pos"))


def _lines(part: ByteRange, format: str) -> Iterator[pa.RecordBatch]:
    for batch in range_lines(part.path, format, part.start, part.end):
        places = batch.column(1)
        more = [
            pa.array([part.partition] * batch.num_rows, pa.int32()),
            pa.array([part.base + place.as_py() for place in places], pa.int64()),
            pa.array([readable(os.fsencode(part.path))] * batch.num_rows, pa.string()),
        ]
        yield pa.record_batch([*batch.columns, *more], schema=_RANGE_LINES)
