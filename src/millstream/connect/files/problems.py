"""Finds what is wrong with a file, as far as possible without reading its rows, or by reading all of it."""

from __future__ import annotations

import csv
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.connect.text_lines import lines_of
from millstream.errors import SourceMissing
from millstream.model.types.schema import Schema
from millstream.model.types.values import readable

_HEADER_BYTES = 100_000


def gone(path: str) -> SourceMissing:
    """Return the error for a file that no longer exists."""
    return SourceMissing(
        f"a file to be read is missing: {path}",
        hint="put it back: files of a source must stay until they are read",
    )


def parquet_problem(path: str, schema: Schema) -> str | None:
    """Check the metadata of a Parquet file: why it is damaged, or which types cannot be converted."""
    try:
        actual = pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"it is not a Parquet file: {_first_line(error)}"
    for field in schema:
        index = actual.get_field_index(field.name)
        if index >= 0 and not _fits(actual.field(index).type, field.type):
            return f"its column `{field.name}` is {actual.field(index).type}, but the source declares {field.type}"
    return None


def parquet_damage(path: str) -> str | None:
    """Return why a Parquet file cannot be read to its end."""
    try:
        with pq.ParquetFile(path) as file:
            for _ in file.iter_batches():
                pass
    except FileNotFoundError:
        raise gone(path) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"it is damaged: {_first_line(error)}"
    return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def header_problem(path: str, schema: Schema) -> str | None:
    """Check the header of a CSV file, which lists its columns in order."""
    try:
        data = next((line for line in lines_of(path) if line.strip()), None)
    except (OSError, EOFError, zlib.error) as error:
        return f"it cannot be read: {_first_line(error)}"
    if data is None:
        return None
    try:
        names = next(csv.reader([readable(data[:_HEADER_BYTES])]), [])
    except csv.Error:
        names = []
    if names == list(schema.names):
        return None
    text = ", ".join(names)[:300]
    return f"its header does not name the columns of the source: it has {text}; the source {', '.join(schema.names)}"


def _fits(actual: pa.DataType, declared: pa.DataType | None) -> bool:
    if declared is None or actual == declared:
        return True
    groups = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        lambda t: (
            pa.types.is_string(t)
            or pa.types.is_large_string(t)
            or pa.types.is_string_view(t)
            or pa.types.is_dictionary(t)
        ),
        pa.types.is_timestamp,
        pa.types.is_nested,
        lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t),
    )
    if pa.types.is_duration(declared):  # other systems write it as a number of microseconds
        return bool(pa.types.is_int64(actual))
    same = any(g(actual) and g(declared) for g in groups)
    if same and pa.types.is_integer(actual):
        return bool(actual.bit_width <= declared.bit_width)
    return same
