"""Literals of SQL as Python values, so that the rows of VALUES need no query each."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlglot import exp

NOT_LITERAL = object()
"""What `literal` gives for an expression that has to be computed."""

_TIMES = (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ)


def literal(node: exp.Expr) -> Any:
    """The value of a literal, with the type that SQL gives it: 1.5 is a decimal, 1.5e0 a floating number."""
    node = node.unnest()
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Neg):
        value = literal(node.this)
        if isinstance(value, Decimal):
            return value.copy_negate()  # a minus would round it
        return -value if isinstance(value, int | float) and not isinstance(value, bool) else NOT_LITERAL
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else _number(str(node.this))
    return _time(node)


def _time(node: exp.Expr) -> Any:
    """``TIMESTAMP '2026-01-01 12:00:00'``."""
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast) and node.to.this in _TIMES:
        text = literal(node.this)
        try:
            return datetime.fromisoformat(text) if isinstance(text, str) else NOT_LITERAL
        except ValueError:
            pass
    return NOT_LITERAL


def _number(text: str) -> Any:
    try:
        if text.isdecimal() and text.isascii():
            return int(text)
        return float(text) if "e" in text.lower() else Decimal(text)
    except (ValueError, ArithmeticError):  # more digits than Python reads
        return NOT_LITERAL
