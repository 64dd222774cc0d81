"""Equality of query expressions: `sum(x)` and `SUM(x)` are equal, `a + b` and `b + a` are not."""

from __future__ import annotations

from sqlglot import exp

Identity = tuple[str, exp.Expr | None]


def of(tree: exp.Expr) -> Identity:
    """A key that two trees share exactly if they are the same expression.

    It is the Spark SQL text with quoted names, because `a + b` may be a column or a sum. Spark's text omits the order
    inside an aggregate and the parts of WITHIN GROUP, so a tree with one of these is compared as a whole.
    """
    whole = tree.find(exp.Order, exp.WithinGroup) is not None
    return tree.sql(dialect="spark", identify=True), tree.copy() if whole else None
