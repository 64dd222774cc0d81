"""Divisions in queries: division by zero is an error, as in a view, unless a condition guards it.

The store computes the argument of an aggregate before its FILTER, and both sides of an AND that is a value. There, a
CASE guards the division. All forms render the divisor once, so that nested divisions stay short.
"""

from __future__ import annotations

from sqlglot import exp

from millstream.sql.query.templates import written

_DIVISIONS = (exp.Div, exp.Mod, exp.IntDiv)
_MOST = 100
"""The most nodes of a condition that may be rendered twice: nested conditions must stay short."""
_CHECKED = "CASE WHEN {by} = 0 THEN error('Division by zero') ELSE {by} END"
_ONCE = "list_transform([{by}], LAMBDA d : CASE WHEN d = 0 THEN error('Division by zero') ELSE d END)[1]"
_POSITIVE = (
    "list_transform([{{'x': {x}, 'y': {y}}}], LAMBDA d : "
    "CASE WHEN d['y'] = 0 THEN error('Division by zero') ELSE ((d['x'] % d['y']) + d['y']) % d['y'] END)[1]"
)
_INSIDE = (exp.Distinct, exp.Order, exp.Ordered, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
"""Nodes between an aggregate and its arguments."""
_CLAUSES = (exp.Where, exp.Having, exp.Join)
"""Clauses in which the store evaluates the sides of AND and OR one after the other."""


def divided(node: exp.Expr) -> exp.Expr:
    """A division or a remainder. `try_divide` returns NULL."""
    division, by = node.copy(), node.expression
    division.set("safe", False)
    if not _plain(by):
        form = _CHECKED if isinstance(by, exp.Column | exp.Identifier | exp.Literal) else _ONCE
        division.set("expression", exp.paren(written(form, by=by)))
    return division


def positive(value: exp.Expr, by: exp.Expr) -> exp.Expr:
    """pmod(value, by)."""
    return written(_POSITIVE, x=value, y=by)


def guard(tree: exp.Expr) -> None:
    """Rewrite conditions that guard divisions so that the store divides only where they hold, in place."""
    if not _divides(tree):
        return
    for chain in reversed(list(tree.find_all(exp.And, exp.Or))):  # innermost first
        if not isinstance(chain.parent, type(chain)) and not _one_by_one(chain):
            _in_order(chain)
    for filtered in tree.find_all(exp.Filter):
        _filtered(filtered.this, filtered.expression.this)


def _plain(by: exp.Expr) -> bool:
    return isinstance(by, exp.Literal) and bool(by.name.strip("0."))


def _divides(tree: exp.Expr) -> bool:
    return any(
        str(n.this).lower() == "pmod" if isinstance(n, exp.Anonymous) else not _plain(n.expression)
        for n in tree.find_all(*_DIVISIONS, exp.Anonymous)
    )


def _one_by_one(chain: exp.Expr) -> bool:
    """Whether a chain of AND or OR is a condition whose sides the store evaluates one after the other, not a value."""
    above = chain.parent
    while isinstance(above, exp.And | exp.Or | exp.Paren):
        above = above.parent
    return isinstance(above, _CLAUSES) and not isinstance(above.parent, exp.Filter)


def _in_order(chain: exp.Expr) -> None:
    """``a AND b`` becomes ``a AND CASE WHEN a IS DISTINCT FROM FALSE THEN b END``; FALSE AND NULL is FALSE."""
    sides = list(chain.flatten())
    decided = exp.false() if isinstance(chain, exp.And) else exp.true()
    difference = sides[-1].copy()
    for side in reversed(sides[:-1]):
        if _divides(difference) and sum(1 for _ in side.walk()) <= _MOST:
            open_ = exp.NullSafeNEQ(this=exp.paren(side.copy()), expression=decided.copy())
            difference = exp.Case(ifs=[exp.If(this=open_, true=difference)])
        difference = type(chain)(this=exp.paren(side.copy()), expression=exp.paren(difference))
    chain.replace(exp.paren(difference))


def _filtered(call: exp.Expr, condition: exp.Expr) -> None:
    """``sum(x) FILTER (WHERE c)`` becomes ``sum(CASE WHEN c THEN x END) FILTER (WHERE c)``."""
    for value in list(call.iter_expressions()):
        if isinstance(value, _INSIDE) or (isinstance(call, exp.WithinGroup) and value is call.this):
            _filtered(value, condition)
        elif _divides(value):
            value.replace(exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())]))
