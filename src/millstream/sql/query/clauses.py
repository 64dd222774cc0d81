"""Rewrites clauses that the store does not support to equivalent ones, so that no part of a query is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from millstream.errors import Unsupported
from millstream.sql.bind.grouping import aggregates
from millstream.sql.query import functions, interval_sums
from millstream.sql.relations import array_functions


def in_store(tree: exp.Query, tables: Mapping[str, Sequence[str]]) -> exp.Query:
    """A query over some tables in clauses that the store supports. Rejects what cannot be expressed."""
    tree = tree.copy()
    _name_columns(tree)
    interval_sums.in_store(tree, tables)
    for view in list(tree.find_all(exp.Lateral)):
        if view.args.get("view") and isinstance(view.parent, exp.Select):
            _joined(view, view.parent)
    for part in list(tree.find_all(exp.Table, exp.Lateral)):
        if array_functions.call_of(part) is not None and not isinstance(part.this, exp.Unnest):
            _rows(part)
    for group in list(tree.find_all(exp.Group)):
        if group.args.get("all") and isinstance(group.parent, exp.Select):
            _named_groups(group, group.parent)
    for values in tree.find_all(exp.Values):
        if isinstance(values.parent, exp.From | exp.Join):
            _named(values)
    without_ties(tree)
    rewritten = functions.in_store(tree)
    assert isinstance(rewritten, exp.Query)
    return rewritten


def _name_columns(tree: exp.Query) -> None:
    """Name each unnamed output column by its text: the store would name it in its own dialect."""
    select = tree
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    for item in select.selects if isinstance(select, exp.Select) else ():
        if not item.is_star and not isinstance(item, exp.Alias | exp.Aliases | exp.Column | exp.Dot):
            text = item.unnest().sql(dialect="spark", normalize_functions="lower")[:60]
            item.replace(exp.alias_(item.copy(), text, quoted=True))


def without_ties(tree: exp.Expr) -> None:
    """Replace WITH TIES by QUALIFY: neither the store nor Spark supports it."""
    for options in list(tree.find_all(exp.LimitOptions)):
        if options.args.get("with_ties"):
            _with_ties(options.parent)


def _rows(part: exp.Expr) -> None:
    """``generate_series(1, n) AS g(i)`` becomes ``(SELECT unnest(...) AS i) AS g``; it may refer to
    preceding columns.
    """
    call = array_functions.call_of(part)
    assert call is not None
    array, alias = array_functions.array_of(None, call), part.args.get("alias")
    name = array_functions.column_of(call, alias.name if alias is not None else "")
    each: exp.Expr = exp.Explode(this=array.copy())
    start = call.args.get("start")
    if isinstance(start, exp.Cast) and start.is_type("date"):
        each = exp.cast(each, "DATE")  # the store converts dates to times
    rows = exp.select(exp.alias_(each, name)).subquery()
    if isinstance(part, exp.Lateral):
        part.set("this", rows)
        return
    rows.set("alias", alias.copy() if alias is not None else exp.TableAlias(this=exp.to_identifier(name)))
    part.replace(rows)


def _joined(view: exp.Lateral, select: exp.Select) -> None:
    """``FROM t LATERAL VIEW explode(x) u AS y`` becomes ``FROM t CROSS JOIN LATERAL explode(x) AS u(y)``."""
    view.pop()
    outer = view.args.get("outer")
    view.set("view", False)
    view.set("outer", False)
    join = exp.Join(this=view, side="LEFT", on=exp.true()) if outer else exp.Join(this=view, kind="CROSS")
    select.append("joins", join)


def _named(values: exp.Values) -> None:
    """The columns of VALUES are named col1, col2, ... by default, as in a view."""
    alias = values.args.get("alias") or exp.TableAlias(this=exp.to_identifier("rows"))
    row = values.expressions[0]
    if not alias.args.get("columns"):
        wide = len(row.expressions) if isinstance(row, exp.Tuple) else 1
        alias.set("columns", [exp.to_identifier(f"col{i}") for i in range(1, wide + 1)])
    values.set("alias", alias)


def _named_groups(group: exp.Group, select: exp.Select) -> None:
    """Replaces GROUP BY ALL by column names if there are window functions: the store would group by those too."""
    items = [i.unalias() for i in select.expressions]
    if any(i.find(exp.Star) is not None for i in items if not aggregates.is_aggregate(i)) or not any(
        i.find(exp.Window) for i in items
    ):
        return
    keys = [i for i in items if i.find(exp.Column) and not i.find(exp.Window) and not any(aggregates.aggregates_in(i))]
    select.set("group", exp.Group(expressions=[k.copy() for k in keys]) if keys else None)


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
