"""Columns of a result that a clause names by their number: GROUP BY 1, ORDER BY 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sqlglot import exp

from millstream.errors import DefinitionError
from millstream.sql.parse.text import Text, plain_value

Column = TypeVar("Column")


def numbered(
    text: Text, node: exp.Expr, columns: Sequence[Column], clause: str, *, part: exp.Expr | None = None
) -> Column | None:
    """The column of the result that a number in a clause refers to; None if the node is not a number. An error shows
    the number, or a `part` of the query around it.
    """
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    number = plain_value(node)
    if not isinstance(number, int) or not 1 <= number <= len(columns):
        raise DefinitionError(
            f"{clause} {node.this}: the result has no column with this number; it has {len(columns)}",
            hint="name the column, or count from 1",
            origin=text.of_node(node if part is None else part),
        )
    return columns[number - 1]
