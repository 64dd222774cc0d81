"""Table functions over arrays and numbers in FROM: generate_series, range, unnest and explode, alone or for each row.

FROM generate_series(1, 10) AS g(n)          FROM t, range(t.count) AS r(i)
FROM t, unnest(t.tags) AS u(tag)             FROM t LEFT JOIN LATERAL explode(t.tags) AS u(tag) ON true
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import DefinitionError, Origin, Unsupported
from millstream.model.expression import Expr
from millstream.sql.parse.text import Text, plain_value
from millstream.sql.relations.relation import Relation

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

LONGEST = 1_000_000
"""The maximum length of a series with constant bounds."""
_ARRAYS = (exp.Explode, exp.ExplodeOuter, exp.Unnest)


def call_of(node: exp.Expr) -> exp.Expr | None:
    """The call of such a function in an item of FROM; None if it is not one."""
    inner = node.this if isinstance(node, exp.Table | exp.Lateral) else node
    if isinstance(inner, (*_ARRAYS, exp.GenerateSeries)):
        return inner
    return inner if isinstance(inner, exp.Anonymous) and inner.name.lower() == "range" else None


def beside(query: _Query, relation: Relation, node: exp.Expr, *, outer: bool = False) -> Relation:
    """A relation joined with the rows that a function returns for each of its rows; `outer`: NULL if there are none."""
    call = call_of(node)
    assert call is not None
    alias = node.args.get("alias")
    named = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
    of = alias.name if alias is not None else ""
    ordinal = call.args.get("offset") if isinstance(call, exp.Unnest) else None
    if isinstance(ordinal, exp.Identifier) and alias is not None and ordinal.name not in named:
        named.append(ordinal.name)  # the parser drops the second name
    names = named or [column_of(call, of)]
    if len(names) != (2 if ordinal else 1):
        raise DefinitionError(
            f"{len(names)} names for {2 if ordinal else 1} columns of `{call.sql(dialect='spark')[:60]}`",
            hint="e.g. LATERAL VIEW explode(tags) t AS tag, or CROSS JOIN UNNEST(tags) WITH ORDINALITY AS t(tag, n)",
            origin=query.text.of_node(node),
        )
    outer = outer or isinstance(call, exp.ExplodeOuter)
    if ordinal:
        return _numbered(query, relation, call.expressions[0], names, outer=outer, of=of)
    from millstream.sql.relations.from_items import element

    return element(query.text, relation, names[0], array_of(query.text, call), outer=outer, of=of)


def column_of(call: exp.Expr, alias: str) -> str:
    """The default column name of a call."""
    if isinstance(call, exp.Anonymous):
        return "id"
    if isinstance(call, exp.Explode | exp.ExplodeOuter):
        return "col"
    return alias or ("unnest" if isinstance(call, exp.Unnest) else "generate_series")


def array_of(text: Text | None, call: exp.Expr) -> exp.Expr:
    """The array whose elements are the rows of a call."""
    if isinstance(call, exp.Unnest):
        if len(call.expressions) != 1:
            raise Unsupported(
                "UNNEST of several arrays",
                hint="UNNEST(arrays_zip(a, b)) gives structs with a field of each",
                origin=_origin(text, call),
            )
        return call.expressions[0]  # type: ignore[no-any-return]
    if isinstance(call, exp.GenerateSeries):
        return _series(text, call, call.args["start"], call.args["end"], call.args.get("step"), within=True)
    if isinstance(call, exp.Anonymous):
        arguments = list(call.expressions)
        if not 1 <= len(arguments) <= 3:
            raise DefinitionError(
                "range takes an end, a start and an end, or both and a step", origin=_origin(text, call)
            )
        start, end = (exp.Literal.number(0), arguments[0]) if len(arguments) == 1 else arguments[:2]
        big = [exp.cast(v.copy(), "BIGINT") for v in (start, end)]
        return _series(text, call, big[0], big[1], arguments[2] if len(arguments) > 2 else None, within=False)
    return call.this  # type: ignore[no-any-return]


def _series(
    text: Text | None, call: exp.Expr, start: exp.Expr, end: exp.Expr, step: exp.Expr | None, *, within: bool
) -> exp.Expr:
    """The numbers or times of a series; empty if the step has the wrong direction. `within`: the end is included."""
    by = 1 if step is None else _constant(step)
    if by is None and not isinstance(step, exp.Interval):
        raise Unsupported(
            "the step of a series must be a constant", hint="e.g. generate_series(1, n, 2)", origin=_origin(text, call)
        )
    if by == 0:
        raise DefinitionError("the step of a series is 0", origin=_origin(text, call))
    down = by is not None and by < 0
    first, last = (_constant(b.this if isinstance(b, exp.Cast) else b) for b in (start, end))
    if by is not None and first is not None and last is not None and abs(last - first) / abs(by) > LONGEST:
        raise DefinitionError(f"a series of more than {LONGEST:,} numbers", origin=_origin(text, call))
    kind = (exp.GTE if down else exp.LTE) if within else (exp.GT if down else exp.LT)
    reached = end.copy()
    if not within:
        one = exp.Literal.number(1)
        reached = exp.Add(this=reached, expression=one) if down else exp.Sub(this=reached, expression=one)
    numbers = exp.GenerateSeries(start=start.copy(), end=reached, step=None if step is None else step.copy())
    return exp.Case(ifs=[exp.If(this=kind(this=start.copy(), expression=end.copy()), true=numbers)])


def _origin(text: Text | None, node: exp.Expr) -> Origin | None:
    return None if text is None else text.of_node(node)


def _constant(node: exp.Expr) -> float | None:
    try:
        value = plain_value(node)
    except ValueError:
        return None
    return value if isinstance(value, int | float) else None


def _numbered(
    query: _Query, relation: Relation, array: exp.Expr, names: list[str], *, outer: bool, of: str
) -> Relation:
    """The elements of an array with their numbers, from 1."""
    from millstream.sql.relations.from_items import element

    size = exp.func("size", array.copy(), dialect="spark")
    numbers = exp.GenerateSeries(start=exp.Literal.number(1), end=size.copy())
    some = exp.Case(ifs=[exp.If(this=exp.GT(this=size, expression=exp.Literal.number(0)), true=numbers)])
    numbered = element(query.text, relation, names[1], some, outer=outer, of=of)
    value = exp.Anonymous(this="element_at", expressions=[relation.expr(query.text, array).node, exp.column(names[1])])
    with query.text.at(array):
        stream = numbered.stream.with_columns(**{names[0]: Expr(value)})
    within = {n.lower(): n for n in names}
    return replace(numbered, stream=stream, aliases={**relation.aliases, **({of.lower(): within} if of else {})})
