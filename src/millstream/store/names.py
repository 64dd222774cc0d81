"""Names inside the store: types and tables as DuckDB writes them. `duckdb.py` builds its statements from these."""

from __future__ import annotations

import pyarrow as pa

from millstream.errors import QueryError
from millstream.model.schema import TIMESTAMP
from millstream.store.port import ViewSpec

_SIMPLE = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMPTZ",
}


def quoted(identifier: str) -> str:
    """A name as it stands in a statement, whatever is in it.

    >>> quoted('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + identifier.replace('"', '""') + '"'


def stored_name(view: ViewSpec) -> str:
    """The table that keeps the rows of a view: one beside it when the view hides columns."""
    return view.name if tuple(view.schema.names) == view.columns else view.name + "$rows"


def sql_type(kind: pa.DataType) -> str:
    """DuckDB's name of an Arrow type.

    >>> sql_type(pa.list_(pa.struct([("a b", pa.int64())])))
    'STRUCT("a b" BIGINT)[]'
    """
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return sql_type(kind.value_type) + "[]"
    if pa.types.is_struct(kind):
        return "STRUCT(" + ", ".join(f"{quoted(f.name)} {sql_type(f.type)}" for f in kind) + ")"
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ" if kind.tz else "TIMESTAMP"
    raise QueryError(f"the store cannot keep a column of type {kind}")
