"""What is wrong with a file, as far as it can be known without reading its rows, or by reading all of it."""

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
    """The error for a file that is no longer there."""
    return SourceMissing(
        f"a file that was to be read is gone: {path}",
        hint="put it back: files of a source must stay until they are read",
    )


def parquet_problem(path: str, schema: Schema) -> str | None:
    """A Parquet file says what it holds: why it is a broken one, or one whose types cannot become ours."""
    try:
        found = pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"it is not a Parquet file: {_first_line(error)}"
    for field in schema:
        index = found.get_field_index(field.name)
        if index >= 0 and not _fits(found.field(index).type, field.type):
            return f"its column `{field.name}` is {found.field(index).type}, but the source says {field.type}"
    return None


def parquet_damage(path: str) -> str | None:
    """Why a Parquet file cannot be read to its end."""
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
    """A CSV file with a header says which columns it has, in order."""
    try:
        data = next((line for line in lines_of(path) if line.strip()), None)
    except (OSError, EOFError, zlib.error) as error:
        return f"it cannot be read: {_first_line(error)}"
    if data is None:
        return None
    try:
        found = next(csv.reader([readable(data[:_HEADER_BYTES])]), [])
    except csv.Error:
        found = []
    if found == list(schema.names):
        return None
    shown = ", ".join(found)[:300]
    return f"its header does not name the columns of the source: it has {shown}; the source {', '.join(schema.names)}"


def _fits(found: pa.DataType, wanted: pa.DataType | None) -> bool:
    if wanted is None or found == wanted:
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
    if pa.types.is_duration(wanted):  # as other systems write it, a number of microseconds
        return bool(pa.types.is_int64(found))
    same = any(g(found) and g(wanted) for g in groups)
    if same and pa.types.is_integer(found):
        return bool(found.bit_width <= wanted.bit_width)
    return same
