"""Aggregates of SQL as those of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from millstream.errors import SchemaError, Unsupported
from millstream.model.aggregate import Aggregate
from millstream.model.expression import Expr
from millstream.model.functions import AGGREGATE
from millstream.sql.text import Text

_KINDS: dict[type[exp.Expr], str] = {
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.First: "first",
    exp.FirstValue: "first",
    exp.AnyValue: "first",
    exp.Last: "last",
    exp.LastValue: "last",
    exp.ArrayAgg: "collect",
    exp.Variance: "variance",
    exp.Stddev: "stddev",
    exp.StddevSamp: "stddev",
    exp.LogicalAnd: "min",
    exp.LogicalOr: "max",
}


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node computes one value from many rows."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in AGGREGATE
    if isinstance(node, exp.Filter):
        return is_aggregate(node.this)
    return isinstance(node, exp.AggFunc) and not isinstance(node.parent, exp.Window)


def found(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates in a tree, each with its FILTER; not those inside subqueries or OVER."""
    if isinstance(tree, exp.Query | exp.Window):
        return
    if is_aggregate(tree):
        yield tree
        return
    for child in tree.iter_expressions():
        yield from found(child)


def made(text: Text, node: exp.Expr, expr: Callable[[exp.Expr], Expr]) -> Aggregate:
    """The aggregate that a node means; `expr` makes expressions over the input."""
    condition = None
    inner = node
    if isinstance(inner, exp.Filter):
        condition, inner = inner.expression.this, inner.this
    for part in inner.iter_expressions():
        if any(True for _ in found(part)):
            raise SchemaError("an aggregate cannot stand inside another", origin=text.of_node(part))
    if isinstance(inner, exp.CountIf):
        return Aggregate("count", expr(_case(_both(condition, inner.this), exp.Literal.number(1))))
    if isinstance(inner, exp.Count):
        return _count(inner, condition, expr)
    kind = _KINDS.get(type(inner))
    argument = inner.args.get("this")
    if kind is None or argument is None or inner.args.get("expressions"):
        name = inner.sql(dialect="spark")
        raise Unsupported(
            f"the aggregate `{name[:60]}` is not supported yet",
            hint="there are: count, count(DISTINCT), count_if, sum, avg, min, max, first, last, any_value, "
            "collect_list, variance, stddev, bool_and, bool_or",
            origin=text.of_node(node),
        )
    if isinstance(argument, exp.Distinct):
        if kind not in ("min", "max"):
            raise Unsupported(
                f"DISTINCT in {kind} is not supported yet",
                hint="count(DISTINCT x) is",
                origin=text.of_node(node),
            )
        argument = argument.expressions[0]
    if isinstance(argument, exp.IgnoreNulls | exp.RespectNulls | exp.Order | exp.HavingMax):
        raise Unsupported(
            f"`{argument.sql(dialect='spark')[:60]}` is not supported in an aggregate", origin=text.of_node(node)
        )
    return Aggregate(kind, expr(argument if condition is None else _case(condition, argument)))


def _count(node: exp.Count, condition: exp.Expr | None, expr: Callable[[exp.Expr], Expr]) -> Aggregate:
    argument = node.this
    if isinstance(argument, exp.Distinct):
        values = argument.expressions
        value = values[0] if len(values) == 1 else exp.func("to_json", exp.func("struct", *(v.copy() for v in values)))
        if len(values) > 1:
            there = exp.and_(*(v.copy().is_(exp.null()).not_() for v in values))
            condition = _both(condition, there)
        return Aggregate("count_distinct", expr(value if condition is None else _case(condition, value)))
    whole = argument is None or isinstance(argument, exp.Star)
    whole = whole or (isinstance(argument, exp.Literal) and not node.expressions)
    if node.expressions:
        there = exp.and_(*(v.copy().is_(exp.null()).not_() for v in (argument, *node.expressions)))
        return Aggregate("count", expr(_case(_both(condition, there), exp.Literal.number(1))))
    if condition is not None:
        return Aggregate("count", expr(_case(condition, exp.Literal.number(1) if whole else argument)))
    return Aggregate("count", None if whole else expr(argument))


def _case(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])


def _both(left: exp.Expr | None, right: exp.Expr) -> exp.Expr:
    return right if left is None else exp.and_(left.copy(), right.copy())


def name_of(node: exp.Expr) -> str:
    """What to call an aggregate that was given no name."""
    inner = node.this if isinstance(node, exp.Filter) else node
    kind = inner.sql_name().lower() if isinstance(inner, exp.Func) and not isinstance(inner, exp.Anonymous) else "value"
    argument = inner.args.get("this")
    if isinstance(argument, exp.Distinct):
        argument = argument.expressions[0]
    return f"{kind}_{argument.name}" if isinstance(argument, exp.Column) else kind
