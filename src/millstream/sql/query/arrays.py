"""Conditions on array elements in queries, with Spark's rule for NULL. Each part is rendered once."""

from __future__ import annotations

from sqlglot import exp

from millstream.sql.query.templates import written

_CONTAINS = (
    "list_transform([{{'a': {a}, 'x': {x}}}], LAMBDA c : CASE WHEN c['a'] IS NULL OR c['x'] IS NULL THEN NULL "
    "WHEN list_contains(c['a'], c['x']) THEN TRUE WHEN len(c['a']) > list_count(c['a']) THEN NULL ELSE FALSE END)[1]"
)
_SOME = (
    "list_transform([list_transform({a}, {f})], LAMBDA c : CASE WHEN c IS NULL THEN NULL "
    "WHEN list_contains(c, {decides}) THEN {decides} WHEN len(c) > list_count(c) THEN NULL ELSE NOT {decides} END)[1]"
)


def contains(node: exp.Expr) -> exp.Expr:
    """array_contains(array, value): NULL if no element is equal and one is NULL."""
    return written(_CONTAINS, a=node.this, x=node.expression)


def among(node: exp.Expr) -> exp.Expr | None:
    """``x = ANY (array)``."""
    any_of = node.expression
    if not isinstance(any_of, exp.Any) or isinstance(any_of.this.unnest(), exp.Query):
        return None
    return written(_CONTAINS, a=any_of.this.unnest(), x=node.this)


def exists(node: exp.Expr) -> exp.Expr | None:
    """A condition on some element: ``exists(array, e -> condition)``. EXISTS (SELECT ...) is unchanged."""
    return _decided(node.this, node.expression, "TRUE") if isinstance(node.expression, exp.Lambda) else None


def forall(values: list[exp.Expr]) -> exp.Expr | None:
    """A condition on all elements: ``forall(array, e -> condition)``."""
    return _decided(values[0], values[1], "FALSE") if isinstance(values[1], exp.Lambda) else None


def _decided(array: exp.Expr, condition: exp.Expr, decides: str) -> exp.Expr:
    """A condition over elements: one element with the value `decides` decides; otherwise a NULL makes it unknown."""
    return written(_SOME.replace("{decides}", decides), a=array, f=condition)
