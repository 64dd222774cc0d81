"""Constant rows: VALUES and SELECT without FROM, over one row that exists from the first epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError
from millstream.model.expression import Expr
from millstream.sql.relations.relation import HIDDEN, Relation

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

MOST = 10_000
"""The most rows of one VALUES in a view."""
_ONE, _ROW = f"{HIDDEN}one", f"{HIDDEN}row"


def one_row(query: _Query) -> Relation:
    """One row without visible columns."""
    return Relation(query.binder.flow._one_row(_ONE))


def values(query: _Query, node: exp.Values) -> Relation:
    """The rows of VALUES; by default their columns are named col1, col2, ..."""
    text = query.text
    rows = [list(r.expressions) if isinstance(r, exp.Tuple) else [r] for r in node.expressions]
    if len(rows) > MOST:
        raise DefinitionError(
            f"VALUES with more than {MOST:,} rows in a view", hint="put them in a table", origin=text.of_node(node)
        )
    wide = len(rows[0])
    uneven = next((r for r in rows if len(r) != wide), None)
    if uneven is not None:
        raise SchemaError(
            f"the rows of VALUES have {wide} and {len(uneven)} columns",
            origin=text.of_node(uneven[0]) if uneven else None,
        )
    alias = node.args.get("alias")
    names = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
    names = names or [f"col{i}" for i in range(1, wide + 1)]
    if len(names) != wide:
        raise SchemaError(f"{len(names)} names for {wide} columns", origin=text.of_node(node))
    one = one_row(query)
    with text.at(node):
        if len(rows) > 1:
            numbers = exp.Array(expressions=[exp.Literal.number(i) for i in range(len(rows))])
            one = replace(one, stream=one.stream._flattened(_ROW, Expr(numbers)))
        columns = {n: _column(query, one, [r[i] for r in rows]) for i, n in enumerate(names)}
        return Relation(one.stream.select(**columns)).called(alias.name if alias is not None else None)


def _column(query: _Query, one: Relation, values: list[exp.Expr]) -> Expr:
    """One column: the value of each row by row number."""
    expressions = [one.expr(query.text, v) for v in values]
    if len(expressions) == 1:
        return expressions[0]
    case = exp.Case(this=exp.column(_ROW))
    for number, value in enumerate(expressions):
        case.append("ifs", exp.If(this=exp.Literal.number(number), true=value.node.copy()))
    return Expr(case, expressions[0].origin)
