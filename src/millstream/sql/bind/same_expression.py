"""When two parts of a query mean the same: `GROUP BY a + b` and `SELECT b + a` do not, `sum(x)` and `SUM(x)` do."""

from __future__ import annotations

from sqlglot import exp

Identity = tuple[str, exp.Expr | None]


def of(tree: exp.Expr) -> Identity:
    """What two trees have in common exactly when they mean the same value.

    It is the text for Spark, in which names are quoted: `a + b` may be a column, or a sum. Spark's text leaves out the
    order inside an aggregate and the parts of WITHIN GROUP, so a tree that has one of these is compared as a whole.
    """
    whole = tree.find(exp.Order, exp.WithinGroup) is not None
    return tree.sql(dialect="spark", identify=True), tree.copy() if whole else None
