"""FILL (...) after a query with windows: the output columns for empty windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from millstream.errors import DefinitionError, Unsupported
from millstream.model.expression import Expr, col
from millstream.model.reserved import free_name
from millstream.model.steps.fill import LINEAR, PREVIOUS, Fill, Filling, filled
from millstream.sql.parse.cursor import Cursor
from millstream.sql.parse.text import word
from millstream.sql.relations.relation import Relation, checked

if TYPE_CHECKING:
    from millstream.sql.bind.grouping.group_by import Grouping

_WAYS = {"PREVIOUS": PREVIOUS, "PREV": PREVIOUS, "LINEAR": LINEAR}
_EXAMPLE = "FILL (PREVIOUS), FILL (0), or FILL (total PREVIOUS, price LINEAR, n 0)"
_BORDERS = ("window_start", "window_end")


def read(cursor: Cursor) -> Filling:
    """Parse the clause after FILL."""
    inner = cursor.bracketed()
    every: Fill | None = None
    columns: list[tuple[str, Fill]] = []
    if inner.done:
        inner.fail("what to fill with is expected here", hint=_EXAMPLE)
    if inner.end - inner.at <= 2 and (inner.end - inner.at == 1 or inner.peek("-")):
        every = _way(inner)
    else:
        columns.append((inner.name("column"), _way(inner)))
        while inner.accept(","):
            columns.append((inner.name("column"), _way(inner)))
    inner.finish()
    longest = cursor.interval("how far gaps are filled") if cursor.accept("FOR") else None
    return Filling(every, tuple(columns), longest)


def _way(cursor: Cursor) -> Fill:
    keyword = word(cursor.token)
    if keyword in _WAYS:
        cursor.at += 1
        return Fill.of(_WAYS[keyword])
    if cursor.accept("NULL"):
        return Fill.of(None)
    if cursor.peek("TRUE") or cursor.peek("FALSE"):
        return Fill.of(cursor.accept("TRUE") or not cursor.accept("FALSE"))
    if cursor.token is not None and cursor.token.token_type is TokenType.STRING:
        return Fill("constant", Expr(exp.Literal.string(cursor.string("a text"))))
    negative = cursor.accept("-")
    if cursor.token is None or cursor.token.token_type is not TokenType.NUMBER:
        cursor.fail("what to fill with is expected here", hint=_EXAMPLE)
    number: exp.Expr = exp.Literal.number(cursor.take().text)
    return Fill("constant", Expr(exp.Neg(this=number) if negative else number))


def applied(
    grouping: Grouping, groups: Relation, items: list[tuple[str, exp.Expr]], qualify: exp.Expr | None
) -> tuple[Relation, list[tuple[str, exp.Expr]]]:
    """The groups of a SELECT with gaps filled, and the output columns over them."""
    query, text, node = grouping.query, grouping.text, grouping.node
    filling, window = query.clauses.fill, grouping.groups.window
    assert filling is not None
    if window is None or window.is_global:
        raise DefinitionError(
            "FILL needs the windows of a GROUP BY, and this query has none",
            hint="e.g. GROUP BY sensor, TUMBLE(ts, INTERVAL '1' HOUR)",
            origin=text.of_node(node),
        )
    if grouping.groups.sets or qualify is not None or any(i.find(exp.Window) is not None for _, i in items):
        raise Unsupported(
            "FILL together with GROUPING SETS, QUALIFY or window functions",
            hint="make a view of the filled rows first, and use them over that",
            origin=text.of_node(node),
        )
    keys = [n for n, _ in grouping.groups.keys]
    fixed = {*_BORDERS, *keys}
    values: dict[str, tuple[str, exp.Expr]] = {}
    for name, tree in items:
        if not {c.name for c in tree.find_all(exp.Column)} <= fixed:
            values[free_name(name, (*fixed, *values))] = (name, tree)
    with text.at(node):
        kept = {n: col(n) for n in (*_BORDERS, *keys)}
        computed = {own: checked(text, tree) for own, (_, tree) in values.items()}
        stream = groups.stream.select(**kept, **computed)
        ways = filling.by_name([name for name, _ in values.values()])
        fills = {own: ways[name] for own, (name, _) in values.items()}
        filled_relation = Relation(filled(stream, keys, window, fills, filling.longest))
    own_of = {id(tree): own for own, (_, tree) in values.items()}
    return filled_relation, [(n, exp.column(own_of[id(t)]) if id(t) in own_of else t) for n, t in items]
