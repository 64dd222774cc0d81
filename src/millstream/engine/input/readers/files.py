"""Reads whole files: JSON lines with Arrow, other formats with Spark where it loses nothing, and the rest line by line.
A file that cannot be read at all is one error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from millstream.connect.forms import ByteRange, FilePart, FileSet
from millstream.connect.port import DAMAGED, UNPARSABLE
from millstream.connect.text_lines import LINES, is_plain, is_uncompressed, lines
from millstream.engine.input.readers import json_reader
from millstream.engine.input.readers.arrow_rows import local
from millstream.engine.input.readers.columns import (
    CORRUPT,
    TEXT_OPTIONS,
    FormRead,
    Wanted,
    ddl,
    from_text,
    lines_read,
    literal,
    parser_error,
)
from millstream.engine.input.readers.parquet_groups import FILE_SHIFT
from millstream.model.reserved import folded
from millstream.model.types.schema import Schema, ddl_type
from millstream.model.types.values import readable

LOCAL_BYTES = 32 * 2**20
"""Files that must be read line by line are read in the driver up to this size; larger ones on the executors."""
_GLOB = re.compile(r"[*?\[\]{}\\]")
_FILE_LINES = pa.schema([*LINES, ("$n", pa.int64()), ("$file", pa.string())])
_FILE = "_metadata"
"""Spark's metadata about the file of a row, as a column that every file reader has."""
_OWN_FILE = "$file"
"""The same, if the source has a column with that name."""
_ROW = f"(monotonically_increasing_id() & {(1 << 33) - 1}L)"
"""The number of a row in its task."""
_PATH = "regexp_replace(url_decode(replace({file}.file_path, '+', '%2B')), '^file:/+', '/')"
"""The plain path of a row's file. Spark provides it as a URI."""


def read(spark: SparkSession, wanted: Wanted, form: FileSet) -> list[FormRead]:
    """The files of a slice."""
    native, plain, lined, broken = _sorted(form, wanted)
    reads = []
    if native:
        reads.append(json_reader.read(spark, wanted, _ranges(native), by_line=True))
    if plain:
        reads.append(_by_spark(spark, wanted, form, plain))
    if lined:
        reads.append(_by_lines(spark, wanted, form, lined))
    if broken:
        reads.append(_broken(spark, wanted, broken))
    return reads


def native_ranges(form: FileSet, wanted: Wanted) -> list[ByteRange] | None:
    """The files as ranges of JSON lines; None if some of them must be read in another way."""
    native, *others = _sorted(form, wanted)
    return None if any(others) else _ranges(native)


def _sorted(form: FileSet, wanted: Wanted) -> tuple[list[FilePart], ...]:
    """Files by how they are read: with Arrow, by Spark, line by line, not at all."""
    native: list[FilePart] = []
    plain: list[FilePart] = []
    lined: list[FilePart] = []
    fits = form.format == "json" and json_reader.fits(wanted.schema)
    for file in (f for f in form.files if f.problem is None):
        if fits and is_uncompressed(file.path):
            native.append(file)
        elif form.format == "parquet" or is_plain(file.path, form.format, file.size):
            plain.append(file)
        else:
            lined.append(file)
    return native, plain, lined, [f for f in form.files if f.problem is not None]


def _ranges(files: Sequence[FilePart]) -> list[ByteRange]:
    return [ByteRange(f.path, 0, f.size, 0, f.number << FILE_SHIFT) for f in files]


def _by_spark(spark: SparkSession, wanted: Wanted, form: FileSet, files: Sequence[FilePart]) -> FormRead:
    schema = wanted.schema
    paths = [_GLOB.sub(r"\\\g<0>", f.path) for f in files]
    parquet = form.format == "parquet"
    kept = wanted.strict and not parquet
    reader = spark.read.schema(ddl(schema, *([CORRUPT] if kept else [])))
    if parquet:
        frame, bad = reader.parquet(*paths), "0"
    else:
        for option, value in TEXT_OPTIONS.items():
            reader = reader.option(option, value)
        if form.format == "json":
            frame = reader.json(paths)
        else:
            # the source has compared the headers (`connect/files/source.py`); Spark treats quotes in them differently
            frame = reader.option("header", form.header).option("enforceSchema", True).csv(paths)
        # naming every column here keeps the reader from skipping some: whether a record is bad does not depend on the
        # views
        nulls = [f"`{n}` IS NULL" for n in schema.names]
        bad = parser_error(_all_null(schema)) if kept else f"IF({' OR '.join(nulls)}, {UNPARSABLE}, 0)"
    file = _FILE
    if any(folded(n) == _FILE for n in schema.names):
        frame, file = frame.withColumn(_OWN_FILE, frame.metadataColumn(_FILE)), f"`{_OWN_FILE}`"
    first = 1 if form.format == "csv" and form.header else 0
    row = f"{file}.row_index" if parquet else f"{file}.file_block_start + {_ROW}"
    return FormRead(
        frame,
        bad,
        part="0",
        position=_position([(f.number, _uri(spark, f.path)) for f in files], file, row) if wanted.positions else "",
        where=_PATH.format(file=file),
        block="0L" if parquet else f"{file}.file_block_start",
        line=row if parquet else f"CAST(-1 - {first} AS BIGINT)",
        raw="`$corrupt`" if kept else None,
        scanned=True,
        lenient=not wanted.strict and not parquet,
        plain=False,
    )


def _by_lines(spark: SparkSession, wanted: Wanted, form: FileSet, files: Sequence[FilePart]) -> FormRead:
    """Text files whose lines are all checked (see `connect/text_lines.py`); large ones on the executors."""
    format, header = form.format, form.header
    if sum(f.size for f in files) <= LOCAL_BYTES:
        batches = [_named(b, f.number, f.path) for f in files for b in lines(f.path, format, header=header)]
        frame = local(spark, pa.Table.from_batches(batches, schema=_FILE_LINES))
    else:
        listed = [(f.number, os.fsencode(f.path)) for f in files]

        def read_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number, name in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                    path = os.fsdecode(name)
                    for some in lines(path, format, header=header):
                        yield _named(some, number, path)

        names = spark.createDataFrame(listed, "n BIGINT, name BINARY").repartition(len(listed))
        frame = names.mapInArrow(read_files, ", ".join(f"`{f.name}` {ddl_type(f.type)}" for f in _FILE_LINES))
    return parsed(
        frame, wanted, format, position=f"shiftleft(`$n`, {FILE_SHIFT}) + `$line`", system=("$line", "$file", "$n")
    )


def parsed(
    frame: DataFrame, wanted: Wanted, format: str, *, position: str, system: Sequence[str], part: str = "0"
) -> FormRead:
    """Lines (``$text``, or ``$wrong`` and ``$raw``) as rows."""
    columns = [f"`$record`.`{n}` AS `{n}`" for n in (*wanted.schema.names, "$corrupt")]
    kept = [f"`{c}`" for c in ("$wrong", "$raw", *system)]
    frame = frame.selectExpr(*kept, from_text(format, wanted.schema)).selectExpr(*kept, *columns)
    return lines_read(frame, _all_null(wanted.schema), part=part, position=position)


def _broken(spark: SparkSession, wanted: Wanted, files: Sequence[FilePart]) -> FormRead:
    """Files that cannot be read: one error each."""
    rows = {
        "$n": pa.array([f.number for f in files], pa.int64()),
        "$file": pa.array([_shown(f.path) for f in files], pa.string()),
        "$raw": pa.array([f.problem for f in files], pa.string()),
    }
    nulls = [f"CAST(NULL AS {ddl_type(f.type)}) AS `{f.name}`" for f in wanted.schema if f.type is not None]
    return FormRead(
        local(spark, pa.table(rows)).selectExpr("*", *nulls),
        str(DAMAGED),
        part="0",
        position=f"shiftleft(`$n`, {FILE_SHIFT})",
        where="`$file`",
        block="0L",
        line="0L",
        raw="`$raw`",
        scanned=True,
        plain=False,
    )


def _named(batch: pa.RecordBatch, number: int, path: str) -> pa.RecordBatch:
    """Lines with the number and the name of their file."""
    rows = batch.num_rows
    more = [pa.array([number] * rows, pa.int64()), pa.array([_shown(path)] * rows, pa.string())]
    return pa.record_batch([*batch.columns, *more], schema=_FILE_LINES)


def _shown(path: str) -> str:
    return readable(os.fsencode(path))


def _all_null(schema: Schema) -> str:
    return " AND ".join(f"`{n}` IS NULL" for n in schema.names)


def _position(uris: Sequence[tuple[int, str]], file: str, row: str) -> str:
    """SQL for the position of a row: the number of its file, then its `row` in the file."""
    numbers = ", ".join(f"{literal(uri)}, {n}L" for n, uri in uris)
    return f"shiftleft(map({numbers})[{file}.file_path], {FILE_SHIFT}) + {row}"


def _uri(spark: SparkSession, path: str) -> str:
    """A path as in Spark's ``_metadata.file_path``: comparing is cheaper than decoding one for every row."""
    return str(spark.sparkContext._jvm.org.apache.hadoop.fs.Path(f"file:{path}").toUri().toString())  # type: ignore[union-attr]
