"""As-of joins over any ordered rows: composed of a window function and two joins, and revised when rows change.

`JoinedAsOf` is for event times: it waits for the watermark, and its results are final. The rows here have no watermark
to wait for (stored tables, changing results, plain numbers), or would have to wait forever. So each result is emitted
immediately and is revised when a better row of the right side appears or disappears.

The distinct keys and times of both sides are combined into one order. There `lag` and `lead` find the time of the right
side for each row of the left; the cost grows with the number of rows, not of pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from millstream.errors import SchemaError
from millstream.model.aggregates.aggregate import Kind
from millstream.model.expression import Expr, col
from millstream.model.reserved import OF
from millstream.model.steps.columns import Order
from millstream.model.steps.relations.join import Joined
from millstream.model.steps.relations.top_n import Top
from millstream.model.steps.relations.window_function import WindowFunction
from millstream.model.streams.stream import Stream
from millstream.model.types.scalars import widest
from millstream.model.types.schema import Schema, ddl_type

_KEY, _TIME, _SIDE, _OTHER, _BEFORE, _AFTER, _CHOSEN = (
    f"{OF}asof_{n}" for n in ("k", "t", "side", "other", "before", "after", "chosen")
)


@dataclass(frozen=True, eq=False)
class RevisedAsOf:
    """An as-of join: equal keys, and one ordered value per side."""

    on: tuple[tuple[Expr, Expr], ...]
    times: tuple[Expr, Expr]
    direction: str
    strict: bool
    required: bool
    renamed: Mapping[str, str]
    """The names of the right side's columns in the joined rows."""
    condition: Expr | None = None
    """An additional condition on a pair, over the columns of the joined rows; if it does not hold,
    there is no partner.
    """
    within: tuple[exp.Expr | None, exp.Expr | None] = (None, None)
    """For the nearest row: the maximum distance before and after, as values to subtract and add."""


def revised(left: Stream, right: Stream, join: RevisedAsOf) -> Stream:
    """The joined rows: each row of the left with one row of the right, or alone."""
    left._check_other(right, "an as-of join")
    pairs = [_alike(left.schema, right.schema, *p) for p in join.on]
    mine, theirs = _alike(left.schema, right.schema, *join.times)
    keys = [f"{_KEY}{i}" for i in range(len(pairs))]
    chosen = _chosen(left, right, pairs, (mine, theirs), join)
    how = "inner" if join.required else "left"
    moved = {n: n for n in (*keys, _TIME, _CHOSEN)}
    on = [(own, col(key)) for (own, _), key in zip(pairs, keys, strict=True)]
    with_time = left._with(
        Joined(left.step, chosen.step, (*on, (mine, col(_TIME))), how, tuple(moved.items()), certain=False)
    )
    one = _one_each(right, [p[1] for p in pairs], theirs)
    names = {n: join.renamed.get(n, f"{n}_one") for n in one.schema.names}
    on = [*pairs, (col(_CHOSEN), theirs)]
    step = Joined(with_time.step, one.step, tuple(on), how, tuple(names.items()), join.condition, certain=False)
    return left._with(step)._project(tuple((n, col(n)) for n in (*left.schema.names, *join.renamed.values())))


def _chosen(
    left: Stream, right: Stream, pairs: Sequence[tuple[Expr, Expr]], times: tuple[Expr, Expr], join: RevisedAsOf
) -> Stream:
    """For the distinct keys and times of the left: the time of the right side that they are joined to."""
    keys = [f"{_KEY}{i}" for i in range(len(pairs))]
    sides = []
    for which, stream in enumerate((left, right)):
        values = {**{k: p[which] for k, p in zip(keys, pairs, strict=True)}, _TIME: times[which]}
        values_stream = stream._project(tuple(values.items()))
        for name in values:
            values_stream = values_stream.where(Expr(exp.column(name).is_(exp.null()).not_()))
        sides.append(values_stream if which else values_stream.distinct())
    points, versions = (s.with_columns(**{_SIDE: Expr(exp.Literal.number(i))}) for i, s in enumerate(sides))
    every = points.union(versions)
    other = Expr(exp.Case(ifs=[exp.If(this=exp.column(_SIDE).eq(1), true=exp.column(_TIME))]))
    right_first = join.direction == "nearest" or join.strict is (join.direction == "forward")
    order = [Order(col(_TIME)), Order(col(_SIDE), descending=right_first, nulls_first=not right_first)]
    functions = {
        _BEFORE: WindowFunction(Kind("lag", "ignore nulls"), other),
        _AFTER: WindowFunction(Kind("lead", "ignore nulls"), other),
    }
    if join.direction != "nearest":
        column = _BEFORE if join.direction == "backward" else _AFTER
        functions = {_CHOSEN: functions[column]}
    numbered = every._windowed(tuple((k, col(k)) for k in keys), order, functions)
    numbered = numbered.where(Expr(exp.column(_SIDE).eq(0)))
    if join.direction == "nearest":
        numbered = numbered.with_columns(**{_CHOSEN: _nearer(points.schema, join)})
    return numbered._project(tuple((n, col(n)) for n in (*keys, _TIME, _CHOSEN)))


def _nearer(schema: Schema, join: RevisedAsOf) -> Expr:
    """The nearer of the times before and after; if both are equally near, the later one."""
    time: exp.Expr = exp.column(_TIME)
    before, after = (
        _within(exp.column(_BEFORE), join.within[0], exp.Sub),
        _within(exp.column(_AFTER), join.within[1], exp.Add),
    )
    kind = next((f.type for f in schema if f.name == _TIME), None)
    behind, ahead = _distance(kind, time, before), _distance(kind, after, time)
    later = exp.or_(exp.paren(before.copy()).is_(exp.null()), exp.LTE(this=ahead, expression=behind))
    case = exp.Case(ifs=[exp.If(this=later, true=exp.func("coalesce", after.copy(), before.copy()))])
    return Expr(case.else_(before.copy()))


def _within(other: exp.Expr, gap: exp.Expr | None, move: type[exp.Binary]) -> exp.Expr:
    """A time of the right side, or NULL if it is too far from that of the left."""
    if gap is None:
        return other
    furthest = move(this=exp.column(_TIME), expression=gap.copy())
    near = (exp.GTE if move is exp.Sub else exp.LTE)(this=other.copy(), expression=furthest)
    return exp.Case(ifs=[exp.If(this=near, true=other)])


def _distance(kind: pa.DataType | None, later: exp.Expr, earlier: exp.Expr) -> exp.Expr:
    """The distance between two values."""
    values = [later.copy(), earlier.copy()]
    if kind is not None and pa.types.is_date(kind):
        return exp.DateDiff(this=values[0], expression=values[1])
    if kind is not None and pa.types.is_timestamp(kind):
        values = [exp.func("unix_micros", v) for v in values]
    elif kind is not None and pa.types.is_integer(kind):
        values = [exp.cast(v, "DECIMAL(20, 0)") for v in values]
    elif kind is None or not (pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        type_name = "a type that is not known here" if kind is None else ddl_type(kind)
        raise SchemaError(
            f"the nearest row needs a time or a number on both sides, not {type_name}",
            hint="cast both, as in NEAREST(CAST(a.ts AS TIMESTAMP), b.ts)",
        )
    return exp.Sub(this=exp.paren(values[0]), expression=exp.paren(values[1]))


def _one_each(right: Stream, keys: Sequence[Expr], time: Expr) -> Stream:
    """One row of the right side for each key and time."""
    named = ((f"{_KEY}{i}", k) for i, k in enumerate(keys))
    return right._with(Top(right.step, (*named, (_TIME, time)), 1, (Order(time),)))


def _alike(left: Schema, right: Schema, mine: Expr, theirs: Expr) -> tuple[Expr, Expr]:
    """Two values converted to a common type."""
    kinds = (mine.type_in(left), theirs.type_in(right))
    if None in kinds or kinds[0] == kinds[1]:
        return mine, theirs
    wide = widest(kinds)
    if wide is None and all(pa.types.is_date(k) or pa.types.is_timestamp(k) for k in kinds):
        wide = next(k for k in kinds if pa.types.is_timestamp(k))
    if wide is None:
        type_names = " with ".join(ddl_type(k) for k in kinds)
        raise SchemaError(
            f"an as-of join cannot compare {type_names}", hint="cast one of them, as in CAST(a.id AS BIGINT) = b.id"
        )
    cast = [e if k == wide else Expr(exp.cast(e.node.copy(), ddl_type(wide)), e.origin) for e, k in
            zip((mine, theirs), kinds, strict=True)]  # fmt: skip
    return cast[0], cast[1]
