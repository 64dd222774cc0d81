"""Conditions and values that need no Spark: comparisons of plain columns and the like, as nested tuples.

The subset contains only what means the same in Spark and in Polars: columns, numbers, texts, times shifted by an
interval, comparisons of two values of one kind, AND, OR, NOT, IS NULL. Spark computes everything else.
`kernels/native_expressions.py` evaluates the tuples.
"""

from __future__ import annotations

import functools
from typing import Any

import sqlglot
from sqlglot import exp

from millstream.model.steps.event_times import interval_micros
from millstream.plan.parts import Column, NativeProjection, Op, Project

Quick = tuple[Any, ...]

_COMPARE: dict[type[exp.Expr], str] = {
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
}


@functools.lru_cache(maxsize=1_000)
def quick_sql(sql: str) -> Quick | None:
    """Parse a condition or value written for Spark; None if it is outside the subset."""
    node = sqlglot.parse_one(sql, dialect="spark")
    return quick(node) or quick_value(node)


@functools.lru_cache(maxsize=1_000)
def native_projection(op: Op) -> NativeProjection | None:
    """A step that kernels can evaluate, if the types of its columns allow it; None if only Spark can."""
    if not isinstance(op, Project):
        return None
    values = [(c.name, _value_of(c.sql)) for c in op.columns]
    keep = None if op.keep is None else quick(sqlglot.parse_one(op.keep, dialect="spark"))
    if (op.keep is not None and keep is None) or any(value is None for _, value in values):
        return None
    return NativeProjection(keep, tuple((name, value) for name, value in values if value is not None))


def _value_of(sql: str) -> Quick | None:
    name = Column("", sql).only_names
    return quick_sql(sql) if name is None else ("col", name)


def quick(node: exp.Expr) -> Quick | None:
    """A condition as nested tuples; None if it is outside the subset."""
    node = node.unnest()
    if isinstance(node, exp.And | exp.Or):
        both = quick(node.left), quick(node.right)
        return None if None in both else ("and" if isinstance(node, exp.And) else "or", *both)
    if isinstance(node, exp.Not):
        inner = quick(node.this)
        return None if inner is None else ("not", inner)
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        value = quick_value(node.this)
        return None if value is None else ("null", value)
    if isinstance(node, exp.Between):
        values = [quick_value(n) for n in (node.this, node.args["low"], node.args["high"])]
        if any(v is None for v in values):
            return None
        return ("and", ("ge", values[0], values[1]), ("le", values[0], values[2]))
    if type(node) in _COMPARE:
        left, right = quick_value(node.left), quick_value(node.right)  # type: ignore[attr-defined]
        return None if left is None or right is None else (_COMPARE[type(node)], left, right)
    return None


def quick_value(node: exp.Expr) -> Quick | None:
    """A value as nested tuples; None if it is outside the subset."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return ("col", node.name) if len(node.parts) == 1 else None
    if isinstance(node, exp.Literal):
        if node.is_string:
            return ("text", node.this)
        return ("int", int(node.this)) if node.this.isdigit() and len(node.this) < 19 else None
    if isinstance(node, exp.Add | exp.Sub):
        micros, inner = interval_micros(node.right), quick_value(node.left)
        if micros is not None and inner is not None and inner[0] in ("col", "move"):
            return ("move", inner, micros if isinstance(node, exp.Add) else -micros)
        more = quick_value(node.right)
        if inner is not None and more is not None and inner[0] in ("micros", "plus") and more[0] == "int":
            return ("plus", inner, more[1] if isinstance(node, exp.Add) else -more[1])
    if isinstance(node, exp.UnixMicros):
        inner = quick_value(node.this)
        return None if inner is None or inner[0] not in ("col", "move") else ("micros", inner)
    if isinstance(node, exp.Least):
        parts = [quick_value(n) for n in (node.this, *node.expressions)]
        if all(p is not None and p[0] in ("micros", "plus") for p in parts):
            return ("least", *parts)
    return None
