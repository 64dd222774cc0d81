"""ASOF JOIN syntax: converts Snowflake's form to the one that the parser and the store support."""

from __future__ import annotations

from sqlglot import exp

from millstream.errors import StatementRefused

NEAREST = "asof_nearest"
"""The name of NEAREST(...) in MATCH_CONDITION in the tree of a query."""


def in_store(tree: exp.Query) -> exp.Query:
    """A query with its ASOF JOINs in the store's syntax: MATCH_CONDITION is part of ON."""
    if not any(j.args.get("match_condition") for j in tree.find_all(exp.Join)):
        return tree
    tree = tree.copy()
    for join in list(tree.find_all(exp.Join)):
        match = join.args.get("match_condition")
        if match is None:
            continue
        if any(isinstance(f.this, str) and f.this.lower() == NEAREST for f in match.find_all(exp.Anonymous)):
            raise StatementRefused(
                "NEAREST works in a view, not in a query", hint="CREATE VIEW v AS SELECT ..., and SELECT from that"
            )
        if join.args.get("using"):
            raise StatementRefused(
                "MATCH_CONDITION with USING works in a view, not in a query", hint="write ON a.id = b.id"
            )
        on = join.args.get("on")
        join.set("match_condition", None)
        join.set("on", match.copy() if on is None else exp.and_(on.copy(), match.copy()))
    return tree
