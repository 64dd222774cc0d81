"""Named columns and sort keys, of which steps consist."""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.errors import DefinitionError
from millstream.model.expression import Expr, expr
from millstream.model.origin import here

Named = tuple[tuple[str, Expr], ...]
"""Named columns, in order."""


@dataclass(frozen=True, eq=False)
class Order:
    """A sort key. By default NULL sorts below every value, as in Spark.

    >>> order = Order.parse("price * 2 desc")
    >>> order.by.spark(), order.descending, order.nulls_first
    ('`price` * 2', True, False)
    """

    by: Expr
    descending: bool = False
    nulls_first: bool = True

    @classmethod
    def parse(cls, text: str | Expr) -> Order:
        """Parse an expression that may be followed by ASC or DESC, and NULLS FIRST or NULLS LAST."""
        if isinstance(text, Expr):
            return cls(text)
        if not isinstance(text, str):
            raise DefinitionError(f"{text!r} is not a sort order", hint='e.g. "price DESC"', origin=here())
        nulls = re.search(r"\s+NULLS\s+(FIRST|LAST)\s*$", text, re.IGNORECASE)
        rest = text[: nulls.start()] if nulls else text
        way = re.search(r"\s+(ASC|DESC)\s*$", rest, re.IGNORECASE)
        descending = way is not None and way[1].upper() == "DESC"
        first = not descending if nulls is None else nulls[1].upper() == "FIRST"
        return cls(expr(rest[: way.start()] if way else rest), descending, first)


def plain_column(expression: Expr) -> str | None:
    """The column that an expression consists of; None if it computes something."""
    names = expression.columns()
    return names[0] if len(names) == 1 and expression.spark() == f"`{names[0]}`" else None
