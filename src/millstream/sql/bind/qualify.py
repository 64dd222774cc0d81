"""QUALIFY and DISTINCT ON: filters the rows of a SELECT by its window functions.

``SELECT DISTINCT ON (k) ... ORDER BY t`` is ``SELECT ... QUALIFY row_number() OVER (PARTITION BY k ORDER BY t) = 1``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import DefinitionError, Unsupported
from millstream.model.steps.event_times import conjuncts
from millstream.sql.bind.result_columns import numbered
from millstream.sql.parse.text import plain_value
from millstream.sql.relations.relation import Relation, swap

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

Items = list[tuple[str, exp.Expr]]


def condition(query: _Query, relation: Relation, node: exp.Select, items: Items) -> exp.Expr | None:
    """The condition of QUALIFY or DISTINCT ON; output names are replaced by their expressions."""
    qualify = node.args.get("qualify")
    first = _distinct_on(query, node, items)
    if qualify is not None and first is not None:
        raise Unsupported(
            "QUALIFY and DISTINCT ON in one SELECT",
            hint="put one of them in a subquery",
            origin=query.text.of_node(node),
        )
    predicate = first if qualify is None else qualify.this
    return None if predicate is None else with_names(relation, items, predicate)


def with_names(relation: Relation, items: Items, tree: exp.Expr) -> exp.Expr:
    """An expression in which names of output columns are replaced by their expressions; a column of FROM with the same
    name takes precedence.
    """
    known = {n.lower() for n in (*relation.names, *(c for a in relation.aliases.values() for c in a))}
    by_alias = {n.lower(): i for n, i in items if n.lower() not in known}

    def replaced(part: exp.Expr) -> exp.Expr | None:
        if not isinstance(part, exp.Column) or len(part.parts) > 1:
            return None
        item = by_alias.get(part.name.lower())
        return None if item is None else exp.paren(item.copy(), copy=False)

    root = exp.Paren(this=tree.copy())
    return swap(root, lambda p: None if p is root else replaced(p)).this  # type: ignore[no-any-return]


def first_rows(condition: exp.Expr, items: Items) -> tuple[exp.Window, int, list[exp.Expr]] | None:
    """The ROW_NUMBER() that a condition bounds, the bound, and the other conditions; None if rows cannot be dropped
    before they are numbered.
    """
    parts = list(conjuncts(condition))
    windows = [w for t in (*parts, *(i for _, i in items)) for w in t.find_all(exp.Window)]
    bounds = [(p, b) for p in parts if (b := _bound(p)) is not None]
    if len(windows) != 1 or len(bounds) != 1:
        return None
    part, (window, most) = bounds[0]
    return window, most, [p for p in parts if p is not part]


def _bound(part: exp.Expr) -> tuple[exp.Window, int] | None:
    """``ROW_NUMBER() OVER (... ORDER BY ...) <= 3`` and similar conditions: the window and 3."""
    if not isinstance(part, exp.LTE | exp.LT | exp.EQ):
        return None
    window = part.this.unnest()
    if not isinstance(window, exp.Window) or not isinstance(window.this, exp.RowNumber):
        return None
    try:
        number = plain_value(part.expression)
    except ValueError:
        return None
    most = number - 1 if isinstance(part, exp.LT) and isinstance(number, int) else number
    if not isinstance(most, int) or most < 1 or (isinstance(part, exp.EQ) and most != 1):
        return None
    return (window, most) if window.args.get("order") else None


def _distinct_on(query: _Query, node: exp.Select, items: Items) -> exp.Expr | None:
    distinct = node.args.get("distinct")
    on = distinct.args.get("on") if distinct is not None else None
    if on is None:
        return None
    order = node.args.get("order")
    if order is None:
        raise DefinitionError(
            "DISTINCT ON without ORDER BY would keep any row of each group",
            hint="add ORDER BY: SELECT DISTINCT ON (id) ... ORDER BY id, ts DESC keeps the latest",
            origin=query.text.of_node(on),
        )
    keys = [_numbered(query, k, items) for k in (on.expressions if isinstance(on, exp.Tuple) else [on.unnest()])]
    by = []
    for each in order.expressions:
        spelled = each.copy()
        spelled.set("this", _numbered(query, each.this, items))
        by.append(spelled)
    window = exp.Window(this=exp.RowNumber(), partition_by=keys, order=exp.Order(expressions=by), over="OVER")
    return exp.EQ(this=window, expression=exp.Literal.number(1))


def _numbered(query: _Query, node: exp.Expr, items: Items) -> exp.Expr:
    """Resolves a number to the output column at that position."""
    item = numbered(query.text, node, items, "column")
    return node.copy() if item is None else item[1].copy()


def kept(
    query: _Query,
    relation: Relation,
    items: Items,
    condition: exp.Expr,
    top: Callable[[Relation, exp.Window, int], Relation],
    computed: Callable[[Relation, Items], tuple[Relation, Items]],
) -> tuple[Relation, Items]:
    """The rows for which a condition holds, and the items over them. `top` keeps the first rows of each group,
    `computed` adds columns for window functions.
    """
    text = query.text
    bounded = first_rows(condition, items)
    if bounded is not None:
        window, most, parts = bounded
        relation = top(relation, window, most)
    else:
        relation, computed_items = computed(relation, [*items, ("", condition)])
        items, parts = computed_items[:-1], [computed_items[-1][1]]
    for part in parts:
        expr = relation.expr(text, part)
        with text.at(part):
            relation = relation.with_stream(relation.stream.where(expr))
    return relation, items
