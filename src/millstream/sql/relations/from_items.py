"""Items of FROM that extend a relation: joins, stored tables, expanded arrays and renamed columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError, Unsupported
from millstream.model.expression import col
from millstream.model.steps.columns import plain_column
from millstream.model.steps.event_times import conjuncts
from millstream.model.steps.step import changes
from millstream.model.streams.stream import Stream
from millstream.model.types.scalars import widest
from millstream.model.types.schema import Schema, ddl_type
from millstream.sql.catalog import schema_of
from millstream.sql.parse.statement_values import CreateTable
from millstream.sql.parse.text import Text
from millstream.sql.relations import array_functions, as_of_join, using, windows
from millstream.sql.relations import join as pairs
from millstream.sql.relations.relation import HIDDEN, Relation, checked
from millstream.sql.relations.table_functions import table_call, tabled
from millstream.sql.subqueries import correlated

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query


def renamed(text: Text, relation: Relation, names: Sequence[str], node: exp.Expr) -> Relation:
    """A relation with new column names, in order."""
    if not names or tuple(names) == relation.names:
        return relation
    if len(names) != len(relation.names):
        raise SchemaError(f"{len(names)} names for {len(relation.names)} columns", origin=text.of_node(node))
    if relation.windowed is not None or relation.ranked is not None:
        raise Unsupported("other names for the columns of a window or of numbered rows", origin=text.of_node(node))
    pairs = dict(zip(names, relation.names, strict=True))
    with text.at(node):
        stream = relation.stream.select(**{new: col(old) for new, old in pairs.items()})
    times = frozenset(new for new, old in pairs.items() if old in relation.times)
    return Relation(stream, times=times)


def widened(stream: Stream, other: Stream) -> Stream:
    """A stream whose numeric columns are as wide as those of another, as in Spark's UNION."""
    columns = {}
    for mine, theirs in zip(stream.schema, other.schema, strict=True):
        wide = widest((mine.type, theirs.type)) or mine.type
        columns[mine.name] = f"`{mine.name}`" if wide == mine.type else f"CAST(`{mine.name}` AS {ddl_type(wide)})"
    return stream if all(c.startswith("`") for c in columns.values()) else stream.select(**columns)


def joined(
    query: _Query, relation: Relation, join: exp.Join, ctes: Mapping[str, Relation]
) -> tuple[Relation, pairs.Joining | None]:
    """A relation with one JOIN applied; and what is needed to rebuild it, if it joins two streams."""
    other = join.this
    if other.args.get("joins"):
        raise Unsupported(
            "a join inside a join is not supported in a view",
            hint="write the joins one after the other, or put the inner one in a subquery: JOIN (SELECT ...) AS x",
            origin=query.text.of_node(other),
        )
    inner = other.this if isinstance(other, exp.Lateral) else other
    if array_functions.call_of(other) is not None:
        return _generated(query, relation, join), None
    if isinstance(other, exp.Lateral) and isinstance(inner, exp.Query):
        return _beside(query, relation, join, inner, ctes), None
    call = table_call(inner) if isinstance(other, exp.Lateral) else None
    if call is not None and join.side in ("", "LEFT"):
        return tabled(query.text, relation, call, other, outer=join.side == "LEFT"), None
    table = query.binder.catalog.get(other.name) if isinstance(other, exp.Table) else None
    live = query.options.get("tables") == "live"
    by_order = (join.args.get("method") or "").upper() == "ASOF"
    if isinstance(table, CreateTable) and other.name.lower() not in ctes and not live and not by_order:
        return _looked_up(query, relation, join, table), None
    version = other.args.get("version")
    right = query.settled(query.source(other, ctes, version=True), other)
    if right.windowed is not None:
        right = windows.rows(query.text, right, other)
    if version is not None or by_order:
        at = None if version is None else version.expression
        return as_of_join.joined(query, relation, join, right, at), None
    join = using.spelled_out(query.text, relation, right.names, join)
    return pairs.joining(query, relation, join, right)


def _beside(
    query: _Query, relation: Relation, join: exp.Join, inner: exp.Query, ctes: Mapping[str, Relation]
) -> Relation:
    """A relation with LATERAL (SELECT ...): the rows that a subquery has for each of its rows."""
    text, other = query.text, join.this
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if side not in ("", "LEFT") or kind not in ("", "INNER", "CROSS", "OUTER") or join.args.get("using"):
        raise Unsupported(f"{side} {kind} JOIN LATERAL".replace("  ", " "), origin=text.of_node(other))
    tree, outer = correlated.correlated(query, inner, ctes, relation)
    right = query.settled(query.query(tree, ctes, outer), inner)
    alias = other.args.get("alias")
    columns = [c.name for c in (alias.args.get("columns") or ())] if alias is not None else []
    if columns and outer is not None:
        raise Unsupported(
            "other names for the columns of LATERAL (SELECT ...)",
            hint="set them in its SELECT",
            origin=text.of_node(other),
        )
    right = renamed(text, right, columns, other).called(other.alias)
    names = correlated.inside(relation, right)
    both = pairs.joined_names(text, relation, right, names, [], join)
    on = [] if outer is None else outer.on(names)
    on += [checked(text, both.resolved(text, p)).node for p in conjuncts(join.args.get("on") or exp.true())]
    on = [p for p in on if not (isinstance(p, exp.Boolean) and p.this)]
    joining = pairs.Joining(right, "left" if side else "inner", names, tuple(on), other)
    return both.with_stream(pairs.joined(text, relation.stream, joining, on))


def lateral(query: _Query, relation: Relation, view: exp.Lateral) -> Relation:
    """A relation with a LATERAL VIEW over an array, or over a function that returns rows."""
    text, outer = query.text, bool(view.args.get("outer"))
    call = None if array_functions.call_of(view) is not None else table_call(view.this)
    if call is not None:
        return tabled(text, relation, call, view, outer=outer)
    if array_functions.call_of(view) is None:
        raise Unsupported(f"`{view.sql(dialect='spark')[:60]}`", origin=text.of_node(view))
    return array_functions.beside(query, relation, view, outer=outer)


def _generated(query: _Query, relation: Relation, join: exp.Join) -> Relation:
    """A join to a table function of the row's own columns."""
    text, on = query.text, join.args.get("on")
    plain = on is None or (isinstance(on, exp.Boolean) and on.this)
    if join.side not in ("", "LEFT") or join.args.get("using") or (join.side == "LEFT" and not plain):
        raise Unsupported(
            f"`{join.sql(dialect='spark').strip()[:60]}`",
            hint="CROSS JOIN, JOIN ... ON condition and LEFT JOIN ... ON true are",
            origin=text.of_node(join),
        )
    generated = array_functions.beside(query, relation, join.this, outer=join.side == "LEFT")
    if on is None or plain:
        return generated
    condition = generated.expr(text, on)
    with text.at(on):
        return generated.with_stream(generated.stream.where(condition))


def element(text: Text, relation: Relation, name: str, array: exp.Expr, *, outer: bool, of: str = "") -> Relation:
    """A relation with the elements of an array as a column."""
    expression = relation.expr(text, array)
    with text.at(array):
        if name.lower() in {n.lower() for n in relation.stream.schema.names}:
            raise SchemaError(f"there is already a column `{name}`", hint="give the elements another name")
        stream = relation.stream._flattened(name, expression, keep_empty=outer)
    aliases = {**relation.aliases, **({of.lower(): {name.lower(): name}} if of else {})}
    return replace(relation, stream=stream, aliases=aliases)


def _looked_up(query: _Query, relation: Relation, join: exp.Join, table: CreateTable) -> Relation:
    text, other = query.text, join.this
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
        raise Unsupported(
            f"{side} {kind} JOIN to a stored table that is looked up".replace("  ", " ").strip(),
            hint="CREATE VIEW ... WITH (tables = 'live') AS ...: all joins work there",
            origin=text.of_node(other),
        )
    schema = schema_of(query.binder.catalog, table)
    assert schema is not None
    join = using.spelled_out(text, relation, schema.names, join)
    alias = (other.alias or table.name).lower()
    relation, matches = _matched(text, relation, join, alias, schema)
    matched = {theirs for _, theirs in matches}
    added = [f for f in schema if f.name not in matched]
    relation, within = _out_of_the_way(relation, [f.name for f in added])
    back = {theirs.lower(): within.get(mine, mine) for mine, theirs in matches} if not side else {}
    columns = {**{f.name.lower(): f.name for f in added}, **back}
    with text.at(other):
        if not added:
            raise Unsupported("a join that takes no column of the table", hint="add a column, or filter in a query")
        if changes(relation.stream.step):
            raise Unsupported(
                f"the stored table `{table.name}` cannot be looked up for rows that change",
                detail="a lookup reads the table when a row arrives, and would not find the same row again",
                hint="CREATE VIEW ... WITH (tables = 'live') AS ...: the view follows the changes of the table",
            )
        stream = relation.stream.enrich(
            table.name,
            on={within.get(mine, mine): theirs for mine, theirs in matches},
            columns=Schema.of(added),
            required=not side,
        )
    return replace(relation, stream=stream, aliases={**relation.aliases, alias: columns})


def _matched(
    text: Text, relation: Relation, join: exp.Join, alias: str, schema: Schema
) -> tuple[Relation, list[tuple[str, str]]]:
    """The columns that must be equal, of the relation and of the table; other expressions are added
    as columns first.
    """
    on = join.args.get("on")
    for name in using.names_of(text, relation, join):
        if name.lower() not in {n.lower() for n in schema.names}:
            raise using.missing(text, name, schema.names, join)
        same = exp.EQ(this=exp.column(name), expression=exp.column(name, table=alias))
        on = same if on is None else exp.and_(on, same)
    if on is None or isinstance(on, exp.Boolean):
        raise DefinitionError(
            "a join needs ON with equal columns", hint="e.g. JOIN t ON t.id = s.id", origin=text.of_node(join.this)
        )
    theirs = {n.lower(): n for n in schema.names}
    found_pairs: list[tuple[str, str]] = []
    for condition in on.flatten() if isinstance(on, exp.And) else [on]:
        sides: list[exp.Expr] = [condition.left, condition.right] if isinstance(condition, exp.EQ) else []
        table_sides = [s for s in sides if _is_theirs(s, alias, theirs, relation)]
        if len(table_sides) != 1:
            raise Unsupported(
                f"`{condition.sql(dialect='spark')[:60]}` in ON",
                hint="each condition is a column of the table = an expression over the stream, joined by AND",
                origin=text.of_node(condition),
            )
        mine = sides[1] if table_sides[0] is sides[0] else sides[0]
        bound = relation.expr(text, mine)
        column = plain_column(bound) or f"{HIDDEN}{len(found_pairs)}"
        if column.startswith(HIDDEN):
            relation = replace(relation, stream=relation.stream.with_columns(**{column: bound}))
        found_pairs.append((column, theirs[table_sides[0].name.lower()]))
    return relation, found_pairs


def _is_theirs(node: exp.Expr, alias: str, theirs: Mapping[str, str], relation: Relation) -> bool:
    if not isinstance(node, exp.Column) or node.name.lower() not in theirs:
        return False
    if node.table:
        return node.table.lower() == alias
    return node.name.lower() not in {n.lower() for n in relation.stream.schema.names}


def _out_of_the_way(relation: Relation, names: list[str]) -> tuple[Relation, dict[str, str]]:
    """Rename columns of the stream to hidden names if new columns have the same name."""
    names_in_use = {n.lower() for n in names}
    clash = [n for n in relation.stream.schema.names if n.lower() in names_in_use]
    if not clash:
        return relation, {}
    moved = {n: f"{HIDDEN}{n}" for n in clash}
    stream = relation.stream.select(**{moved.get(n, n): col(n) for n in relation.stream.schema.names})
    aliases = {a: {k: moved.get(v, v) for k, v in c.items()} for a, c in relation.aliases.items()}
    times = frozenset(moved.get(t, t) for t in relation.times)
    return replace(relation, stream=stream, aliases=aliases, times=times), moved
