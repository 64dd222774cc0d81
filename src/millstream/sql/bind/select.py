"""SELECT: binds filters, row numbers, groups, aggregates and output columns to steps of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError, Unsupported
from millstream.model.expression import Expr, col
from millstream.model.reserved import folded, free_name
from millstream.model.steps.event_times import conjuncts
from millstream.sql.bind import offset_and_ties, qualify, stars, window_function
from millstream.sql.bind.grouping import aggregates
from millstream.sql.bind.grouping.group_by import grouped
from millstream.sql.bind.result_columns import numbered
from millstream.sql.parse.text import plain_value
from millstream.sql.relations import constant, from_items, pattern, windows
from millstream.sql.relations import join as pairs
from millstream.sql.relations.relation import HIDDEN, Ranked, Relation, checked
from millstream.sql.subqueries import correlated, subqueries
from millstream.sql.subqueries.correlated import Outer
from millstream.sql.subqueries.scopes import subqueries_of

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

Item = tuple[str, exp.Expr]
"""An output column: its name and its expression."""


def main_select_of(node: exp.Expr) -> exp.Select | None:
    """The outermost SELECT that groups rows, also inside subqueries and CTEs. EMIT applies to its windows."""
    if isinstance(node, exp.Subquery):
        return main_select_of(node.this)
    if not isinstance(node, exp.Select):
        return None
    if groups(node):
        return node
    start = node.args.get("from_")
    inner = start.this if start is not None else None
    if isinstance(inner, exp.Table) and isinstance(inner.this, exp.Identifier):
        cte = _cte(inner)
        return main_select_of(cte.this) if cte is not None else None
    return main_select_of(inner) if inner is not None else None


def _cte(table: exp.Table) -> exp.CTE | None:
    """The CTE that a name refers to: one of the enclosing queries or, inside a CTE, an earlier one."""
    node: exp.Expr = table
    while (above := node.parent) is not None:
        with_clause = above if isinstance(above, exp.With) else above.args.get("with_")
        seen = [] if with_clause is None or with_clause is node else with_clause.expressions
        if with_clause is above:
            seen = seen[: seen.index(node)]
        cte = next((c for c in reversed(seen) if c.alias.lower() == table.name.lower()), None)
        if cte is not None:
            return cte  # type: ignore[no-any-return]
        node = above
    return None


def groups(node: exp.Select) -> bool:
    """Whether a SELECT groups rows."""
    if node.args.get("group") is not None:
        return True
    parts = [*node.expressions, node.args.get("having")]
    return any(True for p in parts if p is not None for _ in aggregates.aggregates_in(p))


def bind_select(query: _Query, node: exp.Select, ctes: Mapping[str, Relation], outer: Outer | None = None) -> Relation:
    """The relation for a SELECT; for a subquery, with the columns of the enclosing rows that it uses."""
    text = query.text
    if outer is not None:
        node = _by_outer(node, outer)
    relation = rows = rows_of(query, node, ctes, outer)
    if groups(node):
        bound = _grouped(query, relation, node, ctes, outer)
    else:
        if relation.windowed is not None:
            relation = windows.rows(text, relation, node)
        relation, ordered = _first_rows(query, relation, node, outer)
        bound = _plain(query, relation, node, ctes, outer)
        if ordered:
            return bound
    distinct = node.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is None:
        with text.at(node):
            bound = replace(bound, stream=query.settled(bound, node).stream.distinct())
    return limited(query, bound, node, outer, rows)


def rows_of(query: _Query, node: exp.Select, ctes: Mapping[str, Relation], outer: Outer | None = None) -> Relation:
    """The rows that FROM and WHERE of a SELECT produce."""
    text = query.text
    start = node.args.get("from_")
    place = node if start is None else start.this
    where = node.args.get("where")
    conditions = [] if where is None else list(conjuncts(where.this))
    written = [*(() if start is None else start.this.args.get("joins") or ()), *(node.args.get("joins") or ())]
    around = outer if outer is not None and start is not None and correlated.uses(start.this, outer) else None
    if outer is not None:
        written, conditions = correlated.moved(query, outer, written, conditions, node)
    relation = constant.one_row(query) if start is None else query.source(start.this, ctes, outer=around)
    clause = pattern.clause_of(node)
    if clause is not None:
        relation = pattern.recognized(query, query.settled(relation, place), node, clause)
    if written or outer is not None:
        relation = query.settled(relation, place)
        relation = windows.rows(text, relation, node) if relation.windowed is not None else relation
    first, chain = relation, []
    for join in written:
        relation, one = from_items.joined(query, relation, join, ctes)
        chain.append(one)
    equal: Mapping[str, exp.Expr] = {}
    if outer is not None and around is None:
        equal, conditions = correlated.equalities(query, outer, relation, conditions)
        missing = [n for n in outer.names if n not in equal]
        if missing:
            relation, one = pairs.joining(query, relation, exp.Join(this=place.copy()), outer.values(missing))
            chain.append(one)
    known = [c for c in chain if c is not None]
    shared = pairs.shared_by_or(text, relation, conditions) if known else []
    if shared and query.binder.takes_keys_out_of_or():
        conditions = [*conditions, *shared]
    if known and len(known) == len(chain):
        relation, conditions = pairs.pushed(text, first, known, relation, conditions)
    for lateral in node.args.get("laterals") or ():
        if lateral is not clause:
            relation = from_items.lateral(query, query.settled(relation, node), lateral)
    if outer is not None:
        relation = correlated.with_values(query, outer, relation, equal)
    relation = _where(query, relation, conditions, node, ctes)
    return query.settled(relation, node)


def _by_outer(node: exp.Select, outer: Outer) -> exp.Select:
    """A SELECT whose window functions are partitioned by the values of the enclosing rows."""
    node = node.copy()
    parts = [*node.expressions, *(p for p in (node.args.get("qualify"),) if p is not None)]
    called = [w for p in parts for w in p.find_all(exp.Window) if w.find_ancestor(exp.Select) is node]
    for window in (*called, *(node.args.get("windows") or ())):
        window.set("partition_by", [*(window.args.get("partition_by") or ()), *map(exp.column, outer.names)])
    distinct = node.args.get("distinct")
    on = None if distinct is None else distinct.args.get("on")
    if distinct is not None and on is not None:
        keys = on.expressions if isinstance(on, exp.Tuple) else [on.unnest()]
        distinct.set("on", exp.Tuple(expressions=[*keys, *map(exp.column, outer.names)]))
    return node


def _inside_aggregates(
    query: _Query, relation: Relation, node: exp.Select, ctes: Mapping[str, Relation]
) -> tuple[Relation, exp.Select]:
    """A SELECT with the subqueries inside its aggregates as columns of its input rows."""
    parts = [*node.expressions, *([node.args["having"]] if node.args.get("having") is not None else [])]
    if not any(next(subqueries_of(a), None) is not None for p in parts for a in aggregates.aggregates_in(p)):
        return relation, node
    node = node.copy()
    parts = [*node.expressions, *([node.args["having"]] if node.args.get("having") is not None else [])]
    for aggregate in [a for p in parts for a in aggregates.aggregates_in(p)]:
        relation, attached = subqueries.attached(query, relation, aggregate, ctes)
        aggregate.replace(attached)
    return relation, node


def _where(
    query: _Query, relation: Relation, conditions: list[exp.Expr], node: exp.Select, ctes: Mapping[str, Relation]
) -> Relation:
    text = query.text
    if not conditions:
        return relation  # an enclosing query may still bound a ROW_NUMBER()
    parts = pairs.in_order(conditions)
    if relation.ranked is not None:
        relation, parts = _bounded(query, relation, relation.ranked, parts, node)
    for part in parts:
        if part.find(exp.Query) is not None:
            relation = subqueries.applied(query, relation, part, ctes)
            continue
        predicate = relation.expr(text, part, clock=True)
        with text.at(part):
            relation = relation.with_stream(relation.stream.where(predicate))
    return relation


def _bounded(
    query: _Query, relation: Relation, ranked: Ranked, parts: list[exp.Expr], node: exp.Select
) -> tuple[Relation, list[exp.Expr]]:
    """The first rows if a condition bounds their number, otherwise all rows numbered; and the other conditions."""
    bound = next((b for p in parts if (b := _bound(p, ranked.name)) is not None), None)
    if bound is None:
        return query.settled(relation, node), parts
    part, most = bound
    start = node.args.get("from_")
    inside = {id(n) for n in (*part.walk(), *(start.walk() if start is not None else ()))}
    used = any(
        isinstance(n, exp.Star) or (isinstance(n, exp.Column) and n.name.lower() == ranked.name.lower())
        for n in node.walk()
        if id(n) not in inside
    )
    bounded_relation = ranked.bounded(most, used).called(next(iter(relation.aliases), None))
    return bounded_relation, [p for p in parts if p is not part]


def _bound(part: exp.Expr, name: str) -> tuple[exp.Expr, int] | None:
    """The number of rows that a condition on the row number selects."""
    left, right = part.args.get("this"), part.args.get("expression")
    flipped = isinstance(right, exp.Column) and right.name.lower() == name.lower()
    column, value = (right, left) if flipped else (left, right)
    if not isinstance(column, exp.Column) or column.name.lower() != name.lower() or value is None:
        return None
    try:
        number = plain_value(value)
    except ValueError:
        return None
    if not isinstance(number, int) or number < 1:
        return None
    upto = (exp.GTE, exp.GT) if flipped else (exp.LTE, exp.LT)
    if isinstance(part, upto[0]):
        return part, number
    if isinstance(part, upto[1]) and number > 1:
        return part, number - 1
    return (part, 1) if isinstance(part, exp.EQ) and number == 1 else None


def _select_items(query: _Query, relation: Relation, node: exp.Select) -> list[Item]:
    """The output columns with their names; * is expanded."""
    items: list[Item] = []
    for i, item in enumerate(node.expressions, 1):
        inner = item.this if isinstance(item, exp.Alias) else item
        if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
            items += stars.spelled_out(query, relation, inner)
        elif isinstance(item, exp.Aliases):
            raise Unsupported(f"`{item.sql(dialect='spark')[:60]}`", origin=query.text.of_node(item))
        else:
            items += named_items([item], i)
    stars.check_names(query, items)
    return items


def named_items(items: Sequence[exp.Expr], number: int = 1) -> list[Item]:
    """Output columns with their names; an unnamed column is named by its number, starting with `number`."""
    named = []
    for i, item in enumerate(items, number):
        inner = item.this if isinstance(item, exp.Alias) else item
        named.append((item.alias if isinstance(item, exp.Alias) else _name(inner, i), inner))
    return named


def _name(node: exp.Expr, number: int) -> str:
    if isinstance(node, exp.Column | exp.Dot):
        return str(node.name if isinstance(node, exp.Column) else node.expression.name)
    if aggregates.is_aggregate(node):
        return aggregates.name_of(node)
    called = windows.name_of(node)
    for names, name in ((windows.STARTS, "window_start"), (windows.ENDS, "window_end"), (windows.TIMES, "window_time")):
        if called in names:
            return name
    return f"column_{number}"


def _plain(
    query: _Query, relation: Relation, node: exp.Select, ctes: Mapping[str, Relation], outer: Outer | None
) -> Relation:
    """A SELECT that does not group."""
    items = _select_items(query, relation, node)
    for i, (name, inner) in enumerate(items):
        relation, attached = subqueries.attached(query, relation, inner, ctes)
        items[i] = (name, attached)
    items += [(n, exp.column(n)) for n in (() if outer is None else outer.names)]
    arrays = [(n, i) for n, i in items if isinstance(i, exp.Explode | exp.ExplodeOuter)]
    if len(arrays) > 1:
        raise Unsupported(
            "two explode(...) in one SELECT",
            hint="all pairs: FROM t LATERAL VIEW explode(a) x AS e LATERAL VIEW explode(b) y AS f; "
            "side by side: explode(arrays_zip(a, b)) AS pair",
            origin=query.text.of_node(arrays[1][1]),
        )
    for name, inner in arrays:
        keeps = isinstance(inner, exp.ExplodeOuter)
        relation = from_items.element(query.text, relation, name, inner.this, outer=keeps)
        items = [(n, exp.column(name) if i is inner else i) for n, i in items]
    items = window_function.named(query, node, items)
    condition = qualify.condition(query, relation, node, items)
    if condition is not None:
        return _qualified(query, relation, items, condition, node)
    numbers = [(n, i) for n, i in items if isinstance(i, exp.Window)]
    window_calls = [w for _, i in items for w in i.find_all(exp.Window)]
    if not window_calls:
        return _projected(query, relation, items, node)
    if (
        len(window_calls) == 1
        and numbers
        and isinstance(window_calls[0].this, exp.RowNumber)
        and window_calls[0].args.get("order")
    ):
        if len(items) > 1:
            return _numbered(query, relation, *numbers[0], items, node)
    relation, items = window_function.computed(query, relation, items, node)
    return _projected(query, relation, items, node)


def _grouped(
    query: _Query, relation: Relation, node: exp.Select, ctes: Mapping[str, Relation], outer: Outer | None
) -> Relation:
    """A SELECT that groups; its window functions are over the groups."""
    relation, node = _inside_aggregates(query, relation, node, ctes)
    items = window_function.named(query, node, _select_items(query, relation, node))
    condition = qualify.condition(query, relation, node, items)
    if condition is not None:
        condition = window_function.named(query, node, [("", condition)])[0][1]
    relation, bound_items, condition = grouped(query, relation, node, items, ctes, outer, condition)
    if condition is not None:
        return _qualified(query, relation, bound_items, condition, node)
    if any(True for _, i in bound_items for _ in i.find_all(exp.Window)):
        relation, bound_items = window_function.computed(query, relation, bound_items, node)
    return _projected(query, relation, bound_items, node)


def _qualified(query: _Query, relation: Relation, items: list[Item], condition: exp.Expr, node: exp.Select) -> Relation:
    """The output columns of the rows that pass QUALIFY or DISTINCT ON."""

    def top(relation: Relation, window: exp.Window, most: int) -> Relation:
        keys = [relation.expr(query.text, k) for k in window.args.get("partition_by") or ()]
        by = [_ordered(relation, query, o) for o in window.args["order"].expressions]
        with query.text.at(window):
            return relation.with_stream(_top(relation, keys, most, by, None))

    condition = window_function.named(query, node, [("", condition)])[0][1]
    relation, items = qualify.kept(
        query, relation, items, condition, top, lambda r, i: window_function.computed(query, r, i, node)
    )
    return _projected(query, relation, items, node)


def _numbered(
    query: _Query, relation: Relation, name: str, window: exp.Expr, items: list[Item], node: exp.Select
) -> Relation:
    text = query.text
    rest = [(n, i) for n, i in items if i is not window]
    order = window.args["order"]
    keys = [relation.expr(text, k) for k in window.args.get("partition_by") or ()]
    by = [_ordered(relation, query, o) for o in order.expressions]

    def bounded(most: int, used: bool) -> Relation:
        there = {folded(n) for n in relation.stream.schema.names}
        rank = f"{HIDDEN}rank" if folded(name) in there else name  # the row number may hide a column of the same name
        with text.at(window):
            top = _top(relation, keys, most, by, rank if used else None)
            named = [(n, exp.column(rank) if i is window else i) for n, i in items] if used else rest
            return _projected(query, relation.with_stream(top), named, node, also={rank} if used else set())

    def whole() -> Relation:
        computed_relation, named = window_function.computed(query, relation, items, node)
        return _projected(query, computed_relation, named, node)

    inner = _projected(query, relation, rest, node)
    aliases = {a: {**c, name.lower(): name} for a, c in inner.aliases.items()}
    return replace(inner, ranked=Ranked(name, bounded, whole), aliases=aliases)


def _top(relation: Relation, keys: list[Expr], most: int, by: list[str], rank: str | None):  # type: ignore[no-untyped-def]
    if most <= 0:
        raise DefinitionError("a bound below 1 excludes every row")
    if not keys:
        return relation.stream.top(most, *by, rank=rank)
    plain = [k.columns()[0] for k in keys if k.columns() and k.spark() == f"`{k.columns()[0]}`"]
    named = {f"key_{i}": k for i, k in enumerate(keys) if k.spark() not in {f"`{p}`" for p in plain}}
    names = (*relation.stream.schema.names, *([] if rank is None else [rank]))
    named = {free_name(n, names): k for n, k in named.items()}
    return relation.stream.key_by(*(col(p) for p in plain), **named).top(most, *by, rank=rank)


def _ordered(relation: Relation, query: _Query, order: exp.Expr) -> str:
    key = window_function.order_of(query, relation, order)
    return f"{key.by.spark()} {'DESC' if key.descending else 'ASC'} NULLS {'FIRST' if key.nulls_first else 'LAST'}"


def _projected(
    query: _Query,
    relation: Relation,
    items: list[Item],
    node: exp.Expr,
    *,
    also: set[str] | frozenset[str] = frozenset(),
) -> Relation:
    """The output columns over a relation."""
    text = query.text
    columns: dict[str, Expr] = {}
    clocks: set[str] = set()
    times: set[str] = set()
    for name, inner in items:
        if windows.name_of(inner) == "proctime":
            clocks.add(name)
            continue
        tree = relation.resolved(text, inner, also=also)
        if isinstance(tree, exp.Column) and tree.name in relation.clocks:
            clocks.add(name)
            continue
        if isinstance(tree, exp.Column) and tree.name in relation.times:
            times.add(name)
        columns[name] = checked(text, tree) if also else relation.expr(text, inner)
    if not columns:
        raise DefinitionError(
            "a view needs at least one column",
            detail=f"the time of processing is not kept: {', '.join(clocks)}" if clocks else None,
            hint="select a column of the records, or group by a window over the time of processing",
            origin=text.of_node(node),
        )
    with text.at(node):
        same = list(columns) == list(relation.stream.schema.names) and all(
            e.spark() == f"`{n}`" for n, e in columns.items()
        )
        stream = relation.stream if same else relation.stream.select(**columns)
    return Relation(stream, times=frozenset(times), clocks=frozenset(clocks))


def _first_rows(query: _Query, relation: Relation, node: exp.Select, outer: Outer | None) -> tuple[Relation, bool]:
    """ORDER BY ... LIMIT n over columns that are not in the output: applied before they are dropped."""
    order, limit = node.args.get("order"), node.args.get("limit") or node.args.get("offset")
    names = {n.lower() for n, _ in _select_items(query, relation, node)}
    if order is None or limit is None or node.args.get("distinct") is not None or node.args.get("qualify") is not None:
        return relation, False
    if all(c.name.lower() in names for c in order.find_all(exp.Column)):
        return relation, False
    return limited(query, relation, node, outer), True


def _spelled(query: _Query, relation: Relation, order: exp.Expr) -> exp.Expr:
    """Resolves a column number in ORDER BY to that column."""
    name = numbered(query.text, order.this, relation.names, "ORDER BY", part=order)
    if name is None:
        return order
    spelled = order.copy()
    spelled.set("this", exp.column(name))
    return spelled


def limited(
    query: _Query, relation: Relation, node: exp.Expr, outer: Outer | None = None, before: Relation | None = None
) -> Relation:
    """ORDER BY ... LIMIT n of a SELECT, a set operation or a subquery keeps the first n rows. ORDER BY alone has no
    effect, because a relation has no order. `before` has the rows that the output columns are computed from.
    """
    order, limit, text = node.args.get("order"), node.args.get("limit"), query.text
    offset = node.args.get("offset")
    if limit is None and offset is None:
        if order is not None and not _is_distinct_on(node):
            _check_order(query, relation, order, before)
        return relation
    if order is None:
        raise Unsupported(
            f"{'OFFSET' if limit is None else 'LIMIT'} without ORDER BY would keep any rows",
            hint="add ORDER BY",
            origin=text.of_node(limit or offset) or text.of_node(node),
        )
    bounds = offset_and_ties.bounds_of(query, limit, offset)
    relation = query.settled(relation, node)
    spelled = [_spelled(query, relation, o) for o in order.expressions]
    keys = () if outer is None else outer.names
    with text.at(order):
        if bounds.most is not None and not bounds.offset and not bounds.ties:
            by = [_ordered(relation, query, o) for o in spelled]
            return relation.with_stream(_top(relation, [col(n) for n in keys], bounds.most, by, None))
        ordered = [window_function.order_of(query, relation, o) for o in spelled]
        return relation.with_stream(offset_and_ties.between(relation.stream, keys, ordered, bounds))


def _is_distinct_on(node: exp.Expr) -> bool:
    """Whether the order of a SELECT belongs to its DISTINCT ON."""
    distinct = node.args.get("distinct")
    return isinstance(distinct, exp.Distinct) and distinct.args.get("on") is not None


def _check_order(query: _Query, relation: Relation, order: exp.Expr, before: Relation | None) -> None:
    """Reject an order by unknown columns, although it has no effect."""
    for each in order.expressions:
        spelled = _spelled(query, relation, each).this
        for column in spelled.find_all(exp.Column) if spelled.find(exp.Query) is None else ():
            try:
                (before or relation).resolved(query.text, column)
            except SchemaError:
                if relation.ranked is None or column.name.lower() != relation.ranked.name.lower():
                    relation.resolved(query.text, column)
