"""Early checks: reports errors that Spark would find only when a flow starts, with their position in the text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

import pyarrow as pa
from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError, Unsupported
from millstream.model.types.schema import ddl_type
from millstream.sql.parse.text import Text

_RANKS = (
    exp.RowNumber,
    exp.Rank,
    exp.DenseRank,
    exp.PercentRank,
    exp.CumeDist,
    exp.Ntile,
    exp.Lag,
    exp.Lead,
    exp.NthValue,
)
_NO_TYPES = {
    exp.DataType.Type.JSONB: "JSON is a STRING, and get_json_object(text, '$.path') reads it",
    exp.DataType.Type.INET: "addresses are a STRING",
    exp.DataType.Type.OBJECT: "named_struct('a', a) makes a STRUCT",
}
"""Types of other databases, and what to use instead."""
_JSON_OPERATORS = (exp.JSONBContainsTopKey, exp.JSONBContainsAllTopKeys, exp.JSONBContainsAnyTopKeys)
_ARGUMENTS: dict[type[exp.Expr], tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    exp.Length: ("length(text)", (), ("binary", "encoding")),
    exp.Substring: ("substring(text, start [, length])", ("start",), ("zero_start",)),
    exp.If: ("if(condition, value, other)", ("false",), ()),
    exp.Round: ("round(number [, digits])", (), ("truncate",)),
}
"""Functions with an argument that Spark requires and the parser does not, or the other way round: the syntax of each,
its required arguments, and its invalid arguments.
"""
_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})")


def check(text: Text, tree: exp.Expr) -> None:
    """Reject an expression that cannot be computed for any row."""
    for node in tree.walk():
        if isinstance(node, _RANKS):
            name = node.sql_name().lower()
            raise SchemaError(
                f"{name}() needs OVER (...)",
                hint=f"{name}(...) OVER (PARTITION BY a ORDER BY b)",
                origin=text.of_node(node) or text.of_node(tree),
            )
        if isinstance(node, exp.In) and not any(node.args.get(a) for a in ("expressions", "query", "unnest", "field")):
            raise DefinitionError(
                "IN (...) has no values",
                hint="write the values, or false for a condition that no row satisfies",
                origin=text.of_node(node),
            )
        if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            _check_time(text, node)
        if isinstance(node, exp.Cast) and node.to.this in _NO_TYPES:
            raise Unsupported(
                f"there is no type {node.to.this.value}",
                hint=f"leave the cast out: {_NO_TYPES[node.to.this]}",
                origin=text.of_node(node),
            )
        if isinstance(node, exp.Is) and not isinstance(node.expression.unnest(), exp.Null | exp.Boolean):
            raise DefinitionError(
                f"IS compares with NULL, TRUE or FALSE, not with `{node.expression.sql(dialect='spark')[:60]}`",
                hint="write =, or IS NOT DISTINCT FROM where NULL equals NULL",
                origin=text.of_node(node),
            )
        if isinstance(node, _JSON_OPERATORS):
            raise Unsupported(
                "the operators ?, ?| and ?& are not supported",
                hint="get_json_object(text, '$.key') IS NOT NULL, or map_contains_key(map, 'key')",
                origin=text.of_node(node),
            )
        _check_arguments(text, node)


def _check_arguments(text: Text, node: exp.Expr) -> None:
    """Reject a call with too many or too few arguments."""
    form, needed, refused = _ARGUMENTS.get(type(node), ("", (), ()))
    if not form or isinstance(node.parent, exp.Case):
        return
    missing = any(node.args.get(name) is None for name in needed)
    if missing or any(isinstance(node.args.get(name), exp.Expr) for name in refused):
        raise SchemaError(
            f"{form.partition('(')[0]}(...) has too {'few' if missing else 'many'} values",
            hint=f"write {form}",
            origin=text.of_node(node),
        )


def _check_time(text: Text, cast: exp.Cast) -> None:
    value = cast.this.unnest()
    if (
        not isinstance(value, exp.Literal)
        or not value.is_string
        or not cast.is_type("date", "timestamp", "timestamptz")
    ):
        return
    literal, day = value.name.strip(), _DAY.match(value.name.strip())
    try:
        wrong = not any(c.isdigit() for c in literal)
        if day is not None:
            date(*map(int, day.groups()))
    except ValueError:
        wrong = True
    if wrong:
        raise DefinitionError(
            f"'{value.name[:60]}' is not a {'date' if cast.is_type('date') else 'time'}",
            hint="write it like '2026-01-31' or '2026-01-31 12:00:00'",
            origin=text.of_node(cast),
        )


def check_fields(text: Text, column: exp.Expr, name: str, kind: pa.DataType | None, fields: Sequence[str]) -> None:
    """Reject a field that a STRUCT does not have, if its type is known."""
    for field in fields:
        if kind is None or not pa.types.is_struct(kind):
            return
        names = [kind.field(i).name for i in range(kind.num_fields)]
        field_name = next((n for n in names if n.lower() == field.lower()), None)
        if field_name is None:
            raise SchemaError(
                f"the column `{name}` has no field `{field}`",
                detail="there are: " + ", ".join(names),
                hint="name one of its fields",
                origin=text.of_node(column),
            )
        name, kind = f"{name}.{field_name}", kind.field(field_name).type


def check_elements(text: Text, node: exp.Bracket, name: str, kind: pa.DataType | None) -> None:
    """Reject ``price[0]`` for a column without elements, if its type is known."""
    if kind is None or pa.types.is_nested(kind):
        return
    raise SchemaError(
        f"the column `{name}` is {ddl_type(kind)}, and has no elements",
        hint="substring(text, 1, 1) is a character of a string",
        origin=text.of_node(node),
    )
