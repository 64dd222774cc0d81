"""Joins of streams in FROM: distributes the conditions of ON and WHERE.

For inner joins, a condition on one relation is applied before the join, and one on two relations becomes part of it. So
less state is kept, and only as long as the times in the conditions require.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import DefinitionError, Unsupported
from millstream.model.expression import Expr, col, has_clock
from millstream.model.steps.event_times import conjuncts, disjuncts
from millstream.model.steps.event_times import joined as bounds_of
from millstream.model.steps.relations.join import Joined
from millstream.model.steps.step import upstream
from millstream.model.streams.stream import Stream
from millstream.sql.parse.text import Text
from millstream.sql.relations import using as same_names
from millstream.sql.relations.relation import HIDDEN, Relation, checked

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

_HOW = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi",
    ("", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
    ("", "ANTI"): "anti",
}


@dataclass(frozen=True)
class Joining:
    """A relation that joins the preceding ones: how, under which names, and on which conditions."""

    relation: Relation
    how: str
    renamed: Mapping[str, str]
    """The names of its columns in the joined rows."""
    on: tuple[exp.Expr, ...]
    node: exp.Expr


def joining(query: _Query, left: Relation, join: exp.Join, right: Relation) -> tuple[Relation, Joining]:
    """A join as written: the resulting relation, and what is needed to rebuild it."""
    text = query.text
    how = _how(text, join)
    renamed = pair_names(left.stream.schema.names, right.stream.schema.names)
    using = same_names.names_of(text, left, join)
    both = joined_names(text, left, right, renamed, using, join)
    on = join.args.get("on")
    parts = [] if on is None or (isinstance(on, exp.Boolean) and on.this) else list(conjuncts(on))
    trees = [both.resolved(text, p) for p in parts]
    one: dict[str, str] = {}
    for name in using:
        mine, theirs = (named_column(text, r, name, join) for r in (left, right))
        trees.append(exp.EQ(this=exp.column(mine), expression=exp.column(renamed[theirs])))
        one[mine] = renamed[theirs]
    right, trees = _present(text, right, how, renamed, trees)
    pair = Joining(right, how, renamed, tuple(checked(text, t).node for t in trees), join.this)
    stream = joined(text, left.stream, pair, pair.on)
    result = (left if how in ("semi", "anti") else both).with_stream(stream)
    return same_names.merged(result, left, one) if one and how in ("right", "full") else result, pair


def _present(
    text: Text, right: Relation, how: str, renamed: Mapping[str, str], on: Sequence[exp.Expr]
) -> tuple[Relation, list[exp.Expr]]:
    """The right side with those conditions of ON applied that compare one of its times with the current time; and the
    others.
    """
    back = {new: old for old, new in renamed.items()}
    timed = [t for t in on if has_clock(t) and _columns(t) and _columns(t) <= set(back)]
    if how not in ("inner", "left", "semi", "anti") or not timed:
        return right, list(on)
    conditions = [(t, checked(text, t, clock=True).node) for t in timed]
    stream, _ = _filtered(text, right.stream, back, conditions)
    return right.with_stream(stream), [t for t in on if t not in timed]


def pushed(
    text: Text, first: Relation, joins: Sequence[Joining], whole: Relation, where: Sequence[exp.Expr]
) -> tuple[Relation, list[exp.Expr]]:
    """A chain of joins rebuilt with the conditions of WHERE pushed down, where that is equivalent; and the others.

    Conditions on the current time are applied before the joins, so that rows are kept only while they are present. An
    exception are joins whose state event times bound: event times do not bound rows that appear and disappear by the
    clock.
    """
    timed = [p for p in where if p.find(exp.Query) is None and has_clock(p)]
    if timed and not any(j.how in ("right", "full") for j in joins):
        plain = [p for p in where if p not in timed]
        pushed_joins, rest = _pushed(text, first, joins, whole, plain)
        if any(isinstance(s, Joined) and any(bounds_of(s).used) for s in upstream(pushed_joins.stream.step)):
            return pushed_joins, [*rest, *timed]
    return _pushed(text, first, joins, whole, where)


def _pushed(
    text: Text, first: Relation, joins: Sequence[Joining], whole: Relation, where: Sequence[exp.Expr]
) -> tuple[Relation, list[exp.Expr]]:
    left_over: list[exp.Expr] = []
    trees: list[exp.Expr] = []
    for part in where:
        (trees if part.find(exp.Query) is None else left_over).append(part)
    if any(j.how in ("right", "full") for j in joins):
        return whole, list(where)
    resolved = [(p, checked(text, whole.resolved(text, p), clock=True).node) for p in trees]
    stream = first.stream
    stream, resolved = _filtered(text, stream, {n: n for n in stream.schema.names}, resolved)
    for one in joins:
        right, on = one.relation.stream, list(one.on)
        back = {new: old for old, new in one.renamed.items()}
        if one.how == "inner":
            right, resolved = _filtered(text, right, back, resolved)
            here = {*stream.schema.names, *one.renamed.values()}
            inside = [r for r in resolved if _columns(r[1]) <= here and not has_clock(r[1])]
            resolved = [r for r in resolved if r not in inside]
            on += [tree for _, tree in inside]
        if one.how in ("inner", "left", "semi", "anti"):
            mine = [(t, t) for t in on]
            right, rest = _filtered(text, right, back, mine)
            on = [t for _, t in rest]
        moved = replace(one, relation=one.relation.with_stream(right))
        stream = joined(text, stream, moved, on)
    return whole.with_stream(stream), [p for p, _ in resolved] + left_over


def in_order(where: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Conditions in the order in which they are applied. This is the order as written, except that conditions on the
    current time follow the plain ones, which leave fewer rows to hold, and precede subqueries, which then keep rows
    only while they are present.
    """
    if not any(has_clock(p) for p in where):
        return list(where)
    return sorted(where, key=lambda p: 2 if p.find(exp.Query) is not None else int(has_clock(p)))


def shared_by_or(text: Text, whole: Relation, where: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Equalities of two columns that every branch of an OR contains: ``(a = b AND x) OR (a = b AND y)`` implies ``a =
    b``, and a join on a key examines fewer pairs than one without.
    """
    shared: list[exp.Expr] = []
    for part in where:
        if not isinstance(part, exp.Or) or part.find(exp.Query) is not None:
            continue
        branches = [list(conjuncts(b)) for b in disjuncts(part)]
        for one in branches[0]:
            columns = [one.left.unnest(), one.right.unnest()] if isinstance(one, exp.EQ) else []
            if not columns or not all(isinstance(c, exp.Column) for c in columns):
                continue
            tree = whole.resolved(text, one)
            if all(any(whole.resolved(text, o) == tree for o in rest) for rest in branches[1:]):
                shared.append(one)
    return shared


def _filtered(
    text: Text, stream: Stream, back: Mapping[str, str], conditions: Sequence[tuple[exp.Expr, exp.Expr]]
) -> tuple[Stream, list[tuple[exp.Expr, exp.Expr]]]:
    """A stream with the conditions applied that refer to it alone; and the others."""
    rest = []
    for part, tree in conditions:
        names = _columns(tree)
        if names and names <= set(back):
            own = Expr(tree).substitute({new: col(old) for new, old in back.items()})
            with text.at(part):
                stream = stream.where(Expr(own.node, text.of_node(part)))
        else:
            rest.append((part, tree))
    return stream, rest


def joined(text: Text, left: Stream, one: Joining, on: Iterable[exp.Expr]) -> Stream:
    """Two streams joined on conditions over their pairs."""
    right = one.relation.stream
    back = {new: old for old, new in one.renamed.items()}
    mine, theirs = set(left.schema.names), set(back)
    pairs: list[tuple[Expr, Expr]] = []
    rest: list[exp.Expr] = []
    for tree in on:
        sides = equal_sides(tree, mine, theirs)
        if sides is None:
            rest.append(tree)
        else:
            other = Expr(sides[1]).substitute({new: col(old) for new, old in back.items()})
            pairs.append((Expr(sides[0]), other))
    with text.at(one.node):
        left._check_other(right, "a join")
        condition = Expr(exp.and_(*rest)) if rest else None
        renamed, origin = tuple(one.renamed.items()), text.of_node(one.node)
        step = Joined(left.step, right.step, tuple(pairs), one.how, renamed, condition, origin=origin)
        return left._with(step)


def _how(text: Text, join: exp.Join) -> str:
    side, kind, method = ((join.args.get(a) or "").upper() for a in ("side", "kind", "method"))
    how = _HOW.get((side, kind)) if not method else None
    if how is None:
        join_kind = " ".join(w for w in (method, side, kind) if w)
        raise Unsupported(
            f"{join_kind.removesuffix('JOIN').strip(' _')} JOIN is not supported in a view",
            hint="JOIN, LEFT, RIGHT, FULL, LEFT SEMI, LEFT ANTI and CROSS JOIN are, and ASOF JOIN",
            origin=text.of_node(join.this),
        )
    if join.args.get("match_condition") is not None:
        raise DefinitionError(
            "MATCH_CONDITION belongs to ASOF JOIN", hint="write ASOF JOIN, or AND in ON", origin=text.of_node(join.this)
        )
    if how != "inner" and not join.args.get("on") and not join.args.get("using"):
        raise DefinitionError(
            f"a {how} join needs ON",
            hint="... JOIN other ON a.id = other.id, or USING (id)",
            origin=text.of_node(join.this),
        )
    return how


def pair_names(mine: Sequence[str], theirs: Sequence[str]) -> dict[str, str]:
    """Names for the columns of the right side that do not collide with columns of the left side."""
    names_in_use, names = {n.lower() for n in mine}, {}
    for name in theirs:
        new, number = name, 0
        while new.lower() in names_in_use:
            number += 1
            new = f"{HIDDEN}{number}_{name}"
        names_in_use.add(new.lower())
        names[name] = new
    return names


def joined_names(
    text: Text, left: Relation, right: Relation, renamed: Mapping[str, str], using: Sequence[str], join: exp.Join
) -> Relation:
    """The names of a joined row; its stream is that of the left side until the join is applied."""
    theirs = {a: {k: renamed.get(v, v) for k, v in c.items()} for a, c in right.aliases.items()}
    twice = set(theirs) & set(left.aliases)
    if twice:
        raise DefinitionError(
            f"`{sorted(twice)[0]}` appears twice",
            hint="give one of them another name: ... AS other",
            origin=text.of_node(join.this),
        )
    pair = Joined(left.stream.step, right.stream.step, (), "inner", tuple(renamed.items()))
    same = {n.lower() for n in left.stream.schema.names} & {n.lower() for n in right.stream.schema.names}
    semi = (join.kind or "").upper() in ("SEMI", "ANTI")
    ambiguous = set() if semi else same - {u.lower() for u in using}
    return Relation(
        left.stream._with(pair),
        {**left.aliases, **theirs},
        left.times | {renamed[t] for t in right.times if t in renamed},
        left.clocks,
        ambiguous=left.ambiguous | frozenset(ambiguous),
    )


def named_column(text: Text, relation: Relation, name: str, join: exp.Join) -> str:
    """The relation's column for a name in USING."""
    column = next((n for n in relation.stream.schema.names if n.lower() == name.lower()), None)
    if column is None:
        raise same_names.missing(text, name, relation.stream.schema.names, join)
    return column


def equal_sides(tree: exp.Expr, mine: set[str], theirs: set[str]) -> tuple[exp.Expr, exp.Expr] | None:
    """The two sides of an equality between the left and the right."""
    tree = tree.unnest()
    if not isinstance(tree, exp.EQ):
        return None
    left, right = _columns(tree.left), _columns(tree.right)
    if left and right and left <= mine and right <= theirs:
        return tree.left, tree.right
    if left and right and left <= theirs and right <= mine:
        return tree.right, tree.left
    return None


def _columns(tree: exp.Expr) -> set[str]:
    return set(Expr(tree).columns())
