"""ASOF JOIN: which row of the right side each row of the left side is joined to, and which implementation computes it.

If both sides are compared by their event times, and the time to wait is known, each result is emitted once the
watermark has passed it, and is final (`JoinedAsOf`). In all other cases it is emitted immediately and revised
(`model/steps/as_of_any.py`): stored tables, changing rows, numbers, the next row at any distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from millstream.errors import DefinitionError, Origin, Unsupported
from millstream.model.expression import Expr, col
from millstream.model.steps.as_of_any import RevisedAsOf, revised
from millstream.model.steps.event_times import conjuncts, interval_micros, nearest, times_of
from millstream.model.steps.relations.as_of_join import JoinedAsOf
from millstream.model.streams.stream import Stream
from millstream.sql.parse.text import Text
from millstream.sql.relations import join as pairs
from millstream.sql.relations import using
from millstream.sql.relations.as_of_syntax import NEAREST
from millstream.sql.relations.relation import Relation, checked

if TYPE_CHECKING:
    from millstream.sql.bind.binder import _Query

_HINT = "equal columns, one comparison, and how far apart: a.id = b.id AND a.ts >= b.ts AND b.ts >= a.ts - INTERVAL ..."
_COMPARISONS = (exp.GTE, exp.GT, exp.LTE, exp.LT)


@dataclass(frozen=True)
class _Match:
    """The comparison that selects the partner: a value of the left side, one of the right side, and the direction."""

    left: exp.Expr
    right: exp.Expr
    direction: str
    strict: bool = False


@dataclass(frozen=True)
class _Bound:
    """An additional comparison: the maximum distance of the right row from the left row."""

    tree: exp.Expr
    direction: str
    """The direction it bounds: rows before, or after."""
    gap: exp.Expr | None
    """The distance, if it is a constant offset from the compared value of the left side; not negative."""
    micros: int | None
    """The distance in micros, including the row itself."""


@dataclass(frozen=True)
class _Sides:
    """The columns of a pair by side."""

    mine: frozenset[str]
    theirs: frozenset[str]

    def of(self, tree: exp.Expr) -> str:
        """The side that an expression refers to: left, right, both, or none."""
        names = set(Expr(tree).columns())
        if not names:
            return "none"
        return "left" if names <= self.mine else "right" if names <= self.theirs else "both"

    def halves(self, tree: exp.Expr) -> tuple[exp.Expr, exp.Expr, str, bool] | None:
        """A comparison as its left and right operand, the direction of the search, and whether it is strict."""
        if not isinstance(tree, _COMPARISONS):
            return None
        first, second = tree.left.unnest(), tree.right.unnest()
        less = isinstance(tree, exp.LTE | exp.LT)
        strict = isinstance(tree, exp.GT | exp.LT)
        if (self.of(first), self.of(second)) == ("left", "right"):
            return first, second, "forward" if less else "backward", strict
        if (self.of(first), self.of(second)) == ("right", "left"):
            return second, first, "backward" if less else "forward", strict
        return None


def joined(query: _Query, left: Relation, join: exp.Join, right: Relation, at: exp.Expr | None) -> Relation:
    """ASOF JOIN, or a join to a table FOR SYSTEM_TIME AS OF a time of the left side."""
    text = query.text
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if side not in ("", "LEFT") or kind not in ("", "INNER", "OUTER"):
        kind_text = " ".join(w for w in (side, kind) if w)
        raise Unsupported(f"{kind_text} ASOF JOIN", hint="ASOF JOIN and ASOF LEFT JOIN are", origin=_place(text, join))
    renamed = pairs.pair_names(left.stream.schema.names, right.stream.schema.names)
    names = using.names_of(text, left, join)
    both = pairs.joined_names(text, left, right, renamed, names, join)
    sides = _Sides(frozenset(left.stream.schema.names), frozenset(renamed.values()))
    trees = []
    for part in _parts(join.args.get("on")):
        trees += [checked(text, t).node for t in _split(both.resolved(text, part))]
        trees[-1].meta["said"] = part.sql(dialect="spark")[:60]
    match = None if at is None else _system_time(text, both, right, renamed, join, at)
    condition = join.args.get("match_condition")
    if condition is not None:
        match = _stated(text, both, sides, condition)
    for i, name in enumerate(names, 1):
        own, other = (pairs.named_column(text, r, name, join) for r in (left, right))
        mine, theirs = exp.column(own), exp.column(renamed[other])
        if i == len(names) and match is None and not any(sides.halves(t) for t in trees):
            match = _Match(mine, theirs, "backward")  # as in DuckDB, the last one is the time
        else:
            trees.append(exp.EQ(this=mine, expression=theirs))
    if match is None:
        match, trees = _chosen(text, sides, trees, join)
    return _bound(text, left, right, both, sides, renamed, match, trees, join, required=side != "LEFT")


def _place(text: Text, join: exp.Join) -> Origin | None:
    """The position of a join."""
    return text.of_node(join.this)


def _parts(on: exp.Expr | None) -> Iterator[exp.Expr]:
    """The conditions of ON."""
    if on is not None and not (isinstance(on, exp.Boolean) and on.this):
        yield from conjuncts(on)


def _split(tree: exp.Expr) -> Iterator[exp.Expr]:
    """BETWEEN as two comparisons; any other condition as it is."""
    if not isinstance(tree, exp.Between):
        yield tree
        return
    yield exp.GTE(this=tree.this.copy(), expression=tree.args["low"].copy())
    yield exp.LTE(this=tree.this.copy(), expression=tree.args["high"].copy())


def _stated(text: Text, both: Relation, sides: _Sides, condition: exp.Expr) -> _Match:
    """The comparison in MATCH_CONDITION."""
    tree = both.resolved(text, condition).unnest()
    if isinstance(tree, exp.Anonymous) and str(tree.this).lower() == NEAREST:
        values = [checked(text, v).node.unnest() for v in tree.expressions]
        if sorted(sides.of(v) for v in values) == ["left", "right"]:
            mine, theirs = values if sides.of(values[0]) == "left" else values[::-1]
            return _Match(mine, theirs, "nearest")
        raise DefinitionError(
            "NEAREST takes a value of the left and one of the right",
            hint="MATCH_CONDITION (NEAREST(a.ts, b.ts))",
            origin=text.of_node(condition),
        )
    halves = sides.halves(checked(text, tree).node)
    if halves is None:
        raise DefinitionError(
            "MATCH_CONDITION compares a value of the left with one of the right",
            hint="MATCH_CONDITION (a.ts >= b.ts), with >=, >, <= or <; or NEAREST(a.ts, b.ts)",
            origin=text.of_node(condition),
        )
    return _Match(*halves)


def _chosen(text: Text, sides: _Sides, trees: Sequence[exp.Expr], join: exp.Join) -> tuple[_Match, list[exp.Expr]]:
    """The comparison of ON that selects the partner, and the other conditions; if there are several, the one of two
    plain columns.
    """
    comparisons = [(t, h) for t in trees if (h := sides.halves(t)) is not None]
    plain = [(t, h) for t, h in comparisons if isinstance(h[0], exp.Column) and isinstance(h[1], exp.Column)]
    if not comparisons:
        raise DefinitionError(
            "ASOF JOIN needs a comparison of times in ON",
            hint="e.g. ON a.id = b.id AND a.ts >= b.ts",
            origin=_place(text, join),
        )
    candidates = plain or comparisons
    if len(candidates) > 1:
        raise DefinitionError(
            "it is ambiguous which comparison of this ASOF JOIN chooses the row",
            hint="specify it before ON: ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON ...",
            origin=_place(text, join),
        )
    tree, match = candidates[0]
    return _Match(*match), [t for t in trees if t is not tree]


def _system_time(
    text: Text, both: Relation, right: Relation, renamed: Mapping[str, str], join: exp.Join, at: exp.Expr
) -> _Match:
    """FOR SYSTEM_TIME AS OF a time of the left side: the version that was valid then."""
    own = both.resolved(text, at)
    version = nearest(right.stream.step)
    if version is None:
        raise Unsupported(
            "FOR SYSTEM_TIME AS OF needs a stream of versions with an event time",
            hint="a stored table has only its current state: leave FOR SYSTEM_TIME out; or ASOF JOIN it by a column",
            origin=_place(text, join),
        )
    if not isinstance(own, exp.Column) or own.name in renamed.values():
        raise DefinitionError("FOR SYSTEM_TIME AS OF needs a time of the left", origin=text.of_node(at))
    return _Match(own, exp.column(renamed[version]), "backward")


def _bound(
    text: Text,
    left: Relation,
    right: Relation,
    both: Relation,
    sides: _Sides,
    renamed: Mapping[str, str],
    match: _Match,
    trees: Sequence[exp.Expr],
    join: exp.Join,
    *,
    required: bool,
) -> Relation:
    """The joined rows, once the selecting comparison is known."""
    back = {new: col(old) for old, new in renamed.items()}
    equal: list[tuple[Expr, Expr]] = []
    bounds: list[_Bound] = []
    alone: list[exp.Expr] = []
    mine, theirs = left.stream, right.stream
    for tree in trees:
        halves = pairs.equal_sides(tree, set(sides.mine), set(sides.theirs))
        if halves is not None:
            equal.append((Expr(halves[0]), Expr(halves[1]).substitute(back)))
        elif sides.of(tree) == "right":
            with text.at(join.this):
                theirs = theirs.where(Expr(tree).substitute(back))
        elif sides.of(tree) == "left" and required:
            with text.at(join.this):
                mine = mine.where(Expr(tree))
        elif sides.of(tree) in ("left", "none"):
            alone.append(tree)
        else:
            bounds.append(_bounded(text, sides, match, tree, join))
    times = (Expr(match.left), Expr(match.right).substitute(back))
    with text.at(join.this):
        final = None if alone else _tolerance(match, bounds, mine, theirs, back)
        if final is not None:
            step = JoinedAsOf(
                mine.step,
                theirs.step,
                tuple(equal),
                (match.left.name, _name(times[1])),
                tuple(renamed.items()),
                match.direction,
                final[0],
                strict=match.strict,
                required=required,
                origin=_place(text, join),
            )
            return both.with_stream(mine._with(step))
        nearby = match.direction == "nearest"
        rest = [*alone, *(() if nearby else (b.tree for b in bounds))]
        within = {b.direction: b.gap for b in bounds} if nearby else {}
        as_of = RevisedAsOf(
            tuple(equal),
            times,
            match.direction,
            match.strict,
            required,
            renamed,
            Expr(exp.and_(*rest)) if rest else None,
            (within.get("before"), within.get("after")),
        )
        return both.with_stream(revised(mine, theirs, as_of))


def _name(value: Expr) -> str:
    return value.node.name


def _tolerance(
    match: _Match, bounds: Sequence[_Bound], left: Stream, right: Stream, back: Mapping[str, Expr]
) -> tuple[int | None] | None:
    """The maximum distance of two event times, if the join can wait for the watermark; None if it cannot."""
    columns = isinstance(match.left, exp.Column) and isinstance(match.right, exp.Column)
    if not columns or match.left.name not in times_of(left.step):
        return None
    if _name(back[match.right.name]) not in times_of(right.step):
        return None
    lengths = [b.micros for b in bounds]
    if any(f is None for f in lengths):
        return None
    if match.direction == "nearest":
        return (lengths[0],) if len(lengths) == 2 and lengths[0] == lengths[1] else None
    if match.direction == "forward" and not lengths:
        return None
    return (min((f for f in lengths if f is not None), default=None),)


def _bounded(text: Text, sides: _Sides, match: _Match, tree: exp.Expr, join: exp.Join) -> _Bound:
    """A condition over both sides as a bound on their distance."""
    halves = sides.halves(tree)
    refused = Unsupported(f"`{_sql_text(tree)}` in an as-of join", hint=_HINT, origin=_place(text, join))
    if halves is None:
        raise refused
    own, other, direction, strict = halves
    side = "after" if direction == "backward" else "before"  # b <= a + gap bounds rows after a
    moved, shift = _shifted(other)
    if moved != match.right or (
        match.direction != "nearest" and (side == "after") is not (match.direction == "forward")
    ):
        raise refused
    base, ahead = _shifted(own)
    gap = _gap(ahead, shift, after=side == "after") if base == match.left else None
    micros = None if gap is None else interval_micros(gap)
    if match.direction == "nearest" and (gap is None or strict):
        raise Unsupported(
            f"`{_sql_text(tree)}` in an as-of join to the nearest row",
            hint="bound it by a plain length: b.ts BETWEEN a.ts - INTERVAL '5' MINUTE AND a.ts + INTERVAL '5' MINUTE",
            origin=_place(text, join),
        )
    if micros is not None and strict:
        micros = micros - 1 if micros else None
    return _Bound(tree, side, gap, micros)


def _sql_text(tree: exp.Expr) -> str:
    """A condition as written."""
    return str(tree.meta.get("said") or tree.sql(dialect="spark")[:60])


def _shifted(tree: exp.Expr) -> tuple[exp.Expr, tuple[exp.Expr, bool] | None]:
    """A value, and the literal that is added to it or subtracted from it (True)."""
    tree = tree.unnest()
    if isinstance(tree, exp.Add | exp.Sub):
        by = tree.right.unnest()
        if isinstance(by, exp.Interval) or (isinstance(by, exp.Literal) and not by.is_string):
            return tree.left.unnest(), (by, isinstance(tree, exp.Sub))
    return tree, None


def _gap(own: tuple[exp.Expr, bool] | None, other: tuple[exp.Expr, bool] | None, *, after: bool) -> exp.Expr | None:
    """The distance of two values, if only one of them is shifted, and away from the other."""
    if (own is None) is (other is None):
        return None
    by, minus = own or other  # type: ignore[misc]
    widens = minus is not after if own is not None else minus is after
    negative = (
        isinstance(by, exp.Interval) and isinstance(by.this, exp.Literal) and by.this.name.strip().startswith("-")
    )
    return by if widens and not negative else None
