"""The constraints of stored tables: PRIMARY KEY and NOT NULL.

A statement is checked for the rows that it writes. A table of an older home may hold rows that share a key (earlier
versions did not check all kinds of writes): they remain readable, and UPDATE and DELETE can correct them. A row that is
written must have a unique key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import MillstreamError, RecordRefused, SchemaError, Unsupported
from millstream.live.definitions import Definitions
from millstream.model.types.assignment import Unfit, assigned_table
from millstream.model.types.schema import Schema, ddl_type
from millstream.model.types.values import python_values
from millstream.result import shown
from millstream.runtime.recovery.catalog_file import FILE
from millstream.sql.catalog import Catalog, schema_of
from millstream.sql.parse import statement_parser
from millstream.sql.parse.script import split
from millstream.sql.parse.statement_values import CreateTable
from millstream.sql.parse.text import Text
from millstream.store.names import quoted

if TYPE_CHECKING:
    from millstream.runtime.open_home import OpenHome

WHICH = "$written"
"""The column with the number of a written row, counted from 1, next to the keys of all rows."""


Named = Callable[[int], str]
"""The origin of a row, by its number from 1."""


def by_number(number: int) -> str:
    """A row of VALUES or of a query."""
    return f"row {number}"


def key_of(entry: CreateTable, schema: Schema) -> list[str]:
    """The columns of a table's key, as spelled in its schema."""
    return [spelled(schema, k) for k in entry.key]


def spelled(schema: Schema, name: str) -> str:
    """A column as the schema spells it."""
    column = next((n for n in schema.names if n.lower() == name.lower()), None)
    if column is None:
        raise schema.unknown(name)
    return column


def check_keyable(schema: Schema, key: Sequence[str]) -> None:
    """Refuse a key whose values cannot be compared."""
    for name in key:
        kind = schema.to_arrow().field(spelled(schema, name)).type
        if pa.types.is_nested(kind):
            raise Unsupported(
                f"`{name}` cannot be in the PRIMARY KEY: it is {ddl_type(kind)}",
                hint="key columns must be scalar: a number, string, date or timestamp",
            )


def check_required(entry: CreateTable, rows: pa.Table, *, named: Named | None = by_number) -> None:
    """Refuse NULL in NOT NULL columns and in the key. `named` returns the origin of a row."""
    key = {k.lower() for k in entry.key}
    for column in entry.columns:
        name, is_key = column.name, column.name.lower() in key
        if not (column.required or is_key) or name not in rows.column_names or not rows[name].null_count:
            continue
        row = pc.index(pc.is_null(rows[name]), True).as_py() + 1
        problem = f"NULL in the key `{name}` of `{entry.name}`"
        if not is_key:
            problem = f"NULL in `{name}` of `{entry.name}`, which is NOT NULL"
        raise RecordRefused(
            f"{named(row)}: {problem}" if named is not None else problem,
            hint="supply a value, for example coalesce(value, default)",
        )


def check_unique(
    home: OpenHome,
    entry: CreateTable,
    rows: pa.Table,
    written: np.ndarray,
    *,
    named: Named | None = by_number,
    hint: str = "INSERT ... ON CONFLICT DO UPDATE | DO NOTHING, or UPDATE or DELETE the existing row",
) -> None:
    """Refuse a written row whose key another row has. `rows` are all rows of the resulting table, and `written` is the
    number of each row that the statement writes, and 0 for others.
    """
    key = [next(n for n in rows.column_names if n.lower() == k.lower()) for k in entry.key]
    if not key or not written.any():
        return
    columns = {f"$k{i}": rows[k] for i, k in enumerate(key)}
    keys = pa.table({**columns, WHICH: pa.array(written)})
    by = ", ".join(quoted(n) for n in columns)
    doubled = home.store.query(
        f'SELECT {by}, list({quoted(WHICH)} ORDER BY {quoted(WHICH)}) AS "$rows" FROM "$keys" GROUP BY {by} '
        f"HAVING count(*) > 1 AND max({quoted(WHICH)}) > 0 ORDER BY max({quoted(WHICH)}) LIMIT 1",
        {"$keys": keys},
    )
    if not doubled.num_rows:
        return
    key_text = values_text({k: python_values(doubled[n])[0] for k, n in zip(key, columns, strict=True)})
    numbers = doubled["$rows"][0].as_py()
    mine = [n for n in numbers if n]
    before, number = mine[:2] if len(mine) == len(numbers) else (0, mine[0])
    where = f"{named(number)}: " if named is not None else ""
    raise RecordRefused(
        f"{where}`{entry.name}` would have two rows with {key_text}",
        detail=f"{named(before)} has the same key" if before and named is not None else None,
        hint=hint,
    )


def values_text(values: dict[str, Any]) -> str:
    """Format columns and their values for a message."""
    return ", ".join(f"{k} = {shown(v)}" for k, v in values.items())[:200]


def constrained(home: OpenHome, catalog: Catalog | None, name: str, data: pa.Table) -> tuple[str, pa.Table]:
    """Return the name and the rows that will replace those of a stored table, converted to its SQL definition;
    unchanged where there is no such definition. `catalog` is None when no session has been opened yet.
    """
    defined = _definition(home, catalog, name)
    if defined is None:
        return name, data
    entry, schema = defined
    strange = next((c for c in data.column_names if c.lower() not in {n.lower() for n in schema.names}), None)
    if strange is not None:
        raise schema.unknown(strange)
    columns = {spelled(schema, n): data.column(i) for i, n in enumerate(data.column_names)}
    if len(columns) < data.num_columns:
        raise SchemaError("a column appears twice")
    rows = assigned_columns(schema, columns, data.num_rows)
    check_required(entry, rows)
    check_unique(home, entry, rows, np.arange(1, rows.num_rows + 1), hint="keep one row of each key")
    return entry.name, rows


def _definition(home: OpenHome, catalog: Catalog | None, name: str) -> tuple[CreateTable, Schema] | None:
    """The SQL definition of a table; read from disk when no session has been opened yet."""
    if catalog is None:
        path = home.path / FILE
        kept = Definitions.read(path).entries.get(name.lower()) if path.exists() else None
        if kept is None or kept.kind != "table":
            return None
        try:
            (piece,) = split(Text(kept.sql, f"definition of {name}"))
            statement, catalog = statement_parser.statement(piece, kept=True), Catalog()
        except MillstreamError:  # one that no longer works; nothing can be checked
            return None
    else:
        statement = catalog.get(name)  # type: ignore[assignment]
    if not isinstance(statement, CreateTable):
        return None
    schema = schema_of(catalog, statement)
    return None if schema is None else (statement, schema)


def assigned_columns(schema: Schema, columns: dict[str, Any], rows: int) -> pa.Table:
    """Convert columns to the types of a target, without loss; missing ones are NULL."""
    return assigned_table(schema.to_arrow(), columns, rows, lambda unfit, field: refused(unfit, field.name, field.type))


def refused(unfit: Unfit, column: str, kind: pa.DataType) -> RecordRefused:
    """Return the error for a value that a column cannot hold; rows count from 1, as those of VALUES do."""
    if unfit.row is None:
        return RecordRefused(f"the values of `{column}` cannot become {ddl_type(kind)}", detail=unfit.why)
    value = repr(unfit.value) if isinstance(unfit.value, str) else shown(unfit.value)
    return RecordRefused(
        f"row {unfit.row + 1}: the value of `{column}` cannot become {ddl_type(kind)}",
        detail=f"{value[:200]}: {unfit.why}",
        hint="CAST or round it explicitly if that is what you want",
    )
