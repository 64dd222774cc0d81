"""Aggregates with their own order: array_agg(x ORDER BY y), string_agg and WITHIN GROUP; and first or last with FILTER
or IGNORE NULLS.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from millstream.errors import Unsupported
from millstream.model.aggregates import distribution
from millstream.model.aggregates.aggregate import Aggregate, Kind
from millstream.model.expression import Expr
from millstream.sql.parse.text import Text, plain_value

Make = Callable[[exp.Expr], Expr]
_FIRST: dict[type[exp.Expr], str] = {exp.First: "first_of", exp.FirstValue: "first_of", exp.AnyValue: "first_of"}
_LAST: dict[type[exp.Expr], str] = {exp.Last: "last_of", exp.LastValue: "last_of"}


def aggregate_of(text: Text, node: exp.Expr, condition: exp.Expr | None, expr: Make) -> Aggregate | None:
    """The aggregate for a node, with the condition of its FILTER; None if it is not one of these."""
    if isinstance(node, exp.WithinGroup):
        return _within(text, node, condition, expr)
    ignores = isinstance(node, exp.IgnoreNulls)
    inner = node.this if isinstance(node, exp.IgnoreNulls | exp.RespectNulls) else node
    if type(inner) in (*_FIRST, *_LAST):
        return _edge(text, inner, condition, expr, ignores=ignores)
    if node is not inner:
        raise Unsupported(
            f"`{node.sql(dialect='spark')[:60]}` is not supported in an aggregate",
            hint="IGNORE NULLS can follow first, last and any_value; other aggregates ignore NULLs anyway",
            origin=text.of_node(node),
        )
    if isinstance(inner, exp.GroupConcat):
        return _listed(text, inner, condition, expr, _separator(text, inner))
    ordered = isinstance(inner, exp.ArrayAgg) and isinstance(inner.this, exp.Order)
    return _listed(text, inner, condition, expr, None) if ordered else None


def _within(text: Text, node: exp.WithinGroup, condition: exp.Expr | None, expr: Make) -> Aggregate:
    """percentile_cont(0.5) WITHIN GROUP (ORDER BY x) and similar aggregates."""
    call, order = node.this, node.expression
    by = order.expressions if isinstance(order, exp.Order) else []
    down = len(by) == 1 and bool(by[0].args.get("desc"))
    if len(by) != 1 or not isinstance(call, exp.PercentileCont | exp.PercentileDisc | exp.Mode):
        raise Unsupported(
            f"`{node.sql()[:60]}` is not supported",
            hint="percentile_cont(0.5), percentile_disc(0.5) and mode() can precede WITHIN GROUP (ORDER BY column)",
            origin=text.of_node(node),
        )
    if down and not isinstance(call, exp.PercentileCont):
        raise Unsupported(
            f"DESC in `{node.sql()[:60]}`",
            hint="order by the negative: ORDER BY -x" if isinstance(call, exp.PercentileDisc) else "leave DESC out",
            origin=text.of_node(node),
        )
    value = by[0].this if condition is None else exp.Case(ifs=[exp.If(this=condition.copy(), true=by[0].this.copy())])
    if isinstance(call, exp.Mode):
        return distribution.mode(expr(value))
    argument = call.this
    listed = isinstance(argument, exp.Array)
    try:
        fractions = [float(plain_value(p)) for p in (argument.expressions if listed else [argument])]
    except (ValueError, TypeError, AttributeError):
        raise Unsupported(f"`{call.sql()[:60]}` needs a number from 0 to 1", origin=text.of_node(node)) from None
    parts = [1 - p for p in fractions] if down else fractions
    kind = distribution.percentile if isinstance(call, exp.PercentileCont) else distribution.percentile_disc
    return kind(expr(value), parts if listed else parts[0])


def _edge(text: Text, node: exp.Expr, condition: exp.Expr | None, expr: Make, *, ignores: bool) -> Aggregate | None:
    """The first or last of the rows that count; None if all rows count."""
    if isinstance(node.this, exp.Order | exp.Distinct | exp.HavingMax):
        raise Unsupported(
            f"`{node.sql(dialect='spark')[:60]}` is not supported",
            hint="min_by(x, y) is the value of x where y is smallest, max_by(x, y) where it is greatest",
            origin=text.of_node(node),
        )
    if condition is None and not ignores:
        return None
    there = node.this.copy().is_(exp.null()).not_() if ignores else None
    known = [p for p in (condition, there) if p is not None]
    kind = {**_FIRST, **_LAST}[type(node)]
    return Aggregate(kind, expr(_chosen(node.this, exp.and_(*(k.copy() for k in known)), [])))


def _separator(text: Text, node: exp.GroupConcat) -> str:
    separator = node.args.get("separator")
    if separator is None:
        return ""
    if not isinstance(separator, exp.Literal) or not separator.is_string:
        raise Unsupported(
            "the separator of string_agg and listagg must be a string", hint="e.g. ', '", origin=text.of_node(node)
        )
    return str(separator.this)


def _listed(text: Text, node: exp.Expr, condition: exp.Expr | None, expr: Make, separator: str | None) -> Aggregate:
    """A list of values, or a string of them, in an order; by default in the order of the values."""
    inner, order = node.this, []
    if isinstance(inner, exp.Order):
        inner, order = inner.this, list(inner.expressions)
    once = isinstance(inner, exp.Distinct)
    value = inner.expressions[0] if once else inner
    if once and any(o.this != value for o in order):
        raise Unsupported(
            "DISTINCT in an aggregate can be ordered by its value only",
            hint="use SELECT DISTINCT in a subquery, and aggregate over it",
            origin=text.of_node(node),
        )
    if separator is not None:
        value = exp.cast(value.copy(), "STRING")
    there = value.copy().is_(exp.null()).not_()
    counts = there if condition is None else exp.and_(condition.copy(), there)
    ways = tuple((bool(o.args.get("desc")), not o.args.get("nulls_first")) for o in order)
    chosen = _chosen(value, counts, [o.this for o in order])
    name = "ordered_list" if separator is None else "ordered_text"
    return Aggregate(Kind(name, ways, once, separator), expr(chosen))


def _chosen(value: exp.Expr, there: exp.Expr, order: list[exp.Expr]) -> exp.Expr:
    """The struct argument of such aggregates."""
    sure = exp.Coalesce(this=exp.paren(there.copy()), expressions=[exp.false()])
    fields = [("there", sure), ("v", value), *((f"o{i}", o) for i, o in enumerate(order))]
    return exp.Struct(expressions=[exp.PropertyEQ(this=exp.to_identifier(n), expression=e.copy()) for n, e in fields])
