"""Reads the rows of a slice without Spark, as the readers of the engine do for each form. For tests of sources."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.connect.files.rows import Form as FileFormat
from millstream.connect.files.rows import load
from millstream.connect.forms import ArrowRows, ByteRange, ByteRanges, FileSet, Form, PythonRanges, SparkFormat
from millstream.connect.port import DAMAGED
from millstream.connect.text_lines import range_lines
from millstream.errors import Unsupported
from millstream.model.types.assignment import from_values
from millstream.model.types.schema import Schema

_FILE_SHIFT = 36


def slice_rows(forms: Sequence[Form], schema: Schema) -> pa.Table:
    """Return the rows of all forms: the columns of a source and ``$part $pos $bad $raw``, ordered by position.

    In files and byte ranges, every record must be valid. Of Spark's formats, only Parquet files are supported.
    """
    tables = [_READERS[type(form)](form, schema.to_arrow()) for form in forms]
    whole = pa.concat_tables([_system(schema.to_arrow()).empty_table(), *tables])
    return whole.sort_by([("$part", "ascending"), ("$pos", "ascending")])


def _system(schema: pa.Schema) -> pa.Schema:
    system = {"$part": pa.int32(), "$pos": pa.int64(), "$bad": pa.int32(), "$raw": pa.string()}
    return pa.schema([*schema, *(pa.field(n, t) for n, t in system.items())])


def _complete(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = _system(schema)
    for field in columns:
        if field.name not in table.column_names:
            value = pa.scalar(0 if field.name in ("$part", "$bad") else None, field.type)
            table = table.append_column(field, pa.repeat(value, table.num_rows))
    return pa.table([table[f.name].cast(f.type) for f in columns], schema=columns)


def _arrow(form: ArrowRows, schema: pa.Schema) -> pa.Table:
    return _complete(form.table, schema)


def _python(form: PythonRanges, schema: pa.Schema) -> pa.Table:
    tables = [_complete(t, schema) for t in form.tables(schema)]
    return pa.concat_tables([_system(schema).empty_table(), *tables])


def _files(form: FileSet, schema: pa.Schema) -> pa.Table:
    tables = [_system(schema).empty_table()]
    for file in form.files:
        base = file.number << _FILE_SHIFT
        if file.problem is not None:
            wrong = {"$pos": [base], "$bad": [DAMAGED], "$raw": [file.problem]}
            nulls = {f.name: pa.nulls(1, f.type) for f in schema}
            tables.append(_complete(pa.table({**nulls, **wrong}), schema))
            continue
        if form.format == "json":
            whole = ByteRange(file.path, 0, os.path.getsize(file.path), 0, base)
            tables.append(_bytes(ByteRanges("json", (whole,)), schema))
            continue
        rows = load(file.path, FileFormat(form.format, form.header), schema).rows
        numbers = pa.array(range(base, base + rows.num_rows), pa.int64())
        tables.append(_complete(rows.append_column("$pos", numbers), schema))
    return pa.concat_tables(tables)


def _bytes(form: ByteRanges, schema: pa.Schema) -> pa.Table:
    if form.format != "json":
        raise Unsupported("byte ranges of CSV are read by Spark only")
    tables = [_system(schema).empty_table()]
    for part in form.ranges:
        for batch in range_lines(part.path, form.format, part.start, part.end):
            records = [orjson.loads(text) for text in batch.column(0).to_pylist()]
            columns: dict[str, Any] = {
                f.name: from_values([r.get(f.name) for r in records], f.type, seconds=True) for f in schema
            }
            columns["$part"] = pa.repeat(pa.scalar(part.partition, pa.int32()), len(records))
            columns["$pos"] = pa.array([part.base + at for at in batch.column(1).to_pylist()], pa.int64())
            tables.append(_complete(pa.table(columns), schema))
    return pa.concat_tables(tables)


def _spark(form: SparkFormat, schema: pa.Schema) -> pa.Table:
    if form.format != "parquet" or form.columns:
        raise Unsupported(f"Spark's {form.format} reader without Spark")
    tables = [_system(schema).empty_table()]
    for path in form.paths:
        table = pq.ParquetFile(path).read(columns=[*schema.names, form.partition, form.position])
        table = table.rename_columns([*schema.names, "$part", "$pos"])
        if form.ranges is not None:
            part, pos = pc.field("$part"), pc.field("$pos")
            inside = pc.scalar(False)
            for p, (start, end) in form.ranges.items():
                inside = inside | ((part == p) & (pos >= start) & (pos < end))
            table = table.filter(inside)
        tables.append(_complete(table, schema))
    return pa.concat_tables(tables)


_READERS: dict[type, Callable[[Any, pa.Schema], pa.Table]] = {
    ArrowRows: _arrow,
    PythonRanges: _python,
    FileSet: _files,
    ByteRanges: _bytes,
    SparkFormat: _spark,
}
