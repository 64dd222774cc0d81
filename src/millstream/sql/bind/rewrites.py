"""Rewrites of a query to equivalent forms that the binder supports, applied before binding.

- ``x > ALL (SELECT y ...)`` compares x with ``(SELECT max(y) ...)``, by SQL's rules for NULL and for no rows;
- ``SELECT a ... GROUP BY a ORDER BY sum(b) LIMIT 3`` orders by a column of an inner query, and then drops it;
- ``a JOIN b ON a.id = b.id AND a.x IN (SELECT ...)`` moves its subquery to WHERE.

A query without these forms is unchanged, and so is the plan that identifies a view.
"""

from __future__ import annotations

from sqlglot import exp

from millstream.model.reserved import OF, folded
from millstream.model.steps.event_times import conjuncts
from millstream.sql.bind import same_expression
from millstream.sql.bind.grouping import aggregates

_ORDERED = (exp.GT, exp.GTE, exp.LT, exp.LTE)
_COMPARED = (*_ORDERED, exp.EQ, exp.NEQ)


def rewritten(query: exp.Query) -> exp.Query:
    """An equivalent query in forms that the binder supports."""
    nodes = [n for n in query.walk() if _is_quantified(n) or _orders_by_more(n) or _joins_by_subquery(n)]
    if not nodes:
        return query
    tree = query.copy()
    root = exp.Subquery(this=tree)
    for node in [n for n in root.walk() if _is_quantified(n)]:
        comparison = _compared(node)
        if comparison is not None:
            node.replace(comparison)
    for select in [n for n in root.walk() if _joins_by_subquery(n)]:
        _moved_to_where(select)
    for select in reversed([n for n in root.walk() if _orders_by_more(n)]):
        assert isinstance(select, exp.Select)
        select.replace(_with_order_columns(select))
    made_query = root.this
    assert isinstance(made_query, exp.Query)
    return made_query.pop()


def _is_quantified(node: exp.Expr) -> bool:
    """Whether it is ``x > ALL (SELECT ...)`` or similar, but not ``= ANY`` or ``<> ALL``, which are IN and NOT IN."""
    if not isinstance(node, _COMPARED) or not isinstance(node.expression, exp.All | exp.Any):
        return False
    among = (exp.EQ, exp.Any) if isinstance(node.expression, exp.Any) else (exp.NEQ, exp.All)
    return not isinstance(node, among[0]) and isinstance(node.expression.this.unnest(), exp.Query)


def _compared(node: exp.Expr) -> exp.Expr | None:
    """A comparison with all rows of a subquery, or with any of them, by its smallest and its largest value."""
    value, quantified = node.this, node.expression
    query = quantified.this.unnest()
    if len(query.selects) != 1 or query.selects[0].find(exp.Star) is not None or isinstance(value, exp.Tuple):
        return None
    every = isinstance(quantified, exp.All)

    def of(call: exp.Expr) -> exp.Expr:
        return _aggregated(query, call)

    if isinstance(node, _ORDERED):
        greatest = isinstance(node, exp.GT | exp.GTE) == every
        edge = of(exp.Max() if greatest else exp.Min())
        true: exp.Expr = type(node)(this=value.copy(), expression=edge)
    else:
        sides = [exp.NEQ(this=value.copy(), expression=of(e)) for e in (exp.Min(), exp.Max())]
        differs = exp.paren(exp.Or(this=sides[0], expression=sides[1]))
        true = exp.Not(this=differs) if isinstance(node, exp.EQ) else differs
    settles = exp.Not(this=exp.paren(true)) if every else true
    rows, known = of(exp.Count(this=exp.Star())), of(exp.Count())
    unknown = exp.Or(
        this=exp.Is(this=value.copy(), expression=exp.null()), expression=exp.GT(this=rows.copy(), expression=known)
    )
    none = exp.EQ(this=rows, expression=exp.Literal.number(0))
    case = exp.Case(
        ifs=[
            exp.If(this=none, true=exp.Boolean(this=every)),
            exp.If(this=settles, true=exp.Boolean(this=not every)),
            exp.If(this=unknown, true=exp.null()),
        ],
        default=exp.Boolean(this=every),
    )
    return exp.paren(case)


def _aggregated(query: exp.Query, call: exp.Expr) -> exp.Subquery:
    """The one-row subquery with an aggregate over the only column of a query."""
    inner = query.copy()
    plain = isinstance(inner, exp.Select) and not any(
        inner.args.get(a) for a in ("group", "having", "limit", "offset", "qualify", "distinct", "with_", "windows")
    )
    plain = (
        plain
        and not any(True for _ in aggregates.aggregates_in(inner.selects[0]))
        and not inner.selects[0].find(exp.Window)
    )
    if isinstance(inner, exp.Select) and plain:
        value = inner.selects[0].unalias().copy()
        inner.set("order", None)
        aggregate = inner.select(_over(call, value), append=False, copy=False)
    else:
        alias = exp.TableAlias(this=exp.to_identifier("rows_"), columns=[exp.to_identifier("value_")])
        aggregate = exp.select(_over(call, exp.column("value_"))).from_(exp.Subquery(this=inner, alias=alias))
    return exp.Subquery(this=aggregate)


def _over(call: exp.Expr, value: exp.Expr) -> exp.Expr:
    if call.args.get("this") is None:
        call.set("this", value)
    return call


def _orders_by_more(node: exp.Expr) -> bool:
    """Whether the first rows of a SELECT are chosen by an aggregate or a subquery that may not be an output column."""
    if not isinstance(node, exp.Select) or node.args.get("order") is None or node.args.get("distinct") is not None:
        return False
    if node.args.get("limit") is None and node.args.get("offset") is None:
        return False
    return any(_is_more(o.this) for o in node.args["order"].expressions)


def _is_more(by: exp.Expr) -> bool:
    return by.find(exp.Query) is not None or any(True for _ in aggregates.aggregates_in(by))


def _with_order_columns(select: exp.Select) -> exp.Select:
    """A SELECT that orders by columns: by its own, or by additional ones that an enclosing SELECT drops.

    The enclosing SELECT sees only the columns of the result, so every other sort key is added as a column.
    """
    inner = select.copy()
    stars = any(i.find(exp.Star) is not None and not aggregates.is_aggregate(i) for i in inner.expressions)
    items = {} if stars else {same_expression.of(i.unalias()): n for n, i in enumerate(inner.expressions, 1)}
    names = {folded(i.alias_or_name) for i in inner.expressions if not isinstance(i, exp.Star)}
    orders = inner.args["order"].expressions
    wraps = any(_is_more(o.this) and same_expression.of(o.this) not in items for o in orders)
    added: list[str] = []
    for order in orders:
        by = order.this
        number = items.get(same_expression.of(by))
        if number is not None and (wraps or _is_more(by)):
            order.set("this", exp.Literal.number(number))
        elif wraps and not _is_output(by, names):
            name = f"{OF}order_{len(added) + 1}"
            inner.append("expressions", exp.Alias(this=by.copy(), alias=exp.to_identifier(name)))
            order.set("this", exp.column(name))
            added.append(name)
    if not wraps:
        return inner
    around = exp.select(exp.Star(except_=[exp.to_identifier(n) for n in added]))
    for part in ("order", "limit", "offset", "with_"):
        around.set(part, inner.args.get(part))
        inner.set(part, None)
    return around.from_(exp.Subquery(this=inner), copy=False)


def _is_output(by: exp.Expr, names: set[str]) -> bool:
    """Whether a sort key is a number, or uses only columns of the result."""
    if _is_more(by):
        return False
    return all(not c.table and folded(c.name) in names for c in by.find_all(exp.Column))


def _joins_by_subquery(node: exp.Expr) -> bool:
    """Whether inner joins of a SELECT have a subquery in ON that can move to WHERE."""
    joins = node.args.get("joins") or [] if isinstance(node, exp.Select) else []
    plain = all(not j.args.get("side") and not j.args.get("method") for j in joins)
    plain = plain and all((j.args.get("kind") or "INNER").upper() in ("INNER", "CROSS") for j in joins)
    return plain and any(j.args.get("on") is not None and j.args["on"].find(exp.Query) is not None for j in joins)


def _moved_to_where(select: exp.Expr) -> None:
    assert isinstance(select, exp.Select)
    for join in select.args["joins"]:
        on = join.args.get("on")
        parts = [] if on is None else list(conjuncts(on))
        moved = [p for p in parts if p.find(exp.Query) is not None]
        if not moved:
            continue
        rest = [p.copy() for p in parts if p not in moved]
        join.set("on", exp.and_(*rest) if rest else exp.true())
        select.where(*(p.copy() for p in moved), copy=False)
