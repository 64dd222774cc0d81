"""COPY: loads the rows of files into a stored table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.connect.files.columns import inferred
from millstream.connect.files.rows import Form, load
from millstream.errors import DefinitionError, SchemaError, Unsupported
from millstream.live.answer import Answer
from millstream.live.tables.changes import TableEdit, change_summary, held, present
from millstream.live.tables.constraints import assigned_columns, check_required, spelled
from millstream.model.connector_declarations import checked
from millstream.model.connectors import Files
from millstream.model.types.schema import Schema
from millstream.sql.connectors import format_of, local_path
from millstream.sql.parse.statement_values import Copy, CreateTable

if TYPE_CHECKING:
    from millstream.live.deployment import Deployment
    from millstream.live.session import Session

_OPTIONS = {"format": str, "header": bool, "delimiter": str, "delim": str, "sep": str, "null": str, "nullstr": str}
_CSV = ("header", "delimiter", "null")
_SAME = {"delim": "delimiter", "sep": "delimiter", "nullstr": "null"}


def copy(deployment: Deployment, statement: Copy, session: Session, entry: CreateTable, schema: Schema) -> Answer:
    """Load all rows of some files into a table, or none."""
    names = [spelled(schema, c) for c in statement.columns] or list(schema.names)
    if len(set(names)) != len(names):
        raise SchemaError("a column is named twice")
    arrow_schema = schema.to_arrow()
    loaded = load(
        local_path(statement.path, f"COPY {entry.name} FROM {{}}"),
        form_of(statement),
        pa.schema([arrow_schema.field(n) for n in names]),
    )
    rows = assigned_columns(schema, {n: loaded.rows[n] for n in names}, loaded.rows.num_rows)
    check_required(entry, rows, named=loaded.named)
    with held(deployment, entry, "COPY"):
        changes = TableEdit(entry, schema, present(deployment, entry.name, schema))
        changes.insert(rows)
        changes.store(deployment, named=loaded.named)
    session.written.add(entry.name)
    return Answer(message=change_summary({"inserted": rows.num_rows}))


def rows_of(files: Files) -> pa.Table:
    """The rows of FILES(...), with the columns inferred from the first file."""
    schema = inferred(files).to_arrow()
    return load(files.path, Form(files.format, files.header), schema).rows


def form_of(statement: Copy) -> Form:
    """The format of the files of a COPY, from its options."""
    options = checked(statement.options, _OPTIONS, "COPY")
    options = {_SAME.get(n, n): v for n, v in options.items()}
    form = str(
        options.pop("format", "")
        or format_of(statement.path, "COPY", f"COPY {statement.table} FROM 'folder' (FORMAT json)")
    ).lower()
    if form not in ("csv", "json", "parquet"):
        raise Unsupported(f"COPY from files of the format {form[:30]}", hint="formats are csv, json and parquet")
    for name in _CSV:
        if form != "csv" and name in options:
            raise DefinitionError(f"{name.upper()} is an option of csv, not of {form}")
    delimiter = str(options.get("delimiter", ","))
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise DefinitionError("DELIMITER is one character, and no quote")
    return Form(form, bool(options.get("header", True)), delimiter, str(options.get("null", "")))
