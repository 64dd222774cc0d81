"""Scopes: finds the columns of a subquery that refer to the outer query, because nothing inside it defines them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import SchemaError, Unsupported
from millstream.model.expression import is_lambda_parameter
from millstream.sql.relations import array_functions
from millstream.sql.relations.relation import Relation

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query


@dataclass
class _Scope:
    """The names in scope in one SELECT."""

    aliases: dict[str, set[str]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    plain: set[str] = field(default_factory=set)
    """Columns without fields: a dot after such a name refers to an outer alias."""

    def add(self, names: Iterator[str], alias: str = "") -> None:
        lowered = {n.lower() for n in names}
        self.names |= lowered
        if alias:
            self.aliases[alias.lower()] = lowered

    def has(self, column: exp.Column) -> bool:
        """Whether a column belongs to this SELECT."""
        parts = [p.name.lower() for p in column.parts]
        if len(parts) > 1 and parts[0] in self.aliases:
            return True
        return parts[0] in self.names and (len(parts) == 1 or parts[0] not in self.plain)


def is_subquery(node: exp.Expr) -> bool:
    """Whether a node of an expression is a subquery, or compares with one."""
    if isinstance(node, exp.Exists):
        return isinstance(node.this, exp.Query)
    if isinstance(node, exp.In):
        return node.args.get("query") is not None
    return isinstance(node, exp.Query)


def subqueries_of(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The outermost subqueries of an expression."""
    if is_subquery(tree):
        yield tree
        return
    for child in tree.iter_expressions():
        yield from subqueries_of(child)


def free_columns(query: _Query, node: exp.Expr, ctes: Mapping[str, Relation], around: Relation) -> list[exp.Column]:
    """The columns inside a query that refer to the outer relation."""
    columns = []
    for column in _free(query, node, ctes, []):
        if _means(query, column, around):
            _refuse_in_cte(query, column, node)
            columns.append(column)
    return columns


def _refuse_in_cte(query: _Query, column: exp.Column, node: exp.Expr) -> None:
    """Reject an outer column in one of the query's CTEs."""
    at = column.parent
    while at is not None and at is not node:
        if isinstance(at, exp.CTE):
            raise Unsupported(
                "WITH inside a subquery cannot use outer columns",
                hint="write that part as a subquery in FROM",
                origin=query.text.of_node(column),
            )
        at = at.parent


def _means(query: _Query, column: exp.Column, around: Relation) -> bool:
    try:
        around.resolved(query.text, column)
    except SchemaError:
        parts = [p.name.lower() for p in column.parts]
        if (len(parts) > 1 and parts[0] in around.aliases) or parts[0] in around.ambiguous:
            raise
        return False
    return True


def _free(query: _Query, node: exp.Expr, ctes: Mapping[str, Relation], scopes: list[_Scope]) -> Iterator[exp.Column]:
    """The columns that no SELECT in between defines."""
    with_clause = node.args.get("with_")
    if with_clause is not None:
        for cte in with_clause.expressions:
            if not with_clause.args.get("recursive"):
                yield from _free(query, cte.this, ctes, scopes)
            ctes = query.with_cte(with_clause, cte, ctes)
    if isinstance(node, exp.Subquery):
        yield from _free(query, node.this, ctes, scopes)
        yield from _columns_of(query, [node.args.get("order")], ctes, [*scopes, _answer(node)])
    elif isinstance(node, exp.SetOperation):
        yield from _free(query, node.left, ctes, scopes)
        yield from _free(query, node.right, ctes, scopes)
    elif isinstance(node, exp.Select):
        yield from _free_of_select(query, node, ctes, scopes)


def _free_of_select(
    query: _Query, node: exp.Select, ctes: Mapping[str, Relation], scopes: list[_Scope]
) -> Iterator[exp.Column]:
    scope = _Scope()
    start = node.args.get("from_")
    first = [] if start is None else [start.this, *(j for j in start.this.args.get("joins") or ())]
    conditions: list[exp.Expr | None] = []
    for part in (*first, *(node.args.get("joins") or ()), *(node.args.get("laterals") or ())):
        source = part.this if isinstance(part, exp.Join) else part
        if isinstance(part, exp.Join):
            conditions.append(part.args.get("on"))
        inner = source.this if isinstance(source, exp.Lateral) else source
        if isinstance(inner, exp.Query):
            beside = [*scopes, scope] if isinstance(source, exp.Lateral) else scopes
            yield from _free(query, inner, ctes, beside)
        elif array_functions.call_of(source) is not None or isinstance(source, exp.Lateral | exp.UDTF):
            conditions.append(inner)
        _add(query, scope, source, ctes)
    within = [*scopes, scope]
    plain = [*node.expressions, *conditions, node.args.get("where"), *(node.args.get("windows") or ())]
    yield from _columns_of(query, plain, ctes, within)
    behind = [node.args.get(a) for a in ("group", "having", "order", "qualify")]
    yield from _columns_of(query, behind, ctes, [*within, _answer(node)])


def _columns_of(
    query: _Query, parts: list[exp.Expr | None], ctes: Mapping[str, Relation], scopes: list[_Scope]
) -> Iterator[exp.Column]:
    for part in parts:
        if part is None:
            continue
        if isinstance(part, exp.Query):
            yield from _free(query, part, ctes, scopes)
        elif isinstance(part, exp.Column):
            if not isinstance(part.this, exp.Star) and not is_lambda_parameter(part):
                if not any(s.has(part) for s in scopes):
                    yield part
        else:
            yield from _columns_of(query, list(part.iter_expressions()), ctes, scopes)


def _answer(node: exp.Expr) -> _Scope:
    """The output names, which ORDER BY and other clauses can use."""
    select = node.unnest() if isinstance(node, exp.Subquery) else node
    while isinstance(select, exp.SetOperation):
        select = select.left
    scope = _Scope()
    scope.add(e.alias_or_name for e in select.args.get("expressions") or () if isinstance(e, exp.Expr))
    return scope


def _names(relation: Relation) -> Iterator[str]:
    """All names of a relation, including that of a row number that is not bound yet."""
    yield from (*relation.names, *relation.clocks)
    if relation.ranked is not None:
        yield relation.ranked.name


def _starred(query: _Query, node: exp.Query, ctes: Mapping[str, Relation]) -> Relation:
    """A relation with the names of a query. Its conditions may use columns that are not in scope here."""
    try:
        return query.query(node, ctes)
    except SchemaError:
        tree = node.copy()
        for select in tree.find_all(exp.Select):
            for condition in ("where", "having", "qualify"):
                select.set(condition, None)
        return query.query(tree, ctes)


def _add(query: _Query, scope: _Scope, source: exp.Expr, ctes: Mapping[str, Relation]) -> None:
    """Add the names of one item of FROM."""
    alias = source.args.get("alias")
    columns = [c.name for c in (alias.args.get("columns") or ())] if isinstance(alias, exp.TableAlias) else []
    inner = source.this if isinstance(source, exp.Lateral) else source
    call = array_functions.call_of(source)
    if call is not None:
        columns = columns or [array_functions.column_of(call, source.alias)]
    if columns:
        scope.add(iter(columns), source.alias)
    elif isinstance(inner, exp.Query):
        select = inner.unnest() if isinstance(inner, exp.Subquery) else inner
        while isinstance(select, exp.SetOperation):
            select = select.left
        items = list(select.args.get("expressions") or ())
        if any(isinstance(i, exp.Star) or (isinstance(i, exp.Column) and isinstance(i.this, exp.Star)) for i in items):
            scope.add(_names(_starred(query, inner, ctes)), source.alias)
        else:
            from millstream.sql.bind.select import named_items

            scope.add((n for n, _ in named_items(items)), source.alias)
    elif isinstance(inner, exp.Values):
        scope.add(_names(query.source(inner, ctes)), source.alias)
    elif isinstance(source, exp.Table):
        relation = query.source(source, ctes, version=True)
        scope.add(iter((*relation.stream.schema.names, *_names(relation))))
        scope.aliases.update({a: set(c) for a, c in relation.aliases.items()})
        scope.plain |= {n.lower() for n in relation.stream.schema.names if not relation.has_fields(n)}
