"""Rows as people give them, as one Arrow record batch of a topic's schema, or refused with row and column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import RecordRefused, SchemaError
from millstream.model.schema import TIMESTAMP, Schema, ddl_type

Rows = Any
"""A dict, dicts, a record batch, a table, or anything that hands over Arrow (polars, pandas)."""

REFUSED = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError, TypeError)

_WHOLE = frozenset({int, type(None)})
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")


def to_batch(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """The rows as one batch of this schema; all of them, or RecordRefused."""
    if isinstance(rows, Mapping):
        return from_dicts([rows], schema)
    table = as_table(rows)
    if table is not None:
        return _from_table(table, schema)
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise RecordRefused(
            f"rows cannot be a {type(rows).__name__}", hint="give a dict, a list of dicts, or an Arrow table"
        )
    return from_dicts(rows if isinstance(rows, Sequence) else list(rows), schema)


def as_table(rows: Rows) -> pa.Table | None:
    """The rows as a table when they are Arrow of some kind."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        return pa.table(rows)
    return None


def from_dicts(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows given one by one; a column that a row does not have is NULL."""
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
        name, kind = field.name, field.type
        values = [r.get(name) for r in rows]
        if _needs_care(values, kind):
            values = [plain(v, kind) for v in values]
        try:
            columns.append(pa.array(values, type=kind))
        except REFUSED as error:
            raise _refused(values, name, kind, error) from None
    return pa.record_batch(columns, schema=schema)


def plain(value: Any, kind: pa.DataType) -> Any:
    """A value given by hand as Arrow takes it.

    Times may be given as ISO 8601 text, as a datetime (UTC if it has no zone), or as seconds since 1970. A number that
    would lose something becomes text, which Arrow refuses where it would have cut the number off in silence.
    """
    if isinstance(value, float) and (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
        lossy = not math.isfinite(value) or (pa.types.is_integer(kind) and not value.is_integer())
        if lossy:
            return str(value)
    if not pa.types.is_timestamp(kind) or value is None:
        return value
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return value
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value * 1_000_000)
    return value


def _needs_care(values: list[Any], kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or (pa.types.is_integer(kind) and not _WHOLE.issuperset(map(type, values))))


def _refused(values: Sequence[Any], name: str, kind: pa.DataType, error: Exception) -> RecordRefused:
    for row, value in enumerate(values):
        try:
            pa.array([value], type=kind)
        except REFUSED as why:
            return RecordRefused(
                f"row {row}: the value of `{name}` is not {_called(kind)}",
                detail=f"{value!r:.200}: {str(why).splitlines()[0]}",
            )
    return RecordRefused(f"the values of `{name}` are not {_called(kind)}", detail=str(error).splitlines()[0])


def _called(kind: pa.DataType) -> str:
    try:
        return ddl_type(kind)
    except SchemaError:
        return str(kind)


def _from_table(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """A table's columns by name; types are changed only where nothing is lost."""
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
        column = table.column(field.name)
        if column.type != field.type:
            column = _cast(column, field)
        columns.append(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())
    arrays = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    return pa.record_batch(arrays, schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(field.type, safe=True)
    except REFUSED as error:
        row = _first_bad(column, field.type)
        detail = f"{column[row].as_py()!r:.200}: " if row is not None else f"it is {column.type}: "
        raise RecordRefused(
            f"{f'row {row}: the value' if row is not None else 'the values'} of `{field.name}` cannot become "
            f"{_called(field.type)}",
            detail=detail + str(error).splitlines()[0],
        ) from None


def _first_bad(column: pa.ChunkedArray, kind: pa.DataType) -> int | None:
    """The first row that cannot be cast; None when the type itself cannot."""

    def casts(rows: int) -> bool:
        try:
            column.slice(0, rows).cast(kind, safe=True)
        except REFUSED:
            return False
        return True

    if not casts(0):
        return None
    low, high = 0, len(column)  # `low` rows can be cast, `high` cannot
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if casts(middle) else (low, middle)
    return low


# ---------------------------------------------------------------- limits


def oversized(batch: pa.RecordBatch, limit: int) -> list[int]:
    """The rows that are larger than the limit, in bytes of their values."""
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
    """Roughly how much memory rows take while they wait."""
    if type(rows) is not dict and isinstance(rows, pa.RecordBatch):
        return int(rows.nbytes)
    size = 64
    for value in rows.values():
        size += len(value) if type(value) is str or type(value) is bytes else 16
    return size


# ---------------------------------------------------------------- schemas


def topic_schema(schema: pa.Schema) -> pa.Schema:
    """A schema as a topic keeps it: types that SQL can name, times in UTC microseconds, no dictionaries."""
    fields = [pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema]
    known = Schema.from_arrow(pa.schema(fields)).to_arrow()
    for field in known:
        if pa.types.is_null(field.type):
            raise SchemaError(f"the type of the column `{field.name}` is not known", hint="say it in a schema")
        ddl_type(field.type)
    return known


def infer(rows: Rows) -> pa.Schema:
    """The schema that the first rows suggest: text that is an ISO 8601 instant everywhere is a time."""
    table = as_table(rows)
    if table is not None:
        return topic_schema(table.schema)
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
                f"no one type fits the column `{name}`", detail=str(error).splitlines()[0], hint="say it in a schema"
            ) from None
        fields.append(pa.field(name, pa.string() if pa.types.is_null(kind) else kind))
    return topic_schema(pa.schema(fields))
