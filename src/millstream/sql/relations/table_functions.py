"""Table functions in FROM: ``FROM bids, LATERAL words(text) AS t(word, length)``, many rows from one.

Such a function is declared to return an array of structs. Each struct becomes a row, with the fields as columns.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError, UnknownName
from millstream.model.types.schema import Field, Schema
from millstream.sql.parse.text import Text
from millstream.sql.relations.relation import Relation


def table_call(node: exp.Expr) -> exp.Anonymous | None:
    """The call of a function that returns rows: ``words(text)`` or ``TABLE(words(text))``; None if it is not one."""
    if isinstance(node, exp.Anonymous) and node.name.upper() == "TABLE" and len(node.expressions) == 1:
        node = node.expressions[0]
    return node if isinstance(node, exp.Anonymous) else None


def tabled(text: Text, relation: Relation, call: exp.Anonymous, place: exp.Expr, *, outer: bool) -> Relation:
    """A relation joined with the rows that a function returns for each of its rows; `outer`: NULLs
    if there are none.
    """
    known = relation.stream.flow.functions
    function = known.get(call.name.lower())
    if function is None:
        raise UnknownName(
            f"there is no function `{call.name}`",
            hint="CREATE FUNCTION ... RETURNS ARRAY<STRUCT<a: STRING, b: BIGINT>>",
            origin=text.of_node(call),
        )
    kind = Schema.parse(f"x {function.returns}").fields[0].type
    if kind is None or not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        raise SchemaError(
            f"the function `{call.name}` gives {function.returns}, not rows",
            hint="a table function RETURNS ARRAY<STRUCT<a: STRING, b: BIGINT>>",
            origin=text.of_node(call),
        )
    schema = Schema.of(Field(f.name, f.type) for f in kind.value_type)
    alias = place.args.get("alias")
    names = [c.name for c in (alias.args.get("columns") or [])] if alias is not None else []
    names = names or list(schema.names)
    if len(names) != len(schema.names):
        raise DefinitionError(
            f"{len(names)} names for the {len(schema.names)} columns of `{call.name}`", origin=text.of_node(place)
        )
    expression = relation.expr(text, call)
    with text.at(call):
        stream = relation.stream._rows_of(expression, schema, names, keep_empty=outer)
    columns = {n.lower(): n for n in names}
    of = alias.name if alias is not None else ""
    return replace(relation, stream=stream, aliases={**relation.aliases, **({of.lower(): columns} if of else {})})
