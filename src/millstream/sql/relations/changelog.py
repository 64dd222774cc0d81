"""FROM CHANGELOG OF v, and CHANGELOG(TABLE v): the changes of a view, table, source or subquery as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import DefinitionError
from millstream.model.reserved import CHANGED_AT, SHOWN_EPOCH, SHOWN_OP
from millstream.sql.relations import from_items, windows
from millstream.sql.relations.relation import Relation

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

_NAMES = (SHOWN_OP, SHOWN_EPOCH, CHANGED_AT)


def relation(query: _Query, node: exp.Table, ctes: Mapping[str, Relation], columns: Sequence[str]) -> Relation:
    """The changes of the relation in the parentheses; `columns` are names for them, those of the changelog first."""
    text, arguments = query.text, list(node.this.expressions)
    of = arguments[0] if len(arguments) == 1 else None
    if isinstance(of, exp.Kwarg | exp.PropertyEQ) and of.this.name.lower() == "input":
        of = of.expression
    alias = node.alias
    if isinstance(of, exp.Subquery):
        inner = query.settled(query.query(of, ctes), node)
    elif isinstance(of, exp.Column) and len(of.parts) == 1:
        inner = query.settled(query.by_name(of.name, node, ctes), node)
        alias = alias or of.name
    else:
        raise DefinitionError(
            "CHANGELOG OF takes one view, table or source, or a subquery",
            hint="FROM CHANGELOG OF v, CHANGELOG(TABLE v) or CHANGELOG OF (SELECT ...)",
            origin=text.of_node(node),
        )
    if inner.windowed is not None:
        inner = windows.rows(text, inner, node)
    names = tuple(columns[: len(_NAMES)]) if len(columns) == len(_NAMES) + len(inner.names) else _NAMES
    if names != _NAMES or len(columns) == len(_NAMES) + len(inner.names):
        inner = from_items.renamed(text, inner, columns[len(_NAMES) :], node)
    with text.at(node):
        stream = inner.stream.changelog(op=names[0], epoch=names[1], time=names[2])
    return from_items.renamed(text, Relation(stream), columns, node).called(alias)
