"""Subqueries that use columns of the rows around them, as relations that have these columns, too.

A subquery is bound once for all rows around it. Each column of theirs that it uses becomes a column of its own rows
(`Outer`), under a name that nobody else has: groups, numbers and first rows are those of one value of it, and the
result is joined to the rows around by it. Where a condition says ``inner = outer``, the column is the inner side of it;
else the subquery is joined to all values that the rows around have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millstream.errors import SchemaError, Unsupported
from millstream.model.aggregates.aggregate import Aggregate
from millstream.model.event_times import conjuncts
from millstream.model.expression import Expr, col
from millstream.sql.relations import join as pairs
from millstream.sql.relations.relation import HIDDEN, Relation
from millstream.sql.subqueries.scopes import free_columns

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

_ZERO = frozenset({"count", "count_distinct", "approx_count_distinct"})
"""Aggregates that are 0 over no rows."""
_EMPTY = frozenset({"collect", "collect_set", "approx_top_k"})
"""Aggregates that are an array without elements over no rows."""


@dataclass(frozen=True)
class Outer:
    """The columns of the rows around a subquery that it uses."""

    relation: Relation
    columns: Mapping[str, str]
    """By the name inside the subquery: the column of the rows around."""
    equal: set[str] = field(default_factory=set)
    """The names that a condition of the subquery makes equal to something of its own, so that they are never NULL."""

    @property
    def names(self) -> list[str]:
        """The names inside the subquery."""
        return list(self.columns)

    def values(self, names: Sequence[str]) -> Relation:
        """Every combination of values that the rows around have."""
        columns = {n: col(self.columns[n]) for n in names}
        return Relation(self.relation.stream.select(**columns).distinct())

    def on(self, inside: Mapping[str, str], *, values: bool = False) -> list[exp.Expr]:
        """The conditions that join the subquery to the rows around, or to their `values`; `inside` has its columns as
        the joined rows call them.
        """
        found = []
        for name, column in self.columns.items():
            left, right = exp.column(name if values else column), exp.column(inside[name])
            plain = name in self.equal
            kind = type_of(self.relation, column)
            found.append(exp.EQ(this=left, expression=right) if plain else same_or_null(left, right, kind))
        return found


def type_of(relation: Relation, column: str) -> pa.DataType | None:
    """The type of a column, where it is known."""
    return next((f.type for f in relation.stream.schema if f.name == column), None)


def same_or_null(left: exp.Expr, right: exp.Expr, kind: pa.DataType | None) -> exp.Expr:
    """A condition for two columns of one type and origin to have the same value, or both none, as an equality."""

    def text(column: exp.Expr) -> exp.Expr:
        value = column.copy()
        if kind is not None and pa.types.is_floating(kind):  # -0.0 and 0.0 are one value
            value = exp.Add(this=value, expression=exp.cast(exp.Literal.number("0.0"), "double"))
        binary = kind is not None and pa.types.is_binary(kind)
        said = exp.func("hex", value) if binary else exp.cast(value, "string")
        return exp.func("coalesce", exp.func("concat", exp.Literal.string("="), said), exp.Literal.string(""))

    return exp.EQ(this=text(left), expression=text(right))


def correlated(
    query: _Query, node: exp.Expr, ctes: Mapping[str, Relation], around: Relation
) -> tuple[exp.Expr, Outer | None]:
    """A subquery with names of its own for the columns of the rows around it; None: it uses none."""
    tree = node.copy()
    named: dict[str, str] = {}
    for column in free_columns(query, tree, ctes, around):
        found = around.resolved(query.text, column)
        root = found if isinstance(found, exp.Column) else found.find(exp.Column)
        assert isinstance(root, exp.Column)
        if root.name in around.clocks or root.name not in around.stream.schema:
            raise Unsupported(f"`{root.name}` inside a subquery", origin=query.text.of_node(column))
        name = named.get(root.name) or f"{HIDDEN}outer{query.number()}"
        named[root.name] = name
        root.this.set("this", name)
        root.meta.pop("resolved", None)
        column.replace(found)
    outer = Outer(around, {name: column for column, name in named.items()}) if named else None
    return tree, outer


def uses(node: exp.Expr, outer: Outer | None) -> bool:
    """Whether a part of a subquery uses columns of the rows around it."""
    return outer is not None and any(c.name in outer.columns for c in node.find_all(exp.Column))


def moved(
    query: _Query, outer: Outer, joins: Sequence[exp.Join], conditions: Sequence[exp.Expr], node: exp.Select
) -> tuple[list[exp.Join], list[exp.Expr]]:
    """The joins of a subquery without conditions that use columns of the rows around it, and all its conditions."""
    found, left = list(conditions), []
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
            found += [p for p in parts if uses(p, outer)]
            rest = [p.copy() for p in parts if not uses(p, outer)]
            join = join.copy()
            join.set("on", exp.and_(*rest) if rest else None)
        left.append(join)
    return left, found


def _too_deep(query: _Query, node: exp.Expr) -> Unsupported:
    return Unsupported(
        "a subquery that uses columns of the rows around it in an outer or as-of join, or in a second relation of its "
        "FROM",
        hint="use them in its WHERE, or in the first relation of its FROM",
        origin=query.text.of_node(node),
    )


def equalities(
    query: _Query, outer: Outer, relation: Relation, conditions: Sequence[exp.Expr]
) -> tuple[dict[str, exp.Expr], list[exp.Expr]]:
    """What conditions make the columns of the rows around equal to, and the other conditions over that."""
    found: dict[str, exp.Expr] = {}
    rest: list[exp.Expr] = []
    for part in conditions:
        tree = part.unnest()
        sides = [(tree.left.unnest(), tree.right), (tree.right.unnest(), tree.left)] if isinstance(tree, exp.EQ) else []
        for column, other in sides:
            if not isinstance(column, exp.Column) or column.name not in outer.columns or column.name in found:
                continue
            if uses(other, outer) or other.find(exp.Query) or not _is_inside(query, relation, other):
                continue
            found[column.name] = other.unnest()
            break
        else:
            rest.append(part)
    return found, [_put_in(part, found) for part in rest]


def _is_inside(query: _Query, relation: Relation, node: exp.Expr) -> bool:
    try:
        relation.resolved(query.text, node)
    except SchemaError:
        return False
    return True


def _put_in(part: exp.Expr, found: Mapping[str, exp.Expr]) -> exp.Expr:
    if part.find(exp.Query) is not None or not any(c.name in found for c in part.find_all(exp.Column)):
        return part
    root = exp.Paren(this=part.copy())
    for column in list(root.find_all(exp.Column)):
        if column.name in found:
            column.replace(exp.paren(found[column.name].copy(), copy=False))
    inner: exp.Expr = root.this
    return inner


def with_values(query: _Query, outer: Outer, relation: Relation, equal: Mapping[str, exp.Expr]) -> Relation:
    """A relation with the columns of the rows around that conditions make equal to something."""
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
    """Two relations joined on conditions over the columns of their pairs, `on`, in which a column of the right has the
    name that `inside` gives; and these names.
    """
    made = pairs.Joining(right, how, inside(left, right), tuple(on), node)
    stream = pairs.joined(query.text, left.stream, made, on)
    added = frozenset(made.renamed.values() if how == "left" else ())
    return replace(left, stream=stream, unseen=left.unseen | added), made.renamed


def inside(left: Relation, right: Relation) -> Mapping[str, str]:
    """The names that columns of the right have in joined rows."""
    return pairs.pair_names(left.stream.schema.names, right.stream.schema.names)


def over_no_rows(kind: str, column: exp.Expr) -> exp.Expr:
    """A result of an aggregate that is NULL where it has no rows, as the aggregate of no rows."""
    if kind in _ZERO:
        return exp.func("coalesce", column, exp.Literal.number(0))
    if kind in _EMPTY:
        return exp.func("coalesce", column, exp.Array(expressions=[]))
    return column


def check_over_no_rows(query: _Query, measures: Mapping[str, Aggregate], node: exp.Expr) -> None:
    """Refuse aggregates whose result over no rows only their own code knows."""
    if any(m.kind == "user" for m in measures.values()):
        raise Unsupported(
            "an aggregate of your own in a subquery that uses columns of the rows around it",
            hint="group by these columns in FROM, and join",
            origin=query.text.of_node(node),
        )
