"""sum and avg of intervals in queries: DuckDB cannot sum them, and rounds their mean differently.

The types of columns come from the store (`store/names.py`); those of computed columns are derived. A name that refers
to columns of several types is left unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from millstream.model.expression import Expr
from millstream.model.types.scalars import INTERVAL, LOCAL_TIMESTAMP, TIMESTAMP
from millstream.model.types.schema import Field, Schema

_KINDS = {
    "INTERVAL": INTERVAL,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMP,
    "TIMESTAMP": LOCAL_TIMESTAMP,
    "DATE": pa.date32(),
}
"""The store's types that are intervals, or from which intervals are computed."""
_SAME = (exp.Sum, exp.Avg, exp.Min, exp.Max, exp.First, exp.Last, exp.AnyValue)
"""Aggregates that return an interval for intervals."""

Types = dict[str, pa.DataType | None]


def in_store(tree: exp.Expr, tables: Mapping[str, Sequence[str]]) -> None:
    """Rewrite sums and means of intervals to use whole microseconds, in place."""
    aggregates = list(tree.find_all(exp.Sum, exp.Avg))
    if not aggregates:
        return
    known = _columns(tree, tables)
    if not any(known.values()) and tree.find(exp.Interval, exp.Cast, exp.Anonymous) is None:
        return
    _add_computed(tree, known)
    for call in aggregates:
        value = call.this.expressions[0] if isinstance(call.this, exp.Distinct) else call.this
        kind = _type(value, known)
        if kind is not None and pa.types.is_duration(kind):
            _rewrite(call, value)


def _columns(tree: exp.Expr, tables: Mapping[str, Sequence[str]]) -> Types:
    known: Types = {}
    for name in dict.fromkeys(t.name for t in tree.find_all(exp.Table)):
        columns: Any = tables.get(name, ())
        for column, kind in zip(columns, getattr(columns, "types", ()), strict=False):
            _add(known, column, _KINDS.get(kind))
    return known


def _add_computed(tree: exp.Expr, known: Types) -> None:
    """The types of columns that subqueries compute, inner ones first."""
    for alias in reversed(list(tree.find_all(exp.Alias))):
        if isinstance(alias.parent, exp.Select):
            kind = _type(alias.this, known)
            _add(known, alias.alias, kind if kind in _KINDS.values() else None)


def _add(known: Types, name: str, kind: pa.DataType | None) -> None:
    name = name.lower()
    known[name] = kind if known.get(name, kind) == kind else None


def _type(node: exp.Expr, known: Types) -> pa.DataType | None:
    node = node.unnest()
    if isinstance(node, (exp.Window, exp.Filter, *_SAME)):
        return _type(node.this, known)
    node = node.copy()
    for column in node.find_all(exp.Column):
        column.set("this", exp.to_identifier(column.name.lower()))
        for part in ("table", "db", "catalog"):
            column.set(part, None)
    return Expr(node).type_in(Schema(tuple(Field(n, k) for n, k in known.items() if k is not None)))


def _rewrite(call: exp.Expr, value: exp.Expr) -> None:
    value.replace(exp.Anonymous(this="epoch_us", expressions=[value.copy()]))
    top = call
    while isinstance(top.parent, exp.Filter | exp.Window) and top.parent.this is top:
        top = top.parent
    total: exp.Expr = top.copy()
    if isinstance(call, exp.Avg):
        total = exp.Anonymous(this="round", expressions=[total])
    interval = exp.Anonymous(this="to_microseconds", expressions=[exp.cast(total, "BIGINT")])
    top.replace(interval)
