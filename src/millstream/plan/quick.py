"""Conditions that kernels compute themselves: comparisons of plain columns, told as nested tuples.

Only what means the same to Spark and to Polars: columns, numbers, texts, times moved by an interval, comparisons of two
of one kind, AND, OR, NOT, IS NULL. What is anything else is computed by Spark.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from millstream.model.clocks import interval_micros

Quick = tuple[Any, ...]

_COMPARE: dict[type[exp.Expr], str] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
}


def quick(node: exp.Expr) -> Quick | None:
    """A condition as nested tuples; None where it is not so plain."""
    node = node.unnest()
    if isinstance(node, exp.And | exp.Or):
        both = quick(node.left), quick(node.right)
        return None if None in both else ("and" if isinstance(node, exp.And) else "or", *both)
    if isinstance(node, exp.Not):
        inner = quick(node.this)
        return None if inner is None else ("not", inner)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        value = _value(node.this)
        return None if value is None else ("null", value)
    if isinstance(node, exp.Between):
        values = [_value(n) for n in (node.this, node.args["low"], node.args["high"])]
        if any(v is None for v in values):
            return None
        return ("and", ("ge", values[0], values[1]), ("le", values[0], values[2]))
    if type(node) in _COMPARE:
        left, right = _value(node.left), _value(node.right)  # type: ignore[attr-defined]
        return None if left is None or right is None else (_COMPARE[type(node)], left, right)
    return None


def _value(node: exp.Expr) -> Quick | None:
    node = node.unnest()
    if isinstance(node, exp.Column):
        return ("col", node.name) if len(node.parts) == 1 else None
    if isinstance(node, exp.Literal):
        if node.is_string:
            return ("text", node.this)
        return ("int", int(node.this)) if node.this.isdigit() and len(node.this) < 19 else None
    if isinstance(node, exp.Add | exp.Sub):
        micros, inner = interval_micros(node.right), _value(node.left)
        if micros is not None and inner is not None and inner[0] in ("col", "move"):
            return ("move", inner, micros if isinstance(node, exp.Add) else -micros)
    return None
