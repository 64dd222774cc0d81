"""Names in the store: types and tables in DuckDB's syntax. `duckdb.py` builds its statements from these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from millstream.errors import QueryError
from millstream.model.types.scalars import STORED
from millstream.store.port import ViewSpec


class Columns(list[str]):
    """The columns of a table in order."""

    types: tuple[str, ...] = ()
    """Their types in the store."""

    @classmethod
    def of(cls, names: Sequence[str], types: Sequence[str]) -> Columns:
        """Build from columns with their types."""
        columns = cls(names)
        columns.types = tuple(types)
        return columns


def quoted(identifier: str) -> str:
    """Quote a name for a statement, whatever it contains.

    >>> quoted('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + identifier.replace('"', '""') + '"'


def stored_name(view: ViewSpec) -> str:
    """The table that stores the rows of a view: a separate one when the view has hidden columns."""
    return view.name if tuple(view.schema.names) == view.columns else view.name + "$rows"


def sql_type(kind: pa.DataType) -> str:
    """The DuckDB type of an Arrow type.

    >>> sql_type(pa.list_(pa.struct([("a b", pa.int64())])))
    'STRUCT("a b" BIGINT)[]'
    """
    if kind in STORED:
        return STORED[kind]
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


def declared(columns: Iterable[pa.Field]) -> str:
    """Format columns for CREATE TABLE."""
    return ", ".join(f"{quoted(f.name)} {sql_type(f.type)}" for f in columns)
