"""Correlated subqueries: binds them as relations that include the columns of the outer query that they use.

A subquery is bound once for all outer rows. Each outer column that it uses becomes a column of its own rows (`Outer`),
under a unique name. Groups, row numbers and first rows are computed per value of it, and the result is joined to the
outer rows on it. If a condition states ``inner = outer``, the column is the inner side of it; otherwise the subquery is
joined to all values of the outer rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millstream.errors import SchemaError, Unsupported
from millstream.model.aggregates.aggregate import Aggregate
from millstream.model.expression import Expr, col
from millstream.model.steps.event_times import conjuncts
from millstream.sql.relations import join as pairs
from millstream.sql.relations.relation import HIDDEN, Relation
from millstream.sql.subqueries.scopes import free_columns

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

_ZERO = frozenset({"count", "count_distinct", "approx_count_distinct"})
"""Aggregates that are 0 over no rows."""
_EMPTY = frozenset({"collect", "collect_set", "approx_top_k"})
"""Aggregates that are an empty array over no rows."""


@dataclass(frozen=True)
class Outer:
    """The outer columns that a subquery uses."""

    relation: Relation
    columns: Mapping[str, str]
    """From the name inside the subquery to the outer column."""
    equal: set[str] = field(default_factory=set)
    """The names that a condition of the subquery equates with an inner expression, so that they are never NULL."""

    @property
    def names(self) -> list[str]:
        """The names inside the subquery."""
        return list(self.columns)

    def values(self, names: Sequence[str]) -> Relation:
        """The distinct combinations of values in the outer rows."""
        columns = {n: col(self.columns[n]) for n in names}
        return Relation(self.relation.stream.select(**columns).distinct())

    def on(self, inside: Mapping[str, str], *, values: bool = False) -> list[exp.Expr]:
        """The conditions that join the subquery to the outer rows, or to their `values`; `inside` maps its columns to
        their names in the joined rows.
        """
        conditions = []
        for name, column in self.columns.items():
            left, right = exp.column(name if values else column), exp.column(inside[name])
            plain = name in self.equal
            kind = type_of(self.relation, column)
            conditions.append(exp.EQ(this=left, expression=right) if plain else same_or_null(left, right, kind))
        return conditions


def type_of(relation: Relation, column: str) -> pa.DataType | None:
    """The type of a column, if known."""
    return next((f.type for f in relation.stream.schema if f.name == column), None)


def same_or_null(left: exp.Expr, right: exp.Expr, kind: pa.DataType | None) -> exp.Expr:
    """An equality that holds if two columns of one type and origin have the same value, or are both NULL."""

    def text(column: exp.Expr) -> exp.Expr:
        value = column.copy()
        if kind is not None and pa.types.is_floating(kind):  # -0.0 and 0.0 are equal
            value = exp.Add(this=value, expression=exp.cast(exp.Literal.number("0.0"), "double"))
        binary = kind is not None and pa.types.is_binary(kind)
        as_text = exp.func("hex", value) if binary else exp.cast(value, "string")
        return exp.func("coalesce", exp.func("concat", exp.Literal.string("="), as_text), exp.Literal.string(""))

    return exp.EQ(this=text(left), expression=text(right))


def correlated(
    query: _Query, node: exp.Expr, ctes: Mapping[str, Relation], around: Relation
) -> tuple[exp.Expr, Outer | None]:
    """A subquery with unique names for its outer columns; None if it uses none."""
    tree = node.copy()
    named: dict[str, str] = {}
    for column in free_columns(query, tree, ctes, around):
        resolved = around.resolved(query.text, column)
        root = resolved if isinstance(resolved, exp.Column) else resolved.find(exp.Column)
        assert isinstance(root, exp.Column)
        if root.name in around.clocks or root.name not in around.stream.schema:
            raise Unsupported(f"`{root.name}` inside a subquery", origin=query.text.of_node(column))
        name = named.get(root.name) or f"{HIDDEN}outer{query.number()}"
        named[root.name] = name
        root.this.set("this", name)
        root.meta.pop("resolved", None)
        column.replace(resolved)
    outer = Outer(around, {name: column for column, name in named.items()}) if named else None
    return tree, outer


def uses(node: exp.Expr, outer: Outer | None) -> bool:
    """Whether a part of a subquery uses outer columns."""
    return outer is not None and any(c.name in outer.columns for c in node.find_all(exp.Column))


def moved(
    query: _Query, outer: Outer, joins: Sequence[exp.Join], conditions: Sequence[exp.Expr], node: exp.Select
) -> tuple[list[exp.Join], list[exp.Expr]]:
    """The joins of a subquery without the conditions that use outer columns, and all its conditions."""
    equalities, left = list(conditions), []
    sources = [*(j.this for j in joins), *(node.args.get("laterals") or ())]
    dependent = next((s for s in sources if uses(s, outer)), None)
    if dependent is not None:
        raise _too_deep(query, dependent)
    for join in joins:
        on, match = join.args.get("on"), join.args.get("match_condition")
        if match is not None and uses(match, outer):
            raise _too_deep(query, match)
        if on is not None and uses(on, outer):
            by_order = (join.args.get("method") or "").upper() == "ASOF"
            if by_order or join.side or (join.kind or "").upper() not in ("", "INNER", "CROSS"):
                raise _too_deep(query, on)
            parts = list(conjuncts(on))
            equalities += [p for p in parts if uses(p, outer)]
            rest = [p.copy() for p in parts if not uses(p, outer)]
            join = join.copy()
            join.set("on", exp.and_(*rest) if rest else None)
        left.append(join)
    return left, equalities


def _too_deep(query: _Query, node: exp.Expr) -> Unsupported:
    return Unsupported(
        "a correlated subquery with outer columns in an outer or as-of join, or in a second relation of its FROM",
        hint="use them in its WHERE, or in the first relation of its FROM",
        origin=query.text.of_node(node),
    )


def equalities(
    query: _Query, outer: Outer, relation: Relation, conditions: Sequence[exp.Expr]
) -> tuple[dict[str, exp.Expr], list[exp.Expr]]:
    """What conditions equate the outer columns with, and the other conditions over that."""
    by_column: dict[str, exp.Expr] = {}
    rest: list[exp.Expr] = []
    for part in conditions:
        tree = part.unnest()
        sides = [(tree.left.unnest(), tree.right), (tree.right.unnest(), tree.left)] if isinstance(tree, exp.EQ) else []
        for column, other in sides:
            if not isinstance(column, exp.Column) or column.name not in outer.columns or column.name in by_column:
                continue
            if uses(other, outer) or other.find(exp.Query) or not _is_inside(query, relation, other):
                continue
            by_column[column.name] = other.unnest()
            break
        else:
            rest.append(part)
    return by_column, [_put_in(part, by_column) for part in rest]


def _is_inside(query: _Query, relation: Relation, node: exp.Expr) -> bool:
    try:
        relation.resolved(query.text, node)
    except SchemaError:
        return False
    return True


def _put_in(part: exp.Expr, by_column: Mapping[str, exp.Expr]) -> exp.Expr:
    if part.find(exp.Query) is not None or not any(c.name in by_column for c in part.find_all(exp.Column)):
        return part
    root = exp.Paren(this=part.copy())
    for column in list(root.find_all(exp.Column)):
        if column.name in by_column:
            column.replace(exp.paren(by_column[column.name].copy(), copy=False))
    inner: exp.Expr = root.this
    return inner


def with_values(query: _Query, outer: Outer, relation: Relation, equal: Mapping[str, exp.Expr]) -> Relation:
    """A relation with the outer columns that conditions equate with an expression."""
    if not equal:
        return relation
    columns = {name: relation.expr(query.text, tree) for name, tree in equal.items()}
    stream = relation.stream.with_columns(**columns)
    for name in equal:
        stream = stream.where(Expr(exp.column(name).is_(exp.null()).not_()))
    outer.equal.update(equal)
    return relation.with_stream(stream)


def joined(
    query: _Query, left: Relation, right: Relation, how: str, on: Sequence[exp.Expr], node: exp.Expr
) -> tuple[Relation, Mapping[str, str]]:
    """Two relations joined on the conditions `on` over their pairs, in which columns of the right side have the names
    that `inside` returns; and these names.
    """
    joining = pairs.Joining(right, how, inside(left, right), tuple(on), node)
    stream = pairs.joined(query.text, left.stream, joining, on)
    added = frozenset(joining.renamed.values() if how == "left" else ())
    return replace(left, stream=stream, unseen=left.unseen | added), joining.renamed


def inside(left: Relation, right: Relation) -> Mapping[str, str]:
    """The names of the right side's columns in joined rows."""
    return pairs.pair_names(left.stream.schema.names, right.stream.schema.names)


def over_no_rows(kind: str, column: exp.Expr) -> exp.Expr:
    """The result of an aggregate with the NULL of a missing group replaced by its value over no rows."""
    if kind in _ZERO:
        return exp.func("coalesce", column, exp.Literal.number(0))
    if kind in _EMPTY:
        return exp.func("coalesce", column, exp.Array(expressions=[]))
    return column


def check_over_no_rows(query: _Query, measures: Mapping[str, Aggregate], node: exp.Expr) -> None:
    """Reject aggregates whose result over no rows is known only to their own code."""
    if any(m.kind == "user" for m in measures.values()):
        raise Unsupported(
            "a user-defined aggregate in a correlated subquery",
            hint="group by these columns in FROM, and join",
            origin=query.text.of_node(node),
        )
