"""Conditions and values that need no Spark: comparisons of plain columns and the like, as nested tuples.

The subset contains only what means the same in Spark and in Polars: columns, numbers, texts, times shifted by an
interval, remainders, comparisons of two values of one kind, AND, OR, NOT, IS NULL. The columns of scans may also be
hashes of keys, starts of window slices, and decimal multiples (`scan_value`). Spark computes everything else.
`kernels/native_expressions.py` and `engine/input/native_prelude.py` evaluate the tuples.
"""

from __future__ import annotations

import functools
from typing import Any

import sqlglot
from sqlglot import exp

from millstream.model.steps.event_times import interval_micros
from millstream.plan.parts import Column, NativeProjection, Op, Project
from millstream.plan.plan import Scan

Quick = tuple[Any, ...]

_INT = 1 << 31
_BIGINT_DIGITS = 19
_MOST_DIGITS = 38

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
    return _either(sqlglot.parse_one(sql, dialect="spark"))


def _either(node: exp.Expr) -> Quick | None:
    """A value or a condition."""
    return quick_value(node) or quick(node)


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


@functools.lru_cache(maxsize=1_000)
def scan_value(sql: str) -> Quick | None:
    """A column of a scan; None if only Spark can compute it."""
    name = Column("", sql).only_names
    return ("col", name) if name is not None else _scan_value(sqlglot.parse_one(sql, dialect="spark"))


def is_native_scan(scan: Scan) -> bool:
    """Whether all expressions of a scan are in the subset. Its types may still need Spark."""
    return all(native_projection(op) is not None for op in scan.ops) and all(
        scan_value(c.sql) is not None for c in scan.columns
    )


def _scan_value(node: exp.Expr) -> Quick | None:
    node = node.unnest()
    long = _long(node)
    if long is not None:
        return ("long", long)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "xxhash64":
        parts = [_either(n) for n in node.expressions]
        return None if not parts or None in parts else ("hash", *parts)
    return _slice(node) or _multiple(node) or _either(node)


def _long(node: exp.Expr) -> int | None:
    """The number of a literal such as ``10L``."""
    inner = node.this
    if not isinstance(node, exp.TryCast) or not isinstance(inner, exp.Literal) or inner.is_string:
        return None
    return int(inner.this) if node.to.this is exp.DType.BIGINT and inner.this.isdigit() else None


def _slice(node: exp.Expr) -> Quick | None:
    """The start of the window slice of an event time: ``ts - pmod(ts - origin, size)``."""
    if not isinstance(node, exp.Sub) or not isinstance(node.right, exp.Anonymous) or node.right.name.lower() != "pmod":
        return None
    time, (moved, by) = node.left, node.right.expressions
    size = _long(by)
    if not isinstance(moved, exp.Sub) or not isinstance(time, exp.Column) or moved.left != time:
        return None
    origin = _long(moved.right)
    return None if size is None or origin is None or time.name != "$ts" else ("slice", origin, size)


def _multiple(node: exp.Expr) -> Quick | None:
    """A whole number times a decimal constant, as a decimal number that all results fit into."""
    if not isinstance(node, exp.Cast) or not isinstance(node.this.unnest(), exp.Mul):
        return None
    sizes = [int(e.name) for e in node.to.expressions] if node.to.this is exp.DType.DECIMAL else []
    product = node.this.unnest()
    factor, number = product.left, product.right
    if isinstance(number, exp.Literal):
        factor, number = number, factor
    if len(sizes) != 2 or not isinstance(number, exp.Column) or not isinstance(factor, exp.Literal):
        return None
    whole, point, fraction = factor.this.partition(".")
    if factor.is_string or not point or not (whole + fraction).isdigit():
        return None
    digits, (precision, scale) = len(whole.lstrip("0")), sizes
    fits = len(fraction) == scale and _BIGINT_DIGITS + digits <= precision - scale
    fits &= _BIGINT_DIGITS + digits + scale < _MOST_DIGITS  # digits of a product in Arrow
    return ("multiple", ("col", number.name), factor.this, precision, scale) if fits else None


def quick(node: exp.Expr) -> Quick | None:
    """A condition as nested tuples; None if it is outside the subset."""
    node = node.unnest()
    if isinstance(node, exp.And | exp.Or):
        both = quick(node.left), quick(node.right)
        return None if None in both else ("and" if isinstance(node, exp.And) else "or", *both)
    if isinstance(node, exp.Column):
        value = quick_value(node)
        return None if value is None else ("is", value)
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
    return _computed_value(node)


def _computed_value(node: exp.Expr) -> Quick | None:
    if isinstance(node, exp.Add | exp.Sub):
        micros, inner = interval_micros(node.right), quick_value(node.left)
        if micros is not None and inner is not None and inner[0] in ("col", "move"):
            return ("move", inner, micros if isinstance(node, exp.Add) else -micros)
        more = quick_value(node.right)
        if inner is not None and more is not None and inner[0] in ("micros", "plus") and more[0] == "int":
            return ("plus", inner, more[1] if isinstance(node, exp.Add) else -more[1])
    if isinstance(node, exp.Mod):
        inner, by = quick_value(node.this), quick_value(node.expression)
        if inner is not None and by is not None and by[0] == "int" and 0 < by[1] < _INT:
            return ("mod", inner, by[1])
    if isinstance(node, exp.UnixMicros):
        inner = quick_value(node.this)
        return None if inner is None or inner[0] not in ("col", "move") else ("micros", inner)
    if isinstance(node, exp.Least):
        parts = [quick_value(n) for n in (node.this, *node.expressions)]
        if all(p is not None and p[0] in ("micros", "plus") for p in parts):
            return ("least", *parts)
    return None
