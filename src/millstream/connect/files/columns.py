"""Infers the columns of files from the first one."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from millstream.errors import SourceMissing, SourceUnreadable
from millstream.log.log import Log
from millstream.model.connector import Connector
from millstream.model.connectors import Files
from millstream.model.types.schema import TIMESTAMP, Schema

_SAMPLE = 1 << 20
"""Bytes of a file that are read to infer its columns."""


def columns_of(connector: Connector, log: Log | None) -> Schema:
    """Infer the columns of a file source that declares none."""
    del log
    assert isinstance(connector, Files)
    return inferred(connector)


def inferred(files: Files) -> Schema:
    """Infer the columns of a directory of files from the first one."""
    path = Path(files.path)
    files_found = sorted(glob.glob(files.path)) if glob.has_magic(files.path) else [str(path)]
    if path.is_dir():
        files_found = sorted(str(p) for p in path.iterdir() if p.is_file() and not p.name.startswith((".", "_")))
    first = next((f for f in files_found if os.path.isfile(f) and os.path.getsize(f)), None)
    if first is None:
        raise SourceMissing(
            f"there is no file in {files.path} yet to find the columns in",
            hint="declare them: CREATE SOURCE name (column TYPE, ...) FROM FILES(...)",
        )
    try:
        if files.format == "parquet":
            schema = pa.parquet.read_schema(first)
        else:
            with open(first, "rb") as file:
                data = file.read(_SAMPLE)
            whole = data if len(data) < _SAMPLE else data[: data.rfind(b"\n") + 1]
            reader = pa.BufferReader(whole)
            if files.format == "json":
                schema = pa.json.read_json(reader).schema
            else:
                schema = pa.csv.read_csv(reader, read_options=pa.csv.ReadOptions(
                    autogenerate_column_names=not files.header)).schema  # fmt: skip
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceUnreadable(f"{first} cannot be read as {files.format}", detail=str(error).splitlines()[0]) from None
    return Schema.from_arrow(pa.schema([pa.field(f.name, _known(f.type)) for f in schema]))


def _known(kind: pa.DataType) -> pa.DataType:
    """Convert an inferred type to one that a schema can have."""
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_null(kind) or pa.types.is_time(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_unsigned_integer(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(_known(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _known(f.type)) for f in kind])
    return kind
