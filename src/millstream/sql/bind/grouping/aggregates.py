"""Converts SQL aggregates to aggregates of the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from sqlglot import exp

from millstream.errors import SchemaError, Unsupported
from millstream.model.aggregates import approximate, distribution
from millstream.model.aggregates.aggregate import Aggregate, paired
from millstream.model.expression import Expr
from millstream.model.functions import AGGREGATE
from millstream.sql.bind.grouping import ordered_aggregates
from millstream.sql.parse.text import Text, plain_value

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
    exp.VariancePop: "var_pop",
    exp.StddevPop: "stddev_pop",
    exp.Skewness: "skewness",
    exp.Kurtosis: "kurtosis",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.ArrayUniqueAgg: "collect_set",
    exp.Mode: "mode",
}
_ANONYMOUS = {"every": "bool_and", "some": "bool_or", "std": "stddev"}
"""Aggregates without a node class in sqlglot."""

_SPARK_NAMES: dict[type[exp.Expr], str] = {
    exp.ApproxDistinct: "approx_count_distinct",
    exp.ApproxQuantile: "approx_percentile",
    exp.Quantile: "percentile",
    exp.ArgMax: "max_by",
    exp.ArgMin: "min_by",
    exp.ArrayUniqueAgg: "collect_set",
}
_ONCE = {
    **{kind: kind for kind in ("min", "max", "bool_and", "bool_or", "collect_set")},
    **{"collect": "collect_set", "sum": "sum_distinct", "avg": "avg_distinct"},
}
"""Aggregates that allow DISTINCT, and their kind with it."""

_KNOWN = (
    "count, count(DISTINCT), count_if, sum, avg, min, max, min_by, max_by, first, last, any_value, mode, array_agg, "
    "collect_set, string_agg, percentile_cont, percentile_disc, variance, var_pop, stddev, stddev_pop, skewness, "
    "kurtosis, bool_and, bool_or, median, percentile, approx_count_distinct, approx_percentile, approx_top_k"
)


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node computes one value from many rows."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in AGGREGATE
    if isinstance(node, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        return is_aggregate(node.this)
    return isinstance(node, exp.AggFunc) and not isinstance(node.parent, exp.Window)


def aggregates_in(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates in a tree, each with its FILTER, except those inside subqueries. For a window function, those that
    it is computed over: ``sum(price)`` of ``rank() OVER (ORDER BY sum(price))``.
    """
    if isinstance(tree, exp.Query):
        return
    if isinstance(tree, exp.Window):
        call = tree.this
        while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            if isinstance(call, exp.Filter):
                yield from aggregates_in(call.expression)
            call = call.this
        for part in (*call.iter_expressions(), *(c for c in tree.iter_expressions() if c is not tree.this)):
            yield from aggregates_in(part)
        return
    if is_aggregate(tree):
        yield tree
        return
    for child in tree.iter_expressions():
        yield from aggregates_in(child)


def aggregate_of(text: Text, node: exp.Expr, expr: Callable[[exp.Expr], Expr]) -> Aggregate:
    """The aggregate for a node; `expr` builds expressions over the input."""
    condition = None
    inner = node
    if isinstance(inner, exp.Filter):
        condition, inner = inner.expression.this, inner.this
    call, parts = inner, []
    while isinstance(call, exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        parts += [p for p in call.iter_expressions() if p is not call.this]
        call = call.this
    for part in (*parts, *call.iter_expressions()):
        if any(True for _ in aggregates_in(part)):
            raise SchemaError(
                "an aggregate cannot be inside another",
                hint="compute the inner one in a subquery: SELECT max(n) FROM (SELECT count(*) AS n ...)",
                origin=text.of_node(part),
            )
    if isinstance(inner, exp.CountIf):
        return Aggregate("count", expr(_case(_both(condition, inner.this), exp.Literal.number(1))))
    if isinstance(inner, exp.Count):
        return _count(inner, condition, expr)
    special = ordered_aggregates.aggregate_of(text, inner, condition, expr)
    if special is not None:
        return special
    special = _with_settings(text, inner, lambda n: expr(n if condition is None else _case(condition, n)))
    if special is not None:
        return special
    kind = _KINDS.get(type(inner))
    argument = inner.args.get("this")
    if isinstance(inner, exp.Anonymous) and len(inner.expressions) == 1:
        kind, argument = _ANONYMOUS.get(str(inner.this).lower()), inner.expressions[0]
    elif inner.args.get("expressions"):
        kind = None
    if kind is None or argument is None:
        within = isinstance(inner, exp.PercentileCont | exp.PercentileDisc)
        raise Unsupported(
            f"the aggregate `{inner.sql(dialect='spark')[:60]}` is not supported",
            hint="write percentile_cont(0.5) WITHIN GROUP (ORDER BY x)" if within else f"there are: {_KNOWN}",
            origin=text.of_node(node),
        )
    if isinstance(argument, exp.Distinct):
        if kind not in _ONCE:
            raise Unsupported(
                f"DISTINCT in {kind} is not supported",
                hint="use SELECT DISTINCT in a subquery, and aggregate over it",
                origin=text.of_node(node),
            )
        kind, argument = _ONCE[kind], argument.expressions[0]
    if isinstance(argument, exp.IgnoreNulls | exp.RespectNulls | exp.Order | exp.HavingMax):
        raise Unsupported(
            f"`{inner.sql(dialect='spark')[:60]}` is not supported: this aggregate has no order",
            hint="array_agg, string_agg and listagg have one: array_agg(x ORDER BY y)",
            origin=text.of_node(node),
        )
    return Aggregate(kind, expr(argument if condition is None else _case(condition, argument)))


def _with_settings(text: Text, node: exp.Expr, of: Callable[[exp.Expr], Expr]) -> Aggregate | None:
    """The aggregates with several arguments, or with one that is not the column; `of` builds the column expression."""
    if isinstance(node, exp.ApproxDistinct):
        value = node.this.expressions[0] if isinstance(node.this, exp.Distinct) else node.this
        error = node.args.get("accuracy")
        precision = 12 if error is None else _precision(text, error)
        return approximate.approx_count_distinct(of(value), precision)
    if not isinstance(node, exp.ApproxQuantile | exp.ApproxTopK | exp.Quantile | exp.Median | exp.ArgMax | exp.ArgMin):
        return None
    if isinstance(node.this, exp.Distinct):
        raise Unsupported(
            f"DISTINCT in {_called(node)} is not supported",
            hint="use SELECT DISTINCT in a subquery, and aggregate over it",
            origin=text.of_node(node),
        )
    if isinstance(node, exp.Median):
        return distribution.median(of(node.this))
    if isinstance(node, exp.ArgMax | exp.ArgMin):
        if node.args.get("count") is not None:
            raise Unsupported(
                f"{_called(node)} gives one value here",
                hint="ORDER BY ... LIMIT n, or row_number() OVER (...) <= n, gives several rows",
                origin=text.of_node(node),
            )
        both = paired(Expr(node.this.copy()), Expr(node.expression.copy()))
        return Aggregate(_called(node), of(both.node))
    if isinstance(node, exp.ApproxTopK):
        arguments = [node.args.get("expression"), node.args.get("counters")]
        k, tracked = (d if n is None else _constant(text, node, n) for n, d in zip(arguments, (5, 10_000), strict=True))
        return approximate.approx_top_k(of(node.this), k, tracked)
    quantile = node.args["quantile"]
    parts = [_constant(text, node, p) for p in quantile.expressions] if isinstance(quantile, exp.Array) else None
    p = _constant(text, node, quantile) if parts is None else parts
    if not isinstance(node, exp.ApproxQuantile):
        _refuse_frequency(text, node, quantile)
        return distribution.percentile(of(node.this), p)
    accuracy = node.args.get("accuracy")
    buckets = 10_000 if accuracy is None else _constant(text, node, accuracy)
    return approximate.approx_percentile(of(node.this), p, buckets)


def _constant(text: Text, node: exp.Expr, value: exp.Expr) -> Any:
    try:
        return plain_value(value)
    except ValueError:
        raise Unsupported(
            f"`{value.sql(dialect='spark')[:60]}` in {_called(node)} must be a number",
            hint="write the number itself, e.g. 0.95",
            origin=text.of_node(value),
        ) from None


def _precision(text: Text, error: exp.Expr) -> int:
    """The precision for a standard error, as in Spark's argument."""
    error_bound = _constant(text, exp.ApproxDistinct(), error)
    if isinstance(error_bound, str) or not 0.00072 <= error_bound < 1:
        raise SchemaError(
            f"{error_bound!r} is not a valid error of a distinct count",
            hint="a number from 0.00072 to 1; 0.05 is five in a hundred",
            origin=text.of_node(error),
        )
    return max(4, math.ceil(2 * math.log2(1.04 / error_bound)))


def _refuse_frequency(text: Text, node: exp.Expr, frequency: exp.Expr) -> None:
    """percentile(x, p, frequency): the parser drops the third argument, so this inspects the text."""
    ends = [n.meta["end"] for n in frequency.walk() if "end" in n.meta]
    behind = text.sql[max(ends) + 1 :].lstrip() if ends else ""
    behind = behind.removeprefix(")").lstrip() if isinstance(frequency, exp.Array) else behind
    if behind.startswith(","):
        raise Unsupported(
            "percentile with a frequency is not supported",
            hint="leave the third argument out; sequence(1, n) and explode repeat a row",
            origin=text.of_node(node),
        )


def _called(node: exp.Expr) -> str:
    """The Spark name of an aggregate."""
    known = _SPARK_NAMES.get(type(node))
    return known or (node.sql_name().lower() if isinstance(node, exp.Func) else "value")


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
    """The default name of an aggregate without an alias."""
    inner = node
    while isinstance(inner, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        inner = inner.this
    kind = str(inner.this).lower() if isinstance(inner, exp.Anonymous) else _called(inner)
    argument = (
        inner.expressions[0] if isinstance(inner, exp.Anonymous) and inner.expressions else inner.args.get("this")
    )
    if isinstance(argument, exp.Order):
        argument = argument.this
    if isinstance(argument, exp.Distinct):
        argument = argument.expressions[0]
    return f"{kind}_{argument.name}" if isinstance(argument, exp.Column) else kind
