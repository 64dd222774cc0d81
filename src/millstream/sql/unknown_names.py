"""Errors for unknown names: what was probably meant, and which names exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

import pyarrow as pa
from sqlglot import exp

from millstream.errors import SchemaError
from millstream.model.reserved import OF as HIDDEN
from millstream.model.types.schema import ddl_type
from millstream.model.types.unknown_column import similar_column, unknown_column
from millstream.sql.parse.text import Text

_NO_TIME = "current_timestamp: there is no type TIME; date_format(ts, 'HH:mm:ss') is the time of day as text"
_CLOCKS = {
    "rownum": "ORDER BY ... LIMIT n, or row_number() OVER (ORDER BY ...)",
    "sysdate": "the event time",
    "current_time": _NO_TIME,
    "localtime": _NO_TIME,
}
"""Pseudo-columns of other databases."""


def column(
    text: Text, node: exp.Expr, name: str, known: Sequence[str], *, of: str = "", select: exp.Select | None = None
) -> SchemaError:
    """The error for an unknown column, in the relation `of` or in all of them."""
    names = [n for n in known if not n.startswith(HIDDEN)]
    actual = similar_column(name, names)
    hint = f"did you mean `{actual}`?" if actual else f"a string is written in single quotes: '{name}'"
    if of and not actual:
        hint = f"name one of the columns of `{of}`"
    answer = _alias(select, name)
    if answer is not None:
        hint = f"`{name}` is a column of the result: write its expression `{answer}` here, or filter in an outer query"
    elif name.lower() in _CLOCKS:
        hint = f"write {_CLOCKS[name.lower()]}"
    elif not names:
        hint = "add FROM: SELECT column FROM source"
    error = unknown_column(name, names, of=of, hint=hint, origin=text.of_node(node))
    if not names:
        error.detail = "the query has no FROM"
    return error


def _alias(select: exp.Select | None, name: str) -> str | None:
    """The expression of the output column with this name, if there is one."""
    for item in () if select is None else select.expressions:
        if isinstance(item, exp.Alias) and item.alias.lower() == name.lower():
            return str(item.this.sql(dialect="spark"))[:60]
    return None


def relation(text: Text, node: exp.Expr, parts: Sequence[str], aliases: Iterable[str]) -> SchemaError:
    """The error for a qualifier that is neither a relation nor a column."""
    there = [a for a in aliases if not a.startswith(HIDDEN)]
    close = difflib.get_close_matches(parts[0].lower(), there, n=1)
    best = close[0] if close else there[0] if len(there) == 1 else None
    return SchemaError(
        f"there is no relation `{parts[0]}` here",
        detail="there are: " + ", ".join(there) if there else "the query has no FROM",
        hint=f"did you mean `{best}.{parts[1]}`?" if best else "name a relation of FROM, or its alias, before the dot",
        origin=text.of_node(node),
    )


def field(text: Text, node: exp.Expr, parts: Sequence[str], kind: pa.DataType | None) -> SchemaError:
    """The error for a dot after a column that has no fields."""
    type_text = "" if kind is None else f": it is {ddl_type(kind)}"
    return SchemaError(
        f"the column `{parts[0]}` has no field `{parts[1]}`{type_text}",
        hint=f"for JSON in a string: get_json_object({parts[0]}, '$.{parts[1]}')",
        origin=text.of_node(node),
    )
