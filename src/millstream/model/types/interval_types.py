"""Type inference for intervals, which sqlglot's own rules lack: the difference of two times is an interval, and so is
an interval times a number.

The parser sees `INTERVAL` for INTERVAL DAY TO SECOND. An expression with a literal of months or years has no known
type.
"""

from __future__ import annotations

import functools
from typing import Any

from sqlglot import Dialect, exp

from millstream.model.types.scalars import DAY_TIME, INTERVAL, NAMES

_KIND = exp.DataType.Type
_MOMENTS = frozenset((_KIND.TIMESTAMP, _KIND.TIMESTAMPTZ, _KIND.TIMESTAMPLTZ, _KIND.TIMESTAMPNTZ))
_UNITS = frozenset({*DAY_TIME, "WEEK", "MILLISECOND", "MICROSECOND"})
_LONG, _SHORT = NAMES[INTERVAL], "INTERVAL"


def parser_type(kind: str) -> str:
    """A type as it is passed to the parser."""
    return kind.replace(_LONG, _SHORT)


def plain(node: exp.Expr) -> exp.Expr:
    """An expression whose casts to a day-time interval use the type name that the parser sees."""
    for kind in list(node.find_all(exp.DataType)):
        if isinstance(kind.this, exp.Interval) and is_fixed(kind.this):
            kind.replace(exp.DataType(this=_KIND.INTERVAL))
    return node


def has_months(node: exp.Expr) -> bool:
    """Whether an expression contains an interval without a fixed length."""
    return any(not is_fixed(i) for i in node.find_all(exp.Interval)) or any(
        str(f.this).lower() in ("make_ym_interval", "make_interval") for f in node.find_all(exp.Anonymous)
    )


def is_fixed(node: exp.Interval) -> bool:
    """Whether an interval, or an interval type, has only units of days and shorter."""
    unit = node.unit
    units = [unit.this, unit.expression] if isinstance(unit, exp.IntervalSpan) else [unit]
    return all(u is not None and u.name.upper().rstrip("S") in _UNITS for u in units)


@functools.cache
def rules() -> dict[Any, Any]:
    """The parser's typing rules, preceded by those for intervals."""
    known = dict(Dialect.get_or_raise("spark").EXPRESSION_METADATA)
    for node in (exp.Add, exp.Sub, exp.Mul, exp.Div):
        known[node] = {"annotator": functools.partial(_annotated, known[node]["annotator"])}
    known[exp.Anonymous] = {"annotator": functools.partial(_called, known.get(exp.Anonymous, {}).get("annotator"))}
    return known


def _annotated(others: Any, annotator: Any, node: exp.Binary) -> exp.Expr:
    kind = _type(node)
    if kind is None:
        return others(annotator, node)  # type: ignore[no-any-return]
    annotator._set_type(node, kind)
    return node


def _called(others: Any, annotator: Any, node: exp.Anonymous) -> exp.Expr:
    if str(node.this).lower() == "make_dt_interval":
        annotator._set_type(node, _KIND.INTERVAL)
    elif others is not None:
        return others(annotator, node)  # type: ignore[no-any-return]
    return node


def _type(node: exp.Binary) -> Any:
    left, right = (e.type.this if e.type is not None else _KIND.UNKNOWN for e in (node.left, node.right))
    spans = left is _KIND.INTERVAL, right is _KIND.INTERVAL
    if isinstance(node, exp.Mul | exp.Div):
        return _KIND.INTERVAL if spans[0] or (spans[1] and isinstance(node, exp.Mul)) else None
    if all(spans):
        return _KIND.INTERVAL
    moments = left in _MOMENTS, right in _MOMENTS
    if isinstance(node, exp.Sub) and all(m or k is _KIND.DATE for m, k in zip(moments, (left, right), strict=True)):
        return _KIND.INTERVAL
    if moments[0] and spans[1]:
        return left
    return right if moments[1] and spans[0] and isinstance(node, exp.Add) else None
