"""Clauses that the store has no words for, in words that it has: a question must not lose a part of itself."""

from __future__ import annotations

from sqlglot import exp

from millstream.errors import Unsupported


def in_store(tree: exp.Query) -> exp.Query:
    """A question whose clauses the store knows. Refuses what it cannot be told."""
    found = [o for o in tree.find_all(exp.LimitOptions) if o.args.get("percent") or o.args.get("with_ties")]
    if not found:
        return tree
    tree = tree.copy()
    for options in list(tree.find_all(exp.LimitOptions)):
        if options.args.get("percent"):
            raise Unsupported(
                "LIMIT with PERCENT is not supported", hint="QUALIFY percent_rank() OVER (ORDER BY ...) < 0.1"
            )
        if options.args.get("with_ties"):
            _with_ties(options.parent)
    return tree


def _with_ties(limit: exp.Expr | None) -> None:
    """``ORDER BY a FETCH FIRST 3 ROWS WITH TIES`` becomes ``QUALIFY rank() OVER (ORDER BY a) <= 3 ORDER BY a``."""
    select = limit.parent if limit is not None else None
    order = select.args.get("order") if isinstance(select, exp.Select) else None
    if limit is None or select is None or order is None or select.args.get("distinct") or select.args.get("qualify"):
        raise Unsupported("WITH TIES needs ORDER BY, in a SELECT without DISTINCT and QUALIFY", hint="use a subquery")
    count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
    most = count.copy() if count is not None else exp.Literal.number(1)
    offset = select.args.get("offset")
    window = exp.Window(this=exp.Rank(), order=order.copy(), over="OVER")
    if offset is not None:
        most = exp.Add(this=most, expression=offset.expression.copy())
    select.set("qualify", exp.Qualify(this=exp.LTE(this=window, expression=most)))
    select.set("limit", None)
