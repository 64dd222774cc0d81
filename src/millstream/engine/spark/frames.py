"""Converts Arrow tables to Spark DataFrames and back, including empty tables and slices of tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from millstream.errors import Unsupported

_MONTHS = (YearMonthIntervalType, CalendarIntervalType)


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The rows of a table as a DataFrame."""
    local = any(_is_local(t) for t in table.schema.types)
    kinds = from_arrow_schema(table.schema, prefer_timestamp_ntz=True) if local else None  # else they would be moments
    return spark.createDataFrame(plain_chunks(table), kinds)


def collected(frame: DataFrame) -> pa.Table:
    """All rows of a DataFrame. Arrow refuses a NULL struct whose type has a field that is never NULL, as in
    ``CASE WHEN a THEN struct(1 AS one) END``: the fields of a type may be NULL here.
    """
    fields = frame.schema.fields
    kinds = [_nullable(field.dataType) for field in fields]
    if kinds != [field.dataType for field in fields]:
        numbered = frame.toDF(*(str(i) for i in range(len(fields))))  # two columns may have one name
        columns = (F.col(str(i)).cast(kind).alias(fields[i].name) for i, kind in enumerate(kinds))
        return numbered.select(*columns).toArrow()
    return frame.toArrow()


def _nullable(kind: DataType) -> DataType:
    """A type with all its nested fields and elements nullable."""
    if isinstance(kind, StructType):
        fields = [StructField(f.name, _nullable(f.dataType), nullable=True, metadata=f.metadata) for f in kind.fields]
        return StructType(fields)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), containsNull=True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType), valueContainsNull=True)
    return kind


def arrow_schema(frame: DataFrame, column_sql: Mapping[str, str]) -> pa.Schema:
    """The columns of a DataFrame as Arrow types. Refuses types that no column can have. `column_sql` is the SQL of the
    columns.
    """
    for field in frame.schema.fields:
        found = next((t for t in _types(field.dataType) if isinstance(t, _MONTHS)), None)
        if found is not None:
            shown = re.sub(r"`([A-Za-z_]\w*)`", r"\1", column_sql.get(field.name, field.name))
            raise Unsupported(
                f"`{shown}` is an interval of years or months, which cannot be a column",
                detail="its length depends on the calendar; columns have intervals of days to seconds",
                hint="keep a number of months, and add it with add_months(day, months); or subtract two times",
            )
    return to_arrow_schema(frame.schema, timezone="UTC")


def _types(kind: DataType) -> Iterator[DataType]:
    """A type and its nested types."""
    yield kind
    inner = [f.dataType for f in kind.fields] if isinstance(kind, StructType) else []
    inner += [kind.elementType] if isinstance(kind, ArrayType) else []
    inner += [kind.keyType, kind.valueType] if isinstance(kind, MapType) else []
    for each in inner:
        yield from _types(each)


def _is_local(kind: pa.DataType) -> bool:
    """Whether a type contains local times (without a time zone)."""
    if pa.types.is_timestamp(kind):
        return kind.tz is None
    return any(_is_local(kind.field(i).type) for i in range(kind.num_fields))


def plain_chunks(table: pa.Table) -> pa.Table:
    """The same rows in chunks that Spark accepts. It does not accept a nested column without any chunk, as in an empty
    table, or one with a chunk that is a slice of another.
    """
    if not any(pa.types.is_nested(t) for t in table.schema.types):
        return table
    if not table.num_rows:
        return pa.Table.from_batches([pa.RecordBatch.from_pylist([], schema=table.schema)])
    if any(chunk.offset for column in table.columns for chunk in column.iterchunks()):
        return table.take(pa.array(np.arange(table.num_rows)))
    return table
