"""Times: columns of a stream that a watermark covers, and how long after it their rows may still change.

A column is such a **time** with a slack of s micros if rows with the time t neither arrive nor change once the
watermark is at t + s. Times determine how long a row must be kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from millstream.model.expression import Expr
from millstream.model.steps.aggregation import Aggregated, borders_of
from millstream.model.steps.columns import plain_column
from millstream.model.steps.pattern import Matched
from millstream.model.steps.relations.as_of_join import JoinedAsOf
from millstream.model.steps.relations.hold_until import Settling
from millstream.model.steps.relations.join import Joined
from millstream.model.steps.relations.loop import Iterated, Round
from millstream.model.steps.relations.stored_table import TableRows
from millstream.model.steps.relations.temporal_filter import Temporal
from millstream.model.steps.relations.top_n import Top
from millstream.model.steps.relations.window_function import Windowed
from millstream.model.steps.step import FlatMap, Keeping, Select, Source, Step, changes, inputs, upstream
from millstream.model.types.duration import Duration
from millstream.model.windows.window import Window

Times = dict[str, int]
"""From column to its slack in micros."""

_UNITS = frozenset({"MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK"})
_AMOUNT = re.compile(r"[+-]?\d+(\.\d+)?")


def times_of(step: Step, *, certain: bool = True) -> Times:
    """The times among the columns of a step. With `certain=False` this includes times whose rows may change after their
    slack: suitable for the age of a row, but not for expiring it.
    """
    if isinstance(step, Source):
        options = step.options
        return {} if options.event_time is None or options.corrections is not None else {options.event_time: 1}
    if isinstance(step, Aggregated) and not changes(step.input):
        return _windows(step, certain=certain)
    if isinstance(step, Joined | JoinedAsOf):
        return as_of(step) if isinstance(step, JoinedAsOf) else joined(step).times if certain else _both(step)
    if isinstance(step, Matched):
        return _matches(step, certain=certain)
    each = [times_of(s, certain=certain) for s in inputs(step)] or [{}]
    accepts_late = (
        isinstance(step, Keeping) and not isinstance(step, Settling) and not all(changes(s) for s in inputs(step))
    )
    by_clock = isinstance(step, Temporal)  # its rows appear and disappear by the clock, also behind the watermark
    if (certain if by_clock else accepts_late) or isinstance(step, Iterated | Round | TableRows):
        return {}  # these steps accept late rows; in a loop, derived rows may have any time
    shared = {n: max(c[n] for c in each) for n in each[0] if all(n in c for c in each)}
    keeps = isinstance(step, Windowed) and step.keeps_times and not certain
    if isinstance(step, Select | Aggregated | Top | Windowed) and not keeps:
        named = step.columns if isinstance(step, Select) else step.keys
        times = {n: shared[c] for n, e in named if (c := plain_column(e)) in shared}
        ends = step.after if isinstance(step, Select) else ()
        return {**times, **{n: max(shared[c] - 1, 0) for n, c in ends if c in shared}}
    if isinstance(step, Settling):
        return {n: s for n, s in shared.items() if n == step.column}
    replaced = step.name if isinstance(step, FlatMap) else None
    return {n: s for n, s in shared.items() if n in step.schema and n != replaced}


def _windows(step: Aggregated, *, certain: bool) -> Times:
    how = step.windowing
    if "window_end" not in borders_of(how):
        return {}
    corrected = any(isinstance(s, Source) and s.options.corrections is not None for s in upstream(step))
    if certain and (corrected or not how.by_slices):
        return {}
    late = how.lateness.micros
    times = {"window_end": late}
    if isinstance(how.window, Window) and how.window.size is not None:
        times["window_start"] = late + how.window.size.micros
    return times


def _matches(step: Matched, *, certain: bool) -> Times:
    """The times of rows in a match, which is emitted at the latest when its time has elapsed."""
    waits = any(n.shift > 0 for _, n in step.outputs) or any(
        n.shift > 0 for readings in step.conditions.values() for r in readings for n in r.navigations.values()
    )
    if certain and (step.within is None or waits):
        return {}
    late = step.slack + (0 if step.within is None else step.within.micros)
    rows = [step.time] if step.all_rows else []
    times = [n for n, v in step.outputs if v.kind == "at" and v.said == f"`{step.time}`" and not v.shift]
    return dict.fromkeys((*rows, *times), late)


def event_times(step: Step) -> frozenset[str]:
    """The columns of append-only rows that hold the event time of their source."""
    if isinstance(step, Source):
        return frozenset({step.options.event_time} - {None})  # type: ignore[arg-type]
    each = [event_times(s) for s in inputs(step)]
    shared = frozenset.intersection(*each) if each else frozenset()
    if isinstance(step, Select):
        return frozenset(n for n, e in step.columns if plain_column(e) in shared)
    replaced = step.name if isinstance(step, FlatMap) else None
    return frozenset(n for n in shared if n in step.schema and n != replaced)


def nearest(step: Step, *, certain: bool = True) -> str | None:
    """The time of a step that becomes final first; None if it has none."""
    known = times_of(step, certain=certain)
    return min(known, key=lambda name: known[name]) if known else None


# ---------------------------------------------------------------- how long the rows of a join are kept


@dataclass(frozen=True)
class JoinBounds:
    """Until when rows of each side of a join can find partners: expressions over a row of that side (all of them hold),
    and the times of the pairs.
    """

    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    times: Times
    used: tuple[bool, bool]
    """Whether the bounds rely on a time of the left and of the right side."""


def joined(step: Joined) -> JoinBounds:
    """The time bounds of a join, derived from the times of its sides and the comparisons in its condition."""
    pairs = dict(step.renamed)
    sides = (times_of(step.left), {pairs[n]: s for n, s in times_of(step.right).items()})
    owned = (set(step.left.schema.names), set(pairs.values()))
    comparisons = list(_at_most(step, pairs))
    until: tuple[list[Expr], list[Expr]] = ([], [])
    shifts: tuple[dict[str, int], dict[str, int]] = ({}, {})
    used = [False, False]
    for lesser, greater in comparisons:
        for mine, other in ((0, 1), (1, 0)):
            moved = _moved(lesser, sides[other])
            if moved is None or not set(Expr(greater).columns()) <= owned[mine] or not Expr(greater).columns():
                continue
            name, shift = moved
            slack = sides[other][name] - shift
            until[mine].append(Expr(_shifted(greater, slack)))
            used[other] = True
            own = _moved(greater, sides[mine])
            if own is not None:
                last = own[1] + slack
                shifts[mine][own[0]] = min(last, shifts[mine].get(own[0], last))
    times: Times = {}
    for mine in (0, 1):
        for name, shift in shifts[mine].items():
            times[name] = max(sides[mine][name], shift, 0) + step.lateness
    kept = {n: s for n, s in times.items() if n in step.schema}
    return JoinBounds(tuple(until[0]), tuple(until[1]), kept, (used[0], used[1]))


def as_of(step: JoinedAsOf) -> Times:
    """The times of an as-of join: those of the left side, delayed until the right side has passed them."""
    mine, theirs = times_of(step.left), times_of(step.right)
    left, right = step.times
    if left not in mine or right not in theirs or step.direction != "backward":
        return {}
    return {left: max(mine[left], theirs[right]) + step.lateness}


def _both(step: Joined) -> Times:
    """The times of both sides."""
    pairs = dict(step.renamed)
    theirs = {pairs[n]: s for n, s in times_of(step.right, certain=False).items()}
    times = {**times_of(step.left, certain=False), **theirs}
    return {n: s for n, s in times.items() if n in step.schema}


def _at_most(step: Joined, pairs: dict[str, str]) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Pairs of expressions whose first is never greater than the second, for pairs of rows that match."""
    for mine, theirs in step.on:
        other = theirs.substitute({old: Expr(exp.column(new)) for old, new in pairs.items()})
        yield mine.node, other.node
        yield other.node, mine.node
    if step.condition is None:
        return
    for part in conjuncts(step.condition.node):
        if isinstance(part, exp.LTE | exp.LT):
            yield part.left, part.right
        elif isinstance(part, exp.GTE | exp.GT):
            yield part.right, part.left
        elif isinstance(part, exp.EQ):
            yield part.left, part.right
            yield part.right, part.left
        elif isinstance(part, exp.Between):
            yield part.args["low"], part.this
            yield part.this, part.args["high"]


def conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions that AND combines."""
    return _connected(node, exp.And)


def disjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions that OR combines."""
    return _connected(node, exp.Or)


def _connected(node: exp.Expr, by: type[exp.Connector]) -> Iterator[exp.Expr]:
    node = node.unnest()
    if isinstance(node, by):
        yield from _connected(node.left, by)
        yield from _connected(node.right, by)
    else:
        yield node


def _moved(node: exp.Expr, times: Times) -> tuple[str, int] | None:
    """The time and its shift in micros, if an expression is a shifted time."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return (node.name, 0) if node.name in times else None
    if isinstance(node, exp.Add | exp.Sub):
        micros = interval_micros(node.right)
        inner = _moved(node.left, times)
        if micros is not None and inner is not None:
            return inner[0], inner[1] + (micros if isinstance(node, exp.Add) else -micros)
    return None


def _shifted(node: exp.Expr, micros: int) -> exp.Expr:
    """The expression in micros, plus a shift."""
    seen = exp.func("unix_micros", node.copy())
    return exp.Add(this=seen, expression=exp.Literal.number(micros)) if micros else seen


def interval_micros(node: exp.Expr) -> int | None:
    """The length of an interval literal; None if it is not one, or if its length depends on the calendar."""
    node = node.unnest()
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    unit_node = node.args.get("unit")
    unit = "" if unit_node is None else unit_node.name.upper().rstrip("S")
    if unit not in _UNITS or not _AMOUNT.fullmatch(node.this.name.strip()):
        return None
    return Duration.of(f"{node.this.name.strip()} {unit}", what="the interval").micros
