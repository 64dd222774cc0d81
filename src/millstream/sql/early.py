"""Mistakes that Spark would find only when a flow starts, found when the view is defined: with their place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

import pyarrow as pa
from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError
from millstream.model.schema import ddl_type
from millstream.sql.text import Text

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
_DAY = re.compile(r"(\d{4})-(\d{2})-(\d{2})")


def check(text: Text, tree: exp.Expr) -> None:
    """Refuse an expression that cannot be computed for any row."""
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
                hint="write the values, or false for a condition that no row meets",
                origin=text.of_node(node),
            )
        if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
            _check_time(text, node)


def _check_time(text: Text, cast: exp.Cast) -> None:
    value = cast.this.unnest()
    if (
        not isinstance(value, exp.Literal)
        or not value.is_string
        or not cast.is_type("date", "timestamp", "timestamptz")
    ):
        return
    said, day = value.name.strip(), _DAY.match(value.name.strip())
    try:
        wrong = not any(c.isdigit() for c in said)
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
    """Refuse a field that a STRUCT does not have, where its type is known."""
    for field in fields:
        if kind is None or not pa.types.is_struct(kind):
            return
        names = [kind.field(i).name for i in range(kind.num_fields)]
        found = next((n for n in names if n.lower() == field.lower()), None)
        if found is None:
            raise SchemaError(
                f"the column `{name}` has no field `{field}`",
                detail="there are: " + ", ".join(names),
                hint="name one of its fields",
                origin=text.of_node(column),
            )
        name, kind = f"{name}.{found}", kind.field(found).type


def check_elements(text: Text, node: exp.Bracket, name: str, kind: pa.DataType | None) -> None:
    """Refuse ``price[0]`` of a column that has no elements, where its type is known."""
    if kind is None or pa.types.is_nested(kind):
        return
    raise SchemaError(
        f"the column `{name}` is {ddl_type(kind)}, and has no elements",
        hint="substring(text, 1, 1) is a character of a text",
        origin=text.of_node(node),
    )
