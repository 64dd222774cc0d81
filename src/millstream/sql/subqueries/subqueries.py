"""Converts subqueries in expressions (IN, EXISTS and scalar subqueries) to joins.

An IN or EXISTS that is a condition of WHERE becomes a semi join or an anti join. Everywhere else a subquery becomes a
column that a left join adds to the outer rows, and the expression uses that column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import SchemaError, Unsupported
from millstream.model.aggregates.aggregate import Aggregate
from millstream.model.expression import Expr, col
from millstream.model.steps.event_times import conjuncts
from millstream.model.streams.keyed import Keyed
from millstream.model.streams.stream import Stream
from millstream.sql.relations.relation import HIDDEN, Relation, checked, own
from millstream.sql.subqueries import correlated as dependent
from millstream.sql.subqueries.correlated import Outer, correlated, inside, joined, over_no_rows, type_of, uses
from millstream.sql.subqueries.scopes import is_subquery, subqueries_of

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

Ctes = Mapping[str, Relation]
_SYMBOLS: dict[type, str] = {exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}


def applied(query: _Query, relation: Relation, part: exp.Expr, ctes: Ctes) -> Relation:
    """A relation with a WHERE condition applied that contains a subquery."""
    inner, negated = part.unnest(), False
    while isinstance(inner, exp.Not):
        inner, negated = inner.this.unnest(), not negated
    inner, other_way = _as_in(query, inner)
    negated = negated != other_way
    if is_subquery(inner) and isinstance(inner, exp.Exists):
        filtered = _exists(query, relation, inner, ctes, negated=negated)
    elif is_subquery(inner) and isinstance(inner, exp.In):
        filtered = _in(query, relation, inner, ctes, negated=negated)
    else:
        filtered = None
    if filtered is not None:
        return filtered
    over, tree = attached(query, relation, part, ctes)
    condition = over.expr(query.text, tree, clock=True)
    with query.text.at(part):
        return over.with_stream(over.stream.where(condition))


def attached(query: _Query, relation: Relation, node: exp.Expr, ctes: Ctes) -> tuple[Relation, exp.Expr]:
    """A relation with the subqueries of an expression as columns, and the expression over these."""
    if next(subqueries_of(node), None) is None:
        return relation, node
    root = exp.Paren(this=node.copy())
    for comparison in list(root.find_all(exp.Binary)):
        membership, negated = _as_in(query, comparison)
        if membership is not comparison:
            comparison.replace(exp.Not(this=membership) if negated else membership)
    for inner in list(subqueries_of(root)):
        if isinstance(inner, exp.Exists):
            relation, marked = _mark(query, relation, inner, ctes)
        elif isinstance(inner, exp.In):
            relation, marked = _membership(query, relation, inner, ctes)
        else:
            relation, marked = _value(query, relation, inner, ctes)
        inner.replace(marked)
    tree: exp.Expr = root.this
    return relation, tree


def _as_in(query: _Query, node: exp.Expr) -> tuple[exp.Expr, bool]:
    """``= ANY (SELECT ...)`` as IN, ``<> ALL (SELECT ...)`` as a negated IN."""
    sides = [node.args.get("this"), node.args.get("expression")] if isinstance(node, exp.Binary) else []
    quantified = next((s for s in sides if isinstance(s, exp.Any | exp.All) and s.find(exp.Query)), None)
    if quantified is None:
        return node, False
    negated = isinstance(node, exp.NEQ)
    if not isinstance(node, exp.EQ | exp.NEQ) or isinstance(quantified, exp.All) != negated:
        raise Unsupported(
            f"a comparison by {_SYMBOLS.get(type(node), node.key)} with {quantified.key.upper()} (SELECT ...)",
            hint="compare one value with one column; (a, b) IN (SELECT x, y ...) compares several",
            origin=query.text.of_node(node),
        )
    other = sides[0] if quantified is sides[1] else sides[1]
    assert other is not None
    return exp.In(this=other.copy(), query=quantified.this.copy()), negated


# ------------------------------------------------------------ conditions of WHERE


def _exists(query: _Query, relation: Relation, node: exp.Exists, ctes: Ctes, *, negated: bool) -> Relation | None:
    """WHERE [NOT] EXISTS as a semi join or an anti join; None if it does not depend on the outer rows."""
    tree, outer = correlated(query, node.this, ctes, relation)
    if outer is None:
        return None
    how = "anti" if negated else "semi"
    select = tree.unnest() if isinstance(tree, exp.Subquery) else tree
    inner_relation = None
    if isinstance(select, exp.Select):
        inner_relation = _plain(query, relation, select, query.with_ctes(tree, ctes), outer)
    if inner_relation is None:
        other = query.settled(query.query(tree, ctes, outer), node)
        return joined(query, relation, other, how, outer.on(inside(relation, other)), node)[0]
    return joined(query, relation, inner_relation[0], how, inner_relation[1], node)[0]


def _plain(
    query: _Query, relation: Relation, select: exp.Select, ctes: Ctes, outer: Outer
) -> tuple[Relation, list[exp.Expr]] | None:
    """The rows of a SELECT that only filters and joins, and the conditions on them and the outer rows; None if it does
    more.
    """
    from millstream.sql.bind.select import groups, rows_of

    if groups(select) or any(select.args.get(a) for a in ("having", "limit", "offset", "qualify", "laterals", "with_")):
        return None
    start, where = select.args.get("from_"), select.args.get("where")
    if start is None or uses(start, outer) or where is None:
        return None
    parts = list(conjuncts(where.this))
    outside = [p for p in parts if uses(p, outer)]
    joins = select.args.get("joins") or ()
    if any(uses(j, outer) for j in joins) or any(p.find(exp.Query) is not None for p in outside):
        return None
    rows = select.copy()
    rest = [p.copy() for p in parts if not uses(p, outer)]
    rows.set("where", exp.Where(this=exp.and_(*rest)) if rest else None)
    other = rows_of(query, rows, ctes)
    for item in select.expressions:
        for column in item.find_all(exp.Column):
            if column.name not in outer.columns and not isinstance(column.this, exp.Star):
                other.resolved(query.text, column)
    names = inside(relation, other)
    return other, [checked(query.text, _paired(query, p, other, names, outer)).node for p in outside]


def _paired(query: _Query, part: exp.Expr, other: Relation, names: Mapping[str, str], outer: Outer) -> exp.Expr:
    """A condition of a subquery over pairs of an outer row and an inner row."""
    tree = exp.Paren(this=part.copy())
    for column in list(tree.find_all(exp.Column)):
        if column.name in outer.columns:
            column.replace(exp.column(outer.columns[column.name]))
            continue
        resolved = other.resolved(query.text, column)
        root = resolved if isinstance(resolved, exp.Column) else resolved.find(exp.Column)
        assert isinstance(root, exp.Column)
        root.set("this", exp.to_identifier(names[root.name]))
        column.replace(resolved)
    inner: exp.Expr = tree.this
    return inner


def _in(query: _Query, relation: Relation, node: exp.In, ctes: Ctes, *, negated: bool) -> Relation | None:
    """WHERE x IN (SELECT ...) as a semi join; NOT IN as an anti join if nothing is NULL; None if
    neither is possible.
    """
    values = _compared(query, relation, node)
    if negated and len(values) > 1:
        return None
    tree, outer = correlated(query, node.args["query"], ctes, relation)
    other = _members(query, tree, ctes, outer, values, node)
    names = inside(relation, other)
    on = [*([] if outer is None else outer.on(names)), *_equal(values, [names[n] for n in other.names])]
    joined_relation, _ = joined(query, relation, other, "anti" if negated else "semi", on, node)
    if not negated:
        return joined_relation
    joined_relation, empty, nulls = _counted(query, joined_relation, other, outer, node)
    there = exp.and_(values[0].is_(exp.null()).not_(), exp.Not(this=nulls))
    with query.text.at(node):
        return joined_relation.with_stream(joined_relation.stream.where(Expr(exp.or_(empty, there))))


# ------------------------------------------------------------ columns


def _mark(query: _Query, relation: Relation, node: exp.Exists, ctes: Ctes) -> tuple[Relation, exp.Expr]:
    """EXISTS as a column that is TRUE or FALSE."""
    tree, outer = correlated(query, node.this, ctes, relation)
    other = query.settled(query.query(tree, ctes, outer), node)
    totals = _totals(other.stream, outer, {f"{HIDDEN}n": Aggregate("count")})
    there = Relation(_shown(totals, outer, {f"{HIDDEN}there": Expr(exp.column(f"{HIDDEN}n") > 0)}))
    joined_relation, (mark,) = _beside(query, relation, there, outer, [f"{HIDDEN}there"], node)
    return joined_relation, exp.func("coalesce", mark, exp.false())


def _membership(query: _Query, relation: Relation, node: exp.In, ctes: Ctes) -> tuple[Relation, exp.Expr]:
    """IN as a column: TRUE, FALSE, or NULL if a NULL may be equal to the value."""
    values = _compared(query, relation, node)
    tree, outer = correlated(query, node.args["query"], ctes, relation)
    other = _members(query, tree, ctes, outer, values, node)
    members, member = _found(query, relation, other, outer, values, node)
    if len(values) == 1:
        counted, empty, nulls = _counted(query, members, other, outer, node)
        unknown: exp.Expr = exp.and_(exp.Not(this=empty), exp.or_(values[0].is_(exp.null()), nulls))
    else:
        counted, unknown = _maybe(query, members, other, outer, values, node)
    case = exp.Case(ifs=[exp.If(this=member, true=exp.true()), exp.If(this=unknown, true=exp.null())])
    case.set("default", exp.false())
    return counted, case


def _found(
    query: _Query, relation: Relation, other: Relation, outer: Outer | None, values: Sequence[exp.Expr], node: exp.Expr
) -> tuple[Relation, exp.Expr]:
    """Rows with a column that states whether the values are among those of a subquery."""
    stream = other.stream
    for name in other.names:
        stream = stream.where(Expr(exp.column(name).is_(exp.null()).not_()))
    keys = [*([] if outer is None else outer.names), *other.names]
    grouped = stream.key_by(*(col(k) for k in keys)).aggregate(**{f"{HIDDEN}n": Aggregate("count")})
    marked = {**{k: col(k) for k in keys}, f"{HIDDEN}member": Expr(exp.true())}
    members = Relation(grouped.select(**marked))
    names = inside(relation, members)
    on = [*([] if outer is None else outer.on(names)), *_equal(values, [names[n] for n in other.names])]
    joined_relation, names = joined(query, relation, members, "left", on, node)
    return joined_relation, own(names[f"{HIDDEN}member"]).is_(exp.null()).not_()


def _counted(
    query: _Query, relation: Relation, other: Relation, outer: Outer | None, node: exp.Expr
) -> tuple[Relation, exp.Expr, exp.Expr]:
    """Rows with columns that state whether a subquery has no rows for them, and whether it has a NULL."""
    (name,) = other.names
    rows, filled = f"{HIDDEN}n", f"{HIDDEN}filled"
    totals = _totals(other.stream, outer, {rows: Aggregate("count"), filled: Aggregate("count", col(name))})
    empty, nulls = f"{HIDDEN}empty", f"{HIDDEN}nulls"
    flags = {empty: Expr(exp.column(rows).eq(0)), nulls: Expr(exp.column(rows) > exp.column(filled))}
    joined_relation, columns = _beside(
        query, relation, Relation(_shown(totals, outer, flags)), outer, list(flags), node
    )
    return joined_relation, exp.func("coalesce", columns[0], exp.true()), exp.func("coalesce", columns[1], exp.false())


def _maybe(
    query: _Query, relation: Relation, other: Relation, outer: Outer | None, values: Sequence[exp.Expr], node: exp.Expr
) -> tuple[Relation, exp.Expr]:
    """Rows with a condition that states whether membership of several values in a subquery is unknown: the subquery has
    rows that differ from them only in NULLs.
    """
    mine = {f"{HIDDEN}x{i}": Expr(v.copy()) for i, v in enumerate(values)}
    around = {} if outer is None else {f"{HIDDEN}y{i}": col(c) for i, c in enumerate(outer.columns.values())}
    looked_for = Relation(relation.stream.select(**mine, **around).distinct())
    names = inside(looked_for, other)
    on: list[exp.Expr] = []
    for name, inner in zip(around, [] if outer is None else outer.names, strict=True):
        on.append(dependent.same_or_null(exp.column(name), exp.column(names[inner]), type_of(looked_for, name)))
    equal = exp.and_(*_equal([exp.column(x) for x in mine], [names[n] for n in other.names]))
    on.append(exp.paren(equal).is_(exp.null()))
    rows, _ = joined(query, looked_for, other, "semi", on, node)
    marked = rows.stream.select(**{n: col(n) for n in (*mine, *around)}, **{f"{HIDDEN}maybe": Expr(exp.true())})
    marked_relation = Relation(marked)
    names = inside(relation, marked_relation)
    back: list[exp.Expr] = []
    for name, value in zip(mine, values, strict=True):
        back.append(dependent.same_or_null(value, exp.column(names[name]), type_of(looked_for, name)))
    for name, column in zip(around, [] if outer is None else outer.columns.values(), strict=True):
        back.append(dependent.same_or_null(exp.column(column), exp.column(names[name]), type_of(looked_for, name)))
    joined_relation, names = joined(query, relation, marked_relation, "left", back, node)
    return joined_relation, own(names[f"{HIDDEN}maybe"]).is_(exp.null()).not_()


def _value(query: _Query, relation: Relation, node: exp.Expr, ctes: Ctes) -> tuple[Relation, exp.Expr]:
    """A scalar subquery as a column."""
    tree, outer = correlated(query, node, ctes, relation)
    select = tree.unnest()
    if not _is_single(select):
        raise Unsupported(
            "a scalar subquery must return at most one row",
            hint="an aggregate without GROUP BY does, e.g. (SELECT max(x) ...), or ORDER BY ... LIMIT 1; "
            "or use IN or EXISTS",
            origin=query.text.of_node(node),
        )
    if outer is not None and isinstance(select, exp.Select) and _is_plain_total(select):
        return _total(query, relation, select, query.with_ctes(tree, ctes), outer)
    values = query.settled(query.query(tree, ctes, outer), node)
    name = _only(query, values.names, node)
    joined_relation, (value,) = _beside(query, relation, values, outer, [name], node)
    return joined_relation, value


def _total(
    query: _Query, relation: Relation, select: exp.Select, ctes: Ctes, outer: Outer
) -> tuple[Relation, exp.Expr]:
    """An aggregate of the rows that a subquery has for each outer row; 0 or NULL if there are none."""
    from millstream.sql.bind.grouping.group_by import Grouping
    from millstream.sql.bind.select import _inside_aggregates, _select_items, rows_of

    rows = rows_of(query, select, ctes, outer)
    rows, select = _inside_aggregates(query, rows, select, ctes)
    items = _select_items(query, rows, select)
    _only(query, [n for n, _ in items], select)
    grouping = Grouping(query, rows, select, items, ctes, outer)
    groups = grouping.groups_of_rows()
    dependent.check_over_no_rows(query, grouping.measures, select)
    joined_relation, names = joined(query, relation, groups, "left", outer.on(inside(relation, groups)), select)
    having = select.args.get("having")
    tree = grouping.over(items[0][1])
    if having is not None:
        tree = exp.Case(ifs=[exp.If(this=grouping.over(having.this), true=tree)])
    root = exp.Paren(this=tree)
    if next(subqueries_of(root), None) is not None:
        raise Unsupported(
            "a subquery over the aggregates of a correlated subquery",
            hint="group in FROM, and join",
            origin=query.text.of_node(select),
        )
    for column in list(root.find_all(exp.Column)):
        if column.name in outer.columns:
            column.replace(own(outer.columns[column.name]))
        elif column.name in grouping.measures:
            kind = grouping.measures[column.name].kind
            column.replace(over_no_rows(kind, own(names[column.name])))
    inner: exp.Expr = root.this
    return joined_relation, exp.paren(inner, copy=False)


# ------------------------------------------------------------ helpers


def _beside(
    query: _Query, relation: Relation, other: Relation, outer: Outer | None, columns: Sequence[str], node: exp.Expr
) -> tuple[Relation, list[exp.Expr]]:
    """Rows with the columns of a relation that has at most one row for each of them."""
    names = inside(relation, other)
    joined_relation, _ = joined(query, relation, other, "left", [] if outer is None else outer.on(names), node)
    return joined_relation, [own(names[n]) for n in columns]


def _totals(stream: Stream, outer: Outer | None, measures: Mapping[str, Aggregate]) -> Stream:
    """Aggregates of the rows for each value of the outer rows."""
    keyed = Keyed(stream, ()) if outer is None else stream.key_by(*(col(n) for n in outer.names))
    return keyed.aggregate(**measures)


def _shown(stream: Stream, outer: Outer | None, columns: Mapping[str, Expr]) -> Stream:
    return stream.select(**{n: col(n) for n in (() if outer is None else outer.names)}, **columns)


def _compared(query: _Query, relation: Relation, node: exp.In) -> list[exp.Expr]:
    """The values on the left side of IN."""
    left = node.this.unnest()
    parts = left.expressions if isinstance(left, exp.Tuple) else [left]
    return [relation.expr(query.text, p).node for p in parts]


def _members(
    query: _Query, tree: exp.Expr, ctes: Ctes, outer: Outer | None, values: Sequence[exp.Expr], node: exp.Expr
) -> Relation:
    """The rows on the right side of IN."""
    members = query.settled(query.query(tree, ctes, outer), node)
    if len(members.names) != len(values):
        columns_text = "one column" if len(values) == 1 else f"{len(values)} columns"
        raise SchemaError(f"IN compares with {columns_text}, not {len(members.names)}", origin=query.text.of_node(node))
    return members


def _equal(values: Sequence[exp.Expr], columns: Sequence[str]) -> list[exp.Expr]:
    return [exp.EQ(this=v.copy(), expression=exp.column(c)) for v, c in zip(values, columns, strict=True)]


def _only(query: _Query, names: Sequence[str], node: exp.Expr) -> str:
    if len(names) != 1:
        raise SchemaError(f"a value is one column, not {len(names)}", origin=query.text.of_node(node))
    return names[0]


def _is_total(select: exp.Select) -> bool:
    """Whether a SELECT is an aggregate of all its rows."""
    from millstream.sql.bind.select import groups

    return select.args.get("group") is None and groups(select)


def _is_plain_total(select: exp.Select) -> bool:
    """Whether a SELECT is such an aggregate, and no later clause can remove its row."""
    behind = any(select.args.get(a) is not None for a in ("qualify", "limit", "offset", "distinct"))
    return _is_total(select) and not behind and select.find(exp.Window) is None


def _is_single(node: exp.Expr) -> bool:
    """Whether a query is certain to return at most one row."""
    limit = node.args.get("limit")
    options = None if limit is None else limit.args.get("limit_options")
    if limit is not None and not (options is not None and options.args.get("with_ties")):
        count = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
        if isinstance(count, exp.Literal) and count.name == "1":
            return True
    if isinstance(node, exp.Subquery):
        return _is_single(node.this)
    if not isinstance(node, exp.Select):
        return False
    if node.args.get("group") is None and _is_total(node):
        return True
    alone = not any(node.args.get(a) for a in ("joins", "laterals")) and node.find(exp.Explode, exp.Unnest) is None
    start = node.args.get("from_")
    if start is None:
        return alone
    inner = start.this
    return alone and isinstance(inner, exp.Subquery) and not inner.args.get("joins") and _is_single(inner)
