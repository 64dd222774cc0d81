"""Temporal conditions: converts ``ts > now() - INTERVAL '1' HOUR`` to the span of time in which it holds for a row.

A side of a comparison may read the clock: ``now()`` or ``current_date``, rounded down to a unit of fixed length, plus
or minus intervals of fixed length. It is then ``floor(now + before) + after``. Solving the comparison for `now` yields
the first instant at which it holds for a row, or the first at which it no longer holds.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from sqlglot import exp

from millstream.errors import DefinitionError, Origin, SchemaError, Unsupported
from millstream.model.expression import Expr, has_clock, is_clock
from millstream.model.origin import here
from millstream.model.steps.event_times import conjuncts, interval_micros
from millstream.model.steps.relations.temporal_filter import Temporal
from millstream.model.steps.step import Step
from millstream.model.types.duration import UNITS, Duration
from millstream.model.types.schema import Schema, ddl_type

_DAY = UNITS["day"]
_MONDAY = 4 * _DAY
"""The first Monday of 1970, the origin of weeks."""
_GRAINS = {name: UNITS[name] for name in ("second", "minute", "hour", "day", "week")}
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT}
_CALENDAR = ("MONTH", "QUARTER", "YEAR")
_TIME = re.compile(r"(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T]+\d{1,2}(?::\d{1,2}){0,2}(?:\.\d*)?\s*[\w:+/-]*)?)?)?")
"""The syntax of a time literal."""
_EXAMPLE = "WHERE ts > now() - INTERVAL '1' HOUR"


@dataclass(frozen=True)
class Spans:
    """A condition split into the part that does not depend on the clock, and the span in which the rest holds."""

    plain: Expr | None
    since: tuple[Expr, ...]
    until: tuple[Expr, ...]
    timed: Expr
    """The parts that depend on the clock, as written."""


@dataclass(frozen=True)
class _Reading:
    """A reading of the clock: ``floor(now + before, grain) + after``, in micros; a grain of 1 does not round."""

    before: int = 0
    grain: int = 1
    after: int = 0
    is_date: bool = False

    def moved(self, micros: int) -> _Reading:
        return replace(self, after=self.after + micros)

    def floored(self, grain: int) -> _Reading | None:
        if self.grain == 1:
            offset = _MONDAY if grain == _GRAINS["week"] else 0
            return _Reading(self.before + self.after - offset, grain, offset)
        return self if self.grain == grain and self.after % grain == 0 else None

    def dated(self) -> _Reading | None:
        day = self if self.is_date else self.floored(_DAY)
        return None if day is None else replace(day, is_date=True)


def spans(condition: Expr, schema: Schema) -> Spans:
    """Split a condition; raises Unsupported if its use of the clock cannot be expressed as a span."""
    origin = condition.origin or here()
    plain: list[exp.Expr] = []
    timed: list[exp.Expr] = []
    since: list[Expr] = []
    until: list[Expr] = []
    for part in _parts(condition.node):
        if not has_clock(part):
            plain.append(part)
            continue
        timed.append(part)
        kind, reading, other = _solved(part, origin)
        at, is_date = _micros(other, schema, origin)
        at = _minus(at, reading.after)
        even = reading.grain == 1 or (is_date and reading.grain == _DAY and reading.after % _DAY == 0)
        reached = Expr(_minus(at if even else _ceiling(at, reading.grain), reading.before), origin)
        passed = Expr(_minus(at if even else _floor(at, reading.grain), reading.before - reading.grain), origin)
        if kind in (exp.GTE, exp.GT, exp.EQ):
            since.append(passed if kind is exp.GT else reached)
        if kind in (exp.LTE, exp.LT, exp.EQ):
            until.append(reached if kind is exp.LT else passed)
    rest = Expr(exp.and_(*plain), origin) if plain else None
    return Spans(rest, tuple(since), tuple(until), Expr(exp.and_(*timed), origin))


def filtered(step: Step, spans: Spans) -> Temporal:
    """A step followed by a temporal filter; two consecutive filters are combined."""
    if not isinstance(step, Temporal):
        return Temporal(step, spans.since, spans.until, spans.timed, here())
    both = exp.and_(step.condition.node.copy(), spans.timed.node.copy())
    since, until = (*step.since, *spans.since), (*step.until, *spans.until)
    return Temporal(step.input, since, until, Expr(both, spans.timed.origin), here())


def misplaced(what: str, origin: Origin | None) -> Unsupported:
    """The error for a use of the clock from which no span can be derived."""
    return Unsupported(
        f"`{what}` cannot be used here",
        detail="in a view it can be on one side of <, <=, >, >=, = or BETWEEN, in a comparison that AND joins to "
        "the rest of WHERE or HAVING",
        hint=f"e.g. {_EXAMPLE}; or compute it in a query: SELECT now() - ts FROM view",
        origin=origin,
    )


def _parts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The comparisons that AND combines; BETWEEN yields two."""
    for part in conjuncts(node):
        clauses = {k for k, v in part.args.items() if v}
        if isinstance(part, exp.Between) and has_clock(part) and clauses <= {"this", "low", "high"}:
            yield exp.GTE(this=part.this.copy(), expression=part.args["low"].copy())
            yield exp.LTE(this=part.this.copy(), expression=part.args["high"].copy())
        elif isinstance(part, exp.Not) and type(part.this.unnest()) in _NEGATED:
            inner = part.this.unnest()
            yield _NEGATED[type(inner)](this=inner.left.copy(), expression=inner.right.copy())
        else:
            yield part


def _solved(part: exp.Expr, origin: Origin | None) -> tuple[type[exp.Expr], _Reading, exp.Expr]:
    """A comparison as a clock reading, an operator, and the other operand."""
    if type(part) not in _FLIPPED:
        raise misplaced(_sql_text(part), origin)
    kind, left, right = type(part), part.args["this"].unnest(), part.args["expression"].unnest()
    if has_clock(left) and has_clock(right):
        raise Unsupported(
            f"`{_sql_text(part)}` reads the clock on both sides",
            hint=f"compare a time of the row with the clock, e.g. {_EXAMPLE}",
            origin=origin,
        )
    if has_clock(right):
        kind, left, right = _FLIPPED[kind], right, left
    if isinstance(left, exp.Sub) and _length(right) is not None:  # now() - ts < INTERVAL '1' HOUR
        first, second = left.left.unnest(), left.right.unnest()
        if has_clock(first) and _length(second) is None:
            left, right = first, exp.Add(this=exp.paren(second.copy()), expression=right.copy())
        elif has_clock(second):
            kind, left = _FLIPPED[kind], second
            right = exp.Sub(this=exp.paren(first.copy()), expression=right.copy())
    reading = _read(left)
    if reading is None:
        raise _unreadable(left, origin)
    return kind, reading, right


def _unreadable(node: exp.Expr, origin: Origin | None) -> Unsupported:
    intervals = " ".join(f"{i.name} {i.text('unit')}" for i in node.find_all(exp.Interval)).upper()
    if any(word.rstrip("S") in _CALENDAR for word in intervals.split()):
        return Unsupported(
            f"`{_sql_text(node)}`: a month or a year has no fixed length",
            hint="add it to the time of the row instead: ts + INTERVAL '1' MONTH > now()",
            origin=origin,
        )
    return Unsupported(
        f"`{_sql_text(node)}` cannot be compared in a view",
        detail="the clock can be combined with intervals of fixed length, date_trunc to a second, minute, hour, day or "
        "week, and CAST to DATE",
        hint=f"e.g. {_EXAMPLE}",
        origin=origin,
    )


def _read(node: exp.Expr) -> _Reading | None:
    """The clock reading of an expression; None if it is not one."""
    node = node.unnest()
    if is_clock(node):
        return _Reading(grain=_DAY, is_date=True) if isinstance(node, exp.CurrentDate) else _Reading()
    if isinstance(node, exp.Add | exp.Sub):
        return _shifted(node)
    if isinstance(node, exp.Cast):
        inner = _read(node.this)
        if inner is None or node.to.this in (exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ):
            return None if inner is None else replace(inner, is_date=False)
        return inner.dated() if node.to.this == exp.DataType.Type.DATE else None
    if isinstance(node, exp.TsOrDsToDate) and node.args.get("format") is None:
        inner = _read(node.this)
        return None if inner is None else inner.dated()
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        inner, unit = _read(node.this), node.args["unit"].name.lower()
        return None if inner is None or unit not in _GRAINS else inner.floored(_GRAINS[unit])
    if isinstance(node, exp.TsOrDsAdd | exp.TimestampAdd):
        inner, number = _read(node.this), _whole(node.expression)
        unit = str(node.args["unit"].name).lower() if node.args.get("unit") is not None else "day"
        if isinstance(node, exp.TsOrDsAdd) and inner is not None:
            inner = inner.dated()
        return None if inner is None or number is None or unit not in UNITS else inner.moved(number * UNITS[unit])
    return None


def _shifted(node: exp.Add | exp.Sub) -> _Reading | None:
    clock, other = node.left, node.right
    if isinstance(node, exp.Add) and has_clock(other):
        clock, other = other, clock
    reading, length = _read(clock), _length(other)
    if reading is None:
        return None
    if length is None:
        days = _whole(other) if reading.is_date else None  # current_date - 7
        length = None if days is None else days * _DAY
    if length is None:
        return None
    whole_days = reading.is_date and length % _DAY == 0
    return replace(reading.moved(length if isinstance(node, exp.Add) else -length), is_date=whole_days)


def _length(node: exp.Expr) -> int | None:
    """The micros of an interval of fixed length, including ``'1 hour 30 minutes'`` and ``2 * INTERVAL '1' HOUR``."""
    node = node.unnest()
    known = interval_micros(node)
    if known is not None:
        return known
    if isinstance(node, exp.Neg):
        inner = _length(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Add | exp.Sub):
        left, right = _length(node.left), _length(node.right)
        if left is None or right is None:
            return None
        return left + right if isinstance(node, exp.Add) else left - right
    if isinstance(node, exp.Mul):
        for number, interval in ((node.left, node.right), (node.right, node.left)):
            times, length = _whole(number), _length(interval)
            if times is not None and length is not None:
                return times * length
    if isinstance(node, exp.Interval) and node.args.get("unit") is None and isinstance(node.this, exp.Literal):
        try:
            return Duration.of(node.this.name, what="the interval").micros
        except DefinitionError:
            return None
    return None


def _whole(node: exp.Expr) -> int | None:
    node = node.unnest()
    if isinstance(node, exp.Neg):
        inner = _whole(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Mul):
        left, right = _whole(node.left), _whole(node.right)
        return None if left is None or right is None else left * right
    return int(node.name) if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() else None


def _micros(node: exp.Expr, schema: Schema, origin: Origin | None) -> tuple[exp.Expr, bool]:
    """A time of the row in micros, and whether it is a date, which stands for its midnight."""
    kind = Expr(node).type_in(schema)
    inner = node.copy()
    if isinstance(node, exp.Literal) and node.is_string:
        if not _is_time(node.name):
            raise SchemaError(
                f"the present time is compared with `{_sql_text(node)}`, which is not a time",
                hint="write a time like TIMESTAMP '2026-03-01 12:00:00'",
                origin=origin,
            )
        inner = exp.cast(inner, "timestamp")
    elif isinstance(node, exp.Null):
        inner = exp.cast(inner, "timestamp")
    elif kind is None:
        zero = exp.Interval(this=exp.Literal.string("0"), unit=exp.var("SECOND"))
        inner = exp.Add(this=exp.paren(inner), expression=zero)  # for a date, this is its midnight
    elif pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):  # local times are in UTC
        inner = exp.cast(exp.paren(inner), "timestamp")
    elif not pa.types.is_timestamp(kind):
        raise SchemaError(
            f"the present time is compared with `{_sql_text(node)}`, which is {ddl_type(kind)}",
            hint="compare it with a TIMESTAMP or a DATE: CAST(x AS TIMESTAMP), or timestamp_millis(x) for a number",
            origin=origin,
        )
    return exp.func("unix_micros", inner), kind is not None and bool(pa.types.is_date(kind))


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return False
    year, month, day = (int(n or 1) for n in match.groups())
    return 1 <= month <= 12 and 1 <= day <= monthrange(year % 400 + 2000, month)[1]


def _minus(node: exp.Expr, micros: int) -> exp.Expr:
    if not micros:
        return node
    kind = exp.Sub if micros > 0 else exp.Add
    return kind(this=node, expression=exp.Literal.number(abs(micros)))


def _floor(node: exp.Expr, grain: int) -> exp.Expr:
    """The last point of a grid at or before a time."""
    return exp.Sub(this=node.copy(), expression=_rest(node, grain))


def _ceiling(node: exp.Expr, grain: int) -> exp.Expr:
    """The first point of a grid at or after a time."""
    return exp.Add(this=node.copy(), expression=_rest(exp.Neg(this=exp.paren(node.copy())), grain))


def _rest(node: exp.Expr, grain: int) -> exp.Expr:
    return exp.Anonymous(this="pmod", expressions=[node.copy(), exp.Literal.number(grain)])


def _sql_text(node: exp.Expr) -> str:
    return str(node.sql(dialect="spark", comments=False))[:80]
