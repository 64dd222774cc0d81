"""Converts user rows to one Arrow record batch of a topic's schema, or refuses them with row and column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import RecordRefused, SchemaError
from millstream.model.types.assignment import Unfit, assigned, from_values
from millstream.model.types.schema import TIMESTAMP, Schema, ddl_type, zoned

Rows = Any
"""A dict, dicts, a record batch, a table, or any object that exports Arrow (polars, pandas)."""

REFUSED = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError, TypeError)

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")


def to_batch(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """Convert the rows to one batch of this schema; all of them, or RecordRefused."""
    if isinstance(rows, Mapping):
        return from_dicts([rows], schema)
    table = as_table(rows)
    if table is not None:
        return _from_table(table, schema)
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise RecordRefused(
            f"rows cannot be a {type(rows).__name__}", hint="pass a dict, a list of dicts, or an Arrow table"
        )
    return from_dicts(rows if isinstance(rows, Sequence) else list(rows), schema)


def as_table(rows: Rows) -> pa.Table | None:
    """The rows as a table when they are Arrow data of some kind."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        return pa.table(rows)
    return None


def from_dicts(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Convert dicts; a column that a row lacks is NULL."""
    known = frozenset(schema.names)
    for row, record in enumerate(rows):
        if type(record) is not dict and not isinstance(record, Mapping):
            raise RecordRefused(f"row {row} is a {type(record).__name__}", hint="a row is a dict of its columns")
        if not known.issuperset(record):
            strange = next(name for name in record if name not in known)
            raise RecordRefused(
                f"row {row} has a column `{strange}` that the topic does not have",
                detail="the topic's columns: " + ", ".join(schema.names),
            )
    columns = []
    for field in schema:
        values = [r.get(field.name) for r in rows]
        try:
            columns.append(from_values(values, field.type, seconds=True))
        except Unfit as unfit:
            raise refused(unfit, field) from None
    return pa.record_batch(columns, schema=schema)


def refused(unfit: Unfit, field: pa.Field, does: str = "is not") -> RecordRefused:
    """Return the error for a value that a column cannot hold."""
    if unfit.row is None:
        return RecordRefused(f"the values of `{field.name}` do not fit {_called(field.type)}", detail=unfit.why)
    return RecordRefused(
        f"row {unfit.row}: the value of `{field.name}` {does} {_called(field.type)}",
        detail=f"{unfit.value!r:.200}: {unfit.why}",
    )


def _called(kind: pa.DataType) -> str:
    try:
        return ddl_type(kind)
    except SchemaError:
        return str(kind)


def _from_table(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Select a table's columns by name; types are converted only without loss."""
    strange = [n for n in table.column_names if n not in schema.names]
    if strange or len(set(table.column_names)) < table.num_columns:
        raise RecordRefused(
            f"the topic does not have a column `{strange[0]}`" if strange else "a column is there twice",
            detail="the topic's columns: " + ", ".join(schema.names),
        )
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        columns.append(assigned_column(table.column(field.name), field))
    return pa.record_batch(columns, schema=schema)


def assigned_column(column: pa.ChunkedArray | pa.Array, field: pa.Field) -> pa.Array:
    """Convert a column to another type without loss; or RecordRefused with row, column and value."""
    try:
        return assigned(column, field.type)
    except Unfit as unfit:
        raise refused(unfit, field, "cannot become") from None


# ---------------------------------------------------------------- limits


def oversized(batch: pa.RecordBatch, limit: int) -> list[int]:
    """The rows whose values exceed the size limit in bytes."""
    if batch.nbytes <= limit:
        return []
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += _sizes(column)
    return [int(i) for i in np.flatnonzero(sizes > limit)]


def _sizes(column: pa.Array) -> np.ndarray | int:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths: np.ndarray = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        return lengths
    if pa.types.is_nested(kind):
        return np.array([column.slice(i, 1).nbytes for i in range(len(column))], np.int64)
    return -(-int(kind.bit_width) // 8)


def weight(rows: Rows) -> int:
    """The approximate memory of rows while they are queued."""
    if type(rows) is not dict and isinstance(rows, pa.RecordBatch):
        return int(rows.nbytes)
    size = 64
    for value in rows.values():
        size += len(value) if type(value) is str or type(value) is bytes else 16
    return size


# ---------------------------------------------------------------- schemas


def topic_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a topic: types that SQL can name, times in microseconds, no dictionaries."""
    fields = [pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema]
    known = Schema.from_arrow(pa.schema(fields), exact=True).to_arrow()
    for field in known:
        if pa.types.is_null(field.type):
            raise SchemaError(f"the type of the column `{field.name}` is not known", hint="declare it in a schema")
        ddl_type(field.type)
    return known


def infer(rows: Rows) -> pa.Schema:
    """Infer a schema from the first rows: a text column with only ISO 8601 instants is a timestamp."""
    table = as_table(rows)
    if table is not None:
        return topic_schema(zoned(table.schema))
    records = [rows] if isinstance(rows, Mapping) else list(rows)
    names = list(dict.fromkeys(name for record in records for name in record))
    fields = []
    for name in names:
        values = [v for r in records if (v := r.get(name)) is not None]
        if values and all(isinstance(v, str) and _INSTANT.fullmatch(v) for v in values):
            fields.append(pa.field(name, TIMESTAMP))
            continue
        try:
            kind = pa.array(values).type if values else pa.string()
        except REFUSED as error:
            raise SchemaError(
                f"no single type fits the column `{name}`",
                detail=str(error).splitlines()[0],
                hint="declare it in a schema",
            ) from None
        fields.append(pa.field(name, pa.string() if pa.types.is_null(kind) else kind))
    return topic_schema(zoned(pa.schema(fields)))
