"""GROUPING SETS, ROLLUP and CUBE: the common keys, and the members of each grouping set."""

from __future__ import annotations

import math
from itertools import combinations, product

from sqlglot import exp

from millstream.errors import Unsupported
from millstream.sql.parse.text import Text

MOST = 64
"""The most grouping sets of one GROUP BY; every row is counted once in each."""

_SETS = (exp.GroupingSets, exp.Rollup, exp.Cube)

Members = list[exp.Expr]


def split(text: Text, group: exp.Group) -> tuple[Members, list[Members]]:
    """The common keys, and the members of each grouping set; several ROLLUPs and similar clauses are multiplied."""
    plain: Members = []
    factors: list[list[Members]] = []
    for each in group.expressions:
        if isinstance(each, _SETS):
            factors.append(_sets(text, each, each.expressions))
        else:
            plain += _members(each)
    for argument in ("grouping_sets", "rollup", "cube"):  # GROUP BY a, b WITH ROLLUP, GROUP BY a, b GROUPING SETS (...)
        for each in group.args.get(argument) or ():
            if isinstance(each, exp.Expr):
                factors.append(_sets(text, each, each.expressions or plain))
                plain = []
    if not factors:
        return plain, []
    _check(text, group, math.prod(len(f) for f in factors))
    return plain, [[member for part in parts for member in part] for parts in product(*factors)]


def _sets(text: Text, node: exp.Expr, parts: Members) -> list[Members]:
    """The members of each set of one GROUPING SETS, ROLLUP or CUBE."""
    if isinstance(node, exp.GroupingSets):
        listed = [_sets(text, p, p.expressions) if isinstance(p, _SETS) else [_members(p)] for p in parts]
        return [members for each in listed for members in each]
    _check(text, node, len(parts) + 1 if isinstance(node, exp.Rollup) else 2 ** len(parts))
    groups = [_members(p) for p in parts]
    if isinstance(node, exp.Rollup):
        chosen = [tuple(groups[:n]) for n in range(len(groups), -1, -1)]
    else:
        chosen = [c for n in range(len(groups), -1, -1) for c in combinations(groups, n)]
    return [[member for part in each for member in part] for each in chosen]


def _members(node: exp.Expr) -> Members:
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this] if isinstance(node, exp.Paren) else [node]


def _check(text: Text, node: exp.Expr, number: int) -> None:
    if number > MOST:
        raise Unsupported(
            f"more than {MOST} grouping sets in one GROUP BY",
            hint="name the ones that are needed: GROUPING SETS ((a, b), (a), ())",
            origin=text.of_node(node),
        )
