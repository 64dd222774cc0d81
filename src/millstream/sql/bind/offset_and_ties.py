"""OFFSET, and FETCH FIRST n ROWS WITH TIES: a range of rows in an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import DefinitionError, Unsupported
from millstream.model.expression import col
from millstream.model.steps.columns import Order
from millstream.model.steps.relations.window_function import WindowFunction
from millstream.model.streams.stream import Stream
from millstream.sql.parse.text import plain_value
from millstream.sql.relations.relation import HIDDEN

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query


@dataclass(frozen=True)
class RowBounds:
    """Which rows of an order are kept."""

    most: int | None
    """The maximum number of rows; None means all rows after the offset."""
    offset: int = 0
    ties: bool = False
    """Whether rows that tie with the last one are kept too."""


def bounds_of(query: _Query, limit: exp.Expr | None, offset: exp.Expr | None) -> RowBounds:
    """The bounds of LIMIT or FETCH, and OFFSET."""
    count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression if limit is not None else None
    most = (
        None
        if limit is None
        else 1
        if count is None
        else _whole(query, count, "FETCH" if isinstance(limit, exp.Fetch) else "LIMIT")
    )
    options = limit.args.get("limit_options") if limit is not None else None
    if options is not None and options.args.get("percent"):
        raise Unsupported(
            "LIMIT with PERCENT is not supported in a view",
            hint="number the rows: QUALIFY percent_rank() OVER (ORDER BY ...) < 0.1",
            origin=query.text.of_node(limit),
        )
    first = 0 if offset is None else _whole(query, offset.expression, "OFFSET")
    return RowBounds(most, first, bool(options is not None and options.args.get("with_ties")))


def between(stream: Stream, keys: Sequence[str], order: list[Order], bounds: RowBounds) -> Stream:
    """The rows of a stream (per key) in an order, within bounds that `top` alone cannot express."""
    number, place = f"{HIDDEN}number", f"{HIDDEN}place"
    functions = {number: WindowFunction("row_number"), **({place: WindowFunction("rank")} if bounds.ties else {})}
    names = stream.schema.names
    numbered = stream._windowed(tuple((n, col(n)) for n in keys), order, functions)
    if bounds.offset:
        numbered = numbered.where(col(number) > bounds.offset)
    if bounds.most is not None:
        numbered = numbered.where(col(place if bounds.ties else number) <= bounds.offset + bounds.most)
    return numbered.select(**{n: col(n) for n in names})


def _whole(query: _Query, node: exp.Expr, what: str) -> int:
    try:
        number = plain_value(node)
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise DefinitionError(
            f"{what} needs a whole number", hint=f"write the number itself: {what} 10", origin=query.text.of_node(node)
        )
    return number
