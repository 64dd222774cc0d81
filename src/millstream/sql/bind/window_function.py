"""Window functions: binds ``lag(price) OVER (PARTITION BY auction ORDER BY ts)`` and others to steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from millstream.errors import DefinitionError, Unsupported
from millstream.model.aggregates.aggregate import Kind
from millstream.model.steps.columns import Named, Order, plain_column
from millstream.model.steps.event_times import interval_micros
from millstream.model.steps.relations.window_function import WindowFunction
from millstream.sql.parse.text import plain_value
from millstream.sql.relations.relation import HIDDEN, Relation

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

Items = list[tuple[str, exp.Expr]]

_KINDS: dict[type[exp.Expr], str] = {
    exp.RowNumber: "row_number",
    exp.Rank: "rank",
    exp.DenseRank: "dense_rank",
    exp.PercentRank: "percent_rank",
    exp.CumeDist: "cume_dist",
    exp.Ntile: "ntile",
    exp.Lag: "lag",
    exp.Lead: "lead",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Count: "count",
    exp.Min: "min",
    exp.Max: "max",
    exp.FirstValue: "first_value",
    exp.First: "first_value",
    exp.LastValue: "last_value",
    exp.Last: "last_value",
    exp.NthValue: "nth_value",
}


def is_call(part: exp.Expr) -> bool:
    """Whether a part of a query is the function of an OVER, with or without FILTER and IGNORE NULLS."""
    above = part.parent
    while isinstance(above, exp.Filter | exp.IgnoreNulls | exp.RespectNulls) and above.this is part:
        part, above = above, above.parent
    return isinstance(above, exp.Window) and above.this is part


def named(query: _Query, node: exp.Select, items: Items) -> Items:
    """The items with references to named windows (WINDOW clause) replaced by their definitions."""
    known = {w.this.name.lower(): w for w in node.args.get("windows") or ()}
    if not known and not any(w.args.get("alias") for _, i in items for w in i.find_all(exp.Window)):
        return items
    windows = []
    for name, item in items:
        tree = item.copy()
        for window in [tree] if isinstance(tree, exp.Window) else list(tree.find_all(exp.Window)):
            alias = window.args.get("alias")
            if alias is None:
                continue
            definition = known.get(alias.name.lower())
            if definition is None:
                raise Unsupported(
                    f"there is no WINDOW `{alias.name}`",
                    hint=f"define it after FROM and WHERE: WINDOW {alias.name} AS (PARTITION BY a ORDER BY b)",
                    origin=query.text.of_node(item),
                )
            for part in ("partition_by", "order", "spec"):
                window.set(part, definition.args.get(part))
            window.set("alias", None)
        windows.append((name, tree))
    return windows


def computed(query: _Query, relation: Relation, items: Items, node: exp.Expr) -> tuple[Relation, Items]:
    """A relation with every window function of the items as a column, and the items over these columns."""
    text = query.text
    calls: dict[tuple[tuple[exp.Expr, ...], exp.Expr | None], list[tuple[str, exp.Window]]] = {}
    results: Items = []
    number = 0
    for name, item in items:
        tree = item.copy()
        for window in [tree] if isinstance(tree, exp.Window) else list(tree.find_all(exp.Window)):
            column = f"{HIDDEN}w{number}"
            number += 1
            spec = (tuple(window.args.get("partition_by") or ()), window.args.get("order") or None)
            calls.setdefault(spec, []).append((column, window))
            new = exp.column(column)
            if window is tree:
                tree = new
            else:
                window.replace(new)
        results.append((name, tree))
    for group in calls.values():
        first = group[0][1]
        keys: Named = ()
        for i, key in enumerate(first.args.get("partition_by") or ()):
            by = relation.expr(text, key)
            keys += ((plain_column(by) or f"$p{i}", by),)
        order_by = first.args.get("order")
        order = [order_of(query, relation, o) for o in (order_by.expressions if order_by is not None else ())]
        functions = {column: _function(query, relation, window) for column, window in group}
        with text.at(node):
            stream = relation.stream._windowed(keys, order, functions)
        relation = replace(relation, stream=stream)
    return relation, results


def order_of(query: _Query, relation: Relation, order: exp.Expr) -> Order:
    """One sort key of an ORDER BY over a relation."""
    inner = order.this if isinstance(order, exp.Ordered) else order
    down = isinstance(order, exp.Ordered) and bool(order.args.get("desc"))
    first = not down
    if isinstance(order, exp.Ordered) and order.args.get("nulls_first") is not None:
        first = bool(order.args["nulls_first"])
    return Order(relation.expr(query.text, inner), down, first)


def _function(query: _Query, relation: Relation, window: exp.Window) -> WindowFunction:
    text, call = query.text, window.this
    condition, ignores = None, False
    while isinstance(call, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        ignores = ignores or isinstance(call, exp.IgnoreNulls)
        condition = call.expression.this if isinstance(call, exp.Filter) else condition
        call = call.this
    kind = _KINDS.get(type(call))
    if kind is None:
        raise Unsupported(
            f"`{call.sql(dialect='spark')[:60]}` OVER (...) is not supported in a view",
            hint="one of: " + ", ".join(dict.fromkeys(_KINDS.values())),
            origin=text.of_node(call) or text.of_node(window),
        )
    ranks = kind in ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead")
    if ranks and not window.args.get("order"):
        raise Unsupported(
            f"{kind}() needs ORDER BY in its window",
            hint=f"{kind}({'x' if kind in ('lag', 'lead') else ''}) OVER (PARTITION BY a ORDER BY b)",
            origin=text.of_node(window),
        )
    _check_parts(query, window, kind, filtered=condition is not None, ignores=ignores)
    if kind == "ntile":
        parts = _whole(query, call.this)
        if not parts:
            raise DefinitionError("ntile needs at least one part", hint="e.g. ntile(4)", origin=text.of_node(window))
        return WindowFunction(kind, offset=parts)
    argument = call.this
    if isinstance(call, exp.Count) and (argument is None or isinstance(argument, exp.Star) or _is_one(argument)):
        argument = None
    settings = ["ignore nulls"] if ignores else []
    if isinstance(argument, exp.Distinct):
        if kind not in _DISTINCT or len(argument.expressions) != 1:
            raise Unsupported(
                f"DISTINCT in {kind}(...) OVER (...)",
                hint=f"one of {', '.join(_DISTINCT)} of one column can have it",
                origin=text.of_node(window),
            )
        settings, argument = [*settings, "distinct"], argument.expressions[0]
    if condition is not None:
        value = exp.Literal.number(1) if argument is None else argument.copy()
        argument = exp.Case(ifs=[exp.If(this=condition.copy(), true=value)])
    excluded = _excluded(query, window)
    settings += [excluded] if excluded else []
    kind = Kind(kind, *settings) if settings else kind
    of = None if argument is None or kind in _RANKS else relation.expr(text, argument)
    if kind in ("lag", "lead"):
        offset = call.args.get("offset")
        default = call.args.get("default")
        return WindowFunction(
            kind,
            of,
            1 if offset is None else _whole(query, offset),
            None if default is None or isinstance(default, exp.Null) else _value(query, default),
        )
    if kind == "nth_value":
        offset = _whole(query, call.args["offset"])
        if offset < 1:
            raise Unsupported("nth_value counts from 1", origin=text.of_node(window))
        return WindowFunction(kind, of, offset, frame=_frame(query, window))
    return WindowFunction(kind, of, frame=_frame(query, window))


def _check_parts(query: _Query, window: exp.Window, kind: str, *, filtered: bool, ignores: bool) -> None:
    """Reject FILTER and IGNORE NULLS where they have no meaning."""
    if filtered and kind not in _AGGREGATES:
        raise Unsupported(
            f"FILTER on {kind}(...) OVER (...)",
            hint=f"one of {', '.join(_AGGREGATES)} can have it",
            origin=query.text.of_node(window),
        )
    if ignores and kind not in _VALUES:
        raise Unsupported(
            f"IGNORE NULLS on {kind}(...) OVER (...)",
            hint=f"one of {', '.join(_VALUES)} can have it; aggregates ignore NULLs anyway",
            origin=query.text.of_node(window),
        )


def _excluded(query: _Query, window: exp.Window) -> str | None:
    """What EXCLUDE removes from a frame: the row itself, its peers with or without it, or nothing."""
    spec = window.args.get("spec")
    exclusion = str(spec.args["exclude"].name).lower() if spec is not None and spec.args.get("exclude") else ""
    if exclusion in ("", "no others"):
        return None
    if exclusion not in ("current row", "group", "ties"):
        raise Unsupported(
            f"EXCLUDE {exclusion.upper()} in a frame",
            hint="EXCLUDE CURRENT ROW, GROUP, TIES or NO OTHERS",
            origin=query.text.of_node(window),
        )
    return f"exclude {exclusion}"


_AGGREGATES = ("count", "sum", "avg", "min", "max")
_DISTINCT = _AGGREGATES
_VALUES = ("lag", "lead", "first_value", "last_value", "nth_value")
_RANKS = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist")


def _is_one(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


def _whole(query: _Query, node: exp.Expr) -> int:
    value = _value(query, node)
    if not isinstance(value, int) or value < 0:
        raise Unsupported(
            "a whole number is expected here",
            hint="not below 0: lag(x, 1) looks back, lead(x, 1) forward",
            origin=query.text.of_node(node),
        )
    return value


def _value(query: _Query, node: exp.Expr) -> Any:
    try:
        return plain_value(node)
    except ValueError:
        raise Unsupported(
            "a constant is expected here",
            hint="write a number or a string: 1 or 'none'",
            origin=query.text.of_node(node),
        ) from None


def _frame(query: _Query, window: exp.Window) -> tuple[str, float | None, float | None] | None:
    """The frame of an aggregate: its unit, and how far before and after the row it extends."""
    spec = window.args.get("spec")
    if spec is None:
        return None
    unit = (spec.args.get("kind") or "ROWS").lower()
    before = _reach(query, spec, "start", "PRECEDING")
    behind = _reach(query, spec, "end", "FOLLOWING") if spec.args.get("end") is not None else 0
    if unit == "groups" and window.args.get("order") is None:
        raise Unsupported(
            "a GROUPS frame needs ORDER BY",
            hint="groups are rows that are equal in it",
            origin=query.text.of_node(window),
        )
    if unit in ("range", "groups") and (before, behind) == (None, None):
        unit = "rows"
    if before is not None and behind is not None and behind < -before:
        raise DefinitionError(
            "the frame of a window ends before it begins",
            hint="ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING: first the start, then the end",
            origin=query.text.of_node(window),
        )
    order = window.args.get("order")
    if unit == "range" and (order is None or len(order.expressions) != 1):
        raise Unsupported(
            "a RANGE frame needs one ORDER BY",
            hint="write ROWS in place of RANGE, or order by one column",
            origin=query.text.of_node(window),
        )
    return unit, before, behind


def _reach(query: _Query, spec: exp.Expr, which: str, forward: str) -> float | None:
    """How far a frame extends: None for unbounded; negative if it ends before it reaches the row."""
    value, side = spec.args.get(which), (spec.args.get(f"{which}_side") or "").upper()
    if value == "CURRENT ROW":
        return 0
    if value == "UNBOUNDED":
        if side != forward:
            raise Unsupported("a frame that begins after all rows", origin=query.text.of_node(spec))
        return None
    assert isinstance(value, exp.Expr)
    micros = interval_micros(value)
    length = micros if micros is not None else _value(query, value)
    return float(length) if side == forward else -float(length)
