"""Subqueries in WHERE: IN, EXISTS and single values, as joins."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import SchemaError, Unsupported
from millstream.model.times import conjuncts
from millstream.sql import pairs
from millstream.sql.relation import HIDDEN, Relation

if TYPE_CHECKING:
    from millstream.sql.bind import _Query


def applied(query: _Query, relation: Relation, part: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
    """A relation with a condition applied that has a subquery in it."""
    text = query.text
    inner, negated = part.unnest(), False
    while isinstance(inner, exp.Not):
        inner, negated = inner.this.unnest(), not negated
    if isinstance(inner, exp.Exists):
        return _exists(query, relation, inner.this, ctes, negated=negated)
    if isinstance(inner, exp.In) and inner.args.get("query") is not None:
        if negated:
            raise Unsupported(
                "NOT IN (SELECT ...) is not supported",
                detail="one NULL in the subquery would make it untrue for every row",
                hint="write NOT EXISTS (SELECT 1 FROM ... WHERE ... = ...)",
                origin=text.of_node(inner),
            )
        found = query.settled(query.query(inner.args["query"], ctes), inner)
        if len(found.names) != 1:
            raise SchemaError(f"IN compares with one column, not {len(found.names)}", origin=text.of_node(inner))
        other = found.called(f"{HIDDEN}in")
        on = exp.EQ(this=inner.this.copy(), expression=exp.column(found.names[0], table=f"{HIDDEN}in"))
        return _joined(query, relation, other, "SEMI", on, inner)
    return _values(query, relation, part, ctes)


def _exists(
    query: _Query, relation: Relation, node: exp.Expr, ctes: Mapping[str, Relation], *, negated: bool
) -> Relation:
    """WHERE EXISTS (SELECT ... FROM one relation WHERE conditions on both)."""
    text = query.text
    select = node.unnest() if not isinstance(node, exp.Subquery) else node.this
    plain = isinstance(select, exp.Select) and not any(
        select.args.get(a) for a in ("group", "having", "joins", "limit", "laterals", "distinct", "with_")
    )
    start = select.args.get("from_") if isinstance(select, exp.Select) else None
    if not plain or start is None:
        raise Unsupported(
            "EXISTS is supported over one relation with a WHERE",
            hint="make a view of the rest and ask for that",
            origin=text.of_node(node),
        )
    where = select.args.get("where")
    if where is None:
        raise Unsupported("EXISTS without a condition on the rows around it", origin=text.of_node(node))
    other = query.settled(query.source(start.this, ctes), start.this)
    inside, outside = [], []
    for part in conjuncts(where.this):
        try:
            made = other.expr(text, part)
        except SchemaError:
            outside.append(part)
        else:
            inside.append(made)
    stream = other.stream
    for condition in inside:
        stream = stream.where(condition)
    if not outside:
        raise Unsupported("EXISTS without a condition on the rows around it", origin=text.of_node(node))
    on = exp.and_(*(p.copy() for p in outside))
    return _joined(query, relation, other.with_stream(stream), "ANTI" if negated else "SEMI", on, node)


def _values(query: _Query, relation: Relation, part: exp.Expr, ctes: Mapping[str, Relation]) -> Relation:
    """A condition with single values from subqueries: each is joined as a column that every row has."""
    text = query.text
    tree = part.copy()
    for inner in list(tree.find_all(exp.Subquery)):
        if inner.find_ancestor(exp.Subquery) is not None:
            continue
        found = query.settled(query.query(inner.this, ctes), inner)
        if len(found.names) != 1:
            raise SchemaError(f"a value is one column, not {len(found.names)}", origin=text.of_node(inner))
        if not isinstance(inner.this, exp.Select) or not _is_single(inner.this):
            raise Unsupported(
                "a subquery in a condition must give one row",
                hint="an aggregate without GROUP BY does; or use IN or EXISTS",
                origin=text.of_node(inner),
            )
        alias = next(a for n in itertools.count() if (a := f"{HIDDEN}value{n}") not in relation.aliases)
        name = found.names[0]
        relation = _joined(query, relation, found.called(alias), "LEFT", exp.true(), inner)
        inner.replace(exp.column(name, table=alias))
    if tree.find(exp.Query) is not None:
        raise Unsupported("this subquery in a condition", origin=text.of_node(part))
    made = relation.expr(text, tree)
    with text.at(part):
        return relation.with_stream(relation.stream.where(made))


def _is_single(select: exp.Select) -> bool:
    from millstream.sql.select import groups

    return select.args.get("group") is None and groups(select)


def _joined(query: _Query, relation: Relation, other: Relation, kind: str, on: exp.Expr, node: exp.Expr) -> Relation:
    side = {"side": "LEFT"} if kind == "LEFT" else {"kind": kind}
    join = exp.Join(this=node.copy(), on=on, **side)
    made, _ = pairs.joining(query, relation, join, other)
    return made
