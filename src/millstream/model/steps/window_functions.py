"""The window functions of the public API: ``ms.lag("price")``, ``ms.row_number()``."""

from __future__ import annotations

from typing import Any

from millstream.errors import DefinitionError
from millstream.model.aggregates.aggregate import Aggregate
from millstream.model.connectors import check_name
from millstream.model.expression import Expr, expr
from millstream.model.origin import here
from millstream.model.steps.relations.window_function import WindowFunction
from millstream.model.types.duration import Duration
from millstream.model.windows.trigger import MOST_RECORDS, whole_and_positive

Frame = tuple[str, float | None, float | None]

_AGGREGATES = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "min": "min",
    "max": "max",
    "first": "first_value",
    "last": "last_value",
}


def row_number() -> WindowFunction:
    """The row number within its key, from 1."""
    return WindowFunction("row_number")


def rank() -> WindowFunction:
    """One more than the number of preceding rows; rows that are equal in the order have the same rank."""
    return WindowFunction("rank")


def dense_rank() -> WindowFunction:
    """One more than the number of distinct preceding positions in the order."""
    return WindowFunction("dense_rank")


def percent_rank() -> WindowFunction:
    """The fraction of the other rows that precede it."""
    return WindowFunction("percent_rank")


def cume_dist() -> WindowFunction:
    """The fraction of the rows that precede it or are equal to it in the order."""
    return WindowFunction("cume_dist")


def ntile(parts: int) -> WindowFunction:
    """The number, from 1, of the bucket that contains the row, out of `parts` buckets of equal size."""
    if not whole_and_positive(parts):
        raise DefinitionError(f"ntile({parts!r:.40}) is not a number of parts", origin=here())
    return WindowFunction("ntile", offset=parts)


def lag(x: str | Expr, n: int = 1, default: Any = None) -> WindowFunction:
    """The value of the row `n` rows before, or `default` if there is none."""
    return WindowFunction("lag", expr(x), _whole("lag", n), default)


def lead(x: str | Expr, n: int = 1, default: Any = None) -> WindowFunction:
    """The value of the row `n` rows after, or `default` if there is none."""
    return WindowFunction("lead", expr(x), _whole("lead", n), default)


def function_of(name: str, function: object, frame: Frame | None) -> WindowFunction:
    """A window function, from any of the accepted argument types."""
    check_name(name, "column")
    if isinstance(function, WindowFunction):
        return function
    if not isinstance(function, Aggregate) or str(function.kind) not in _AGGREGATES:
        raise DefinitionError(
            f"{name}={function!r} is not a window function",
            hint="e.g. ms.row_number(), ms.lag(...), ms.sum(...)",
            origin=here(),
        )
    return WindowFunction(_AGGREGATES[str(function.kind)], function.argument, frame=frame)


def frame_of(
    rows: tuple[int | None, int | None] | None, spread: tuple[str | float | None, str | float | None] | None
) -> Frame | None:
    """How far before and after a row the frame of an aggregate extends."""
    if rows is not None and spread is not None:
        raise DefinitionError("over takes `rows` or `spread`, not both", origin=here())
    frames: dict[str, object] = {"rows": rows, "spread": spread}
    for name, ends in frames.items():
        if ends is not None and not (isinstance(ends, tuple | list) and len(ends) == 2):
            raise DefinitionError(
                f"`{name}` of over is a frame, and {ends!r:.60} is none",
                hint=f"a pair like {name}=(9, 0); a column gets this name afterwards, with select",
                origin=here(),
            )
    if rows is not None:
        return ("rows", *rows)
    if spread is None:
        return None
    before, behind = (float(Duration.of(s).micros) if isinstance(s, str) else s for s in spread)
    return ("range", before, behind)


def _whole(name: str, n: int) -> int:
    if type(n) is not int or not 0 <= n <= MOST_RECORDS:
        raise DefinitionError(f"{name}(..., {n!r:.40}) is not a number of rows", origin=here())
    return n
