"""Chains: from a step over rows that change to a stage over the changes of other stages.

The stages inside a chain belong to **inner** views, named after the view at its end: ``<view>~1``, ``<view>~2``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from millstream.errors import Unsupported
from millstream.model import event_times
from millstream.model.expression import Expr, both, col
from millstream.model.python.process import Hooks
from millstream.model.steps import step as steps
from millstream.model.steps.loop import Iterated, Round, outside
from millstream.model.steps.pattern import Matched
from millstream.model.steps.process import Asked, Processed
from millstream.model.steps.relational import (
    Changelog,
    Compared,
    Joined,
    JoinedAsOf,
    OneRow,
    Settling,
    TableRows,
    Windowed,
)
from millstream.model.steps.step import Aggregated, Distinct, Keeping, Named, Step, Top, plain_column
from millstream.model.steps.temporal_filter import Temporal
from millstream.model.windows.trigger import ON_CLOSE
from millstream.plan.code_identity import code_identity
from millstream.plan.lowering.native_subset import quick
from millstream.plan.lowering.pattern import lowered
from millstream.plan.lowering.signature import signature
from millstream.plan.operators.chained import UNTIL
from millstream.plan.operators.changelog import Logged
from millstream.plan.operators.loop import looping
from millstream.plan.operators.process import Asking, Folded, Processing
from millstream.plan.operators.temporal_filter import FROM, LEAVES, Present
from millstream.plan.stages import (
    Append,
    AsOf,
    Call,
    Chained,
    Column,
    Constant,
    Every,
    Feed,
    First,
    Join,
    Measure,
    Once,
    Over,
    Project,
    Regroup,
    Sets,
    Settled,
    Side,
    Sort,
    Stage,
    Stored,
    Take,
    Test,
    ViewStage,
)

if TYPE_CHECKING:
    from millstream.plan.lowering.lower import Lowering


BY_ORDER = ("first", "last", "first_of", "last_of", "collect", "user")
"""Aggregates that go by the order of rows."""


@dataclass(frozen=True)
class Late:
    """How far behind the watermark rows of a source are taken, and the sources whose watermarks count."""

    micros: int
    sources: frozenset[str]


@dataclass
class Chains:
    """Makes the stages of steps that keep state, inner views on the way."""

    lowering: Lowering
    needed: Mapping[int, Set[str]]
    """By the id of a join or of a temporal filter: the columns that somebody reads."""
    ttl: int | None = None
    """How long the stages of the view that is being made keep rows that nothing comes for."""
    made: dict[object, str] = field(default_factory=dict)
    """The view whose stage performs a step: by the step, for all views, and by what it means, within a view. (Were
    views of the same meaning to share, one of them could not be dropped without the others.)
    """

    def stage(self, name: str, root: Keeping) -> Stage:
        """The stage of a step that keeps state."""
        if isinstance(root, Aggregated) and not steps.changes(root.input):
            return self.lowering.aggregation(name, root)
        special: dict[type, Callable[[str, Any], Stage]] = {
            Joined: self._joined,
            JoinedAsOf: self._as_of,
            Compared: self._compared,
            Processed: self._called,
            Asked: self._called,
            Matched: self._matched,
            Iterated: self._iterated,
            TableRows: self._table,
            OneRow: self._table,
            Temporal: self._temporal,
        }
        made = special.get(type(root))
        return self._one_sided(name, root) if made is None else made(name, root)

    def _one_sided(self, name: str, root: Any) -> Chained:
        """The stage of a step over the rows of one stream."""
        taken = _taken(root)
        side = self._side(name, root.input, taken, self._late(root, 0) if _cuts(root) else None)
        columns = tuple(n for n, _ in taken)
        keys = tuple(n for n, _ in root.keys) if isinstance(root, Aggregated | Top | Windowed) else columns
        if isinstance(root, Settling) and _has_nested(root):
            keys = (root.column,)
        keys = () if isinstance(root, Changelog) else keys
        made = self._chained(name, (side,), keys, _what(root, columns), _ends(root))
        return replace(made, totals=root.totals) if isinstance(root, Aggregated) else made

    def _chained(
        self, name: str, sides: tuple[Side, ...], keys: tuple[str, ...], what: object, ends: tuple[str, int] | None
    ) -> Chained:
        feeds: dict[Feed, None] = {}
        for take in (t for s in sides for t in s.takes):
            feeds.update(dict.fromkeys(self._view(take.view).stage.feeds))
        ttl = None if isinstance(what, Stored) else self.ttl
        sides = tuple(replace(s, stored=all(self._is_table(t.view) for t in s.takes)) for s in sides)
        return Chained(name, sides, keys, what, tuple(feeds), ends, ttl)

    def _is_table(self, view: str) -> bool:
        stage = self._view(view).stage
        return isinstance(stage, Chained) and isinstance(stage.what, Stored)

    def _matched(self, name: str, root: Matched) -> Chained:
        made = lowered(root)
        side = self._side(name, root.input, made.take, ordered=True)
        return self._chained(name, (side,), tuple(n for n, _ in root.keys), made.match, None)

    def _table(self, name: str, root: TableRows) -> Chained:
        names = root.schema.names
        kind = Constant if isinstance(root, OneRow) else Stored
        return self._chained(name, (Side((), names),), names, kind(root.name, root.schema), None)

    def _temporal(self, name: str, root: Temporal) -> Chained:
        """The stage of a temporal filter; its rows are spread by all columns that can be keys."""
        read = self.needed.get(id(root), set(root.schema.names))
        fields = [f for f in root.input.schema if f.name in read] or list(root.input.schema)[:1]
        spans = ((FROM, root.since, "greatest"), (LEAVES, root.until, "least"))
        columns = [(f.name, col(f.name)) for f in fields] + [(n, _one_bound(b, f)) for n, b, f in spans if b]
        side = self._side(name, root.input, tuple(columns))
        keys = [f.name for f in fields if f.type is not None and not pa.types.is_nested(f.type)]
        keys += [n for n, _, _ in spans if n in side.columns]
        stays = side.grows and not root.until
        what = Present(bool(root.since), bool(root.until), stays, root.condition.spark())
        return self._chained(name, (side,), tuple(keys), what, None)

    def _iterated(self, name: str, root: Iterated) -> Chained:
        """The stage of a loop: what it begins with, and what it reads besides."""
        found = list(outside(root.body, root.round))
        others = {self.signature(s): s for s in found}
        if len(others) > 1:
            raise Unsupported(
                "a loop over more than one other stream is not supported",
                hint="unite them into one stream before, with a column that says which is which",
                origin=root.origin,
            )
        inputs = [root.input, *others.values()]
        sides = tuple(self._side(name, s, tuple((n, col(n)) for n in s.schema.names)) for s in inputs)
        return self._chained(name, sides, (), looping(root, found), None)

    def _joined(self, name: str, root: Joined) -> Chained:
        bounds = event_times.joined(root)
        renamed = dict(root.renamed)
        wanted = self._wanted(root)
        on = [(mine, theirs) for mine, theirs in root.on]
        late = self._late(root, root.lateness) if any(bounds.used) else None
        sides = []
        for i, (step, until) in enumerate(((root.left, bounds.left), (root.right, bounds.right))):
            there = {n: (renamed[n] if i else n) for n in step.schema.names}
            back = {new: col(old) for old, new in there.items()}
            columns: list[tuple[str, Expr]] = [(new, col(old)) for old, new in there.items() if new in wanted]
            columns += [(f"$k{k}", pair[i]) for k, pair in enumerate(on)]
            if until:
                columns.append((UNTIL, _until(until, back, root.lateness)))
            sides.append(replace(self._side(name, step, tuple(columns), late), bounded=bool(until)))
        left, right = (tuple(n for n in s.columns if not n.startswith("$")) for s in sides)
        semi = root.how in ("semi", "anti")
        output = set(root.schema.names) & (wanted if not semi else self.needed.get(id(root), wanted))
        certain = root.certain
        if certain is None:
            padded = (root.how in ("left", "full", "anti"), root.how in ("right", "full"))
            certain = any(padded) and all(s.bounded for s, p in zip(sides, padded, strict=True) if p)
        test = None if root.condition is None else _test(root.condition)
        what = Join(
            root.how,
            tuple(n for n in left if n in output),
            () if semi else tuple(n for n in right if n in output),
            test,
            certain,
        )
        keys = tuple(f"$k{k}" for k in range(len(on)))
        return self._chained(name, (sides[0], sides[1]), keys, what, None)

    def _wanted(self, root: Joined) -> set[str]:
        """The columns of pairs that are read: by later steps, or by the condition."""
        condition = set() if root.condition is None else set(root.condition.columns())
        return set(self.needed.get(id(root), set(root.pair.names))) | condition

    def _as_of(self, name: str, root: JoinedAsOf) -> Chained:
        renamed = dict(root.renamed)
        late = self._late(root, root.lateness)
        slack = []
        sides = []
        for i, step in enumerate((root.left, root.right)):
            known = event_times.times_of(step)
            time = root.times[i]
            slack.append(known.get(time, 0) + root.lateness)
            columns = [((renamed[n] if i else n), col(n)) for n in step.schema.names]
            columns += [(f"$k{k}", pair[i]) for k, pair in enumerate(root.on)]
            sides.append(self._side(name, step, tuple(columns), late))
        left, right = (tuple(n for n in s.columns if not n.startswith("$")) for s in sides)
        at = (root.times[0], renamed[root.times[1]])
        what = AsOf(left, right, at, (slack[0], slack[1]), root.direction, root.tolerance, root.strict, root.required)
        keys = tuple(f"$k{k}" for k in range(len(root.on)))
        return self._chained(name, (sides[0], sides[1]), keys, what, None)

    def _compared(self, name: str, root: Compared) -> Chained:
        names = root.left.schema.names
        takes: list[Take] = []
        for i, step in enumerate((root.left, root.right)):
            own = step.schema.names
            columns = tuple((n, col(o)) for n, o in zip(names, own, strict=True))
            takes += self._takes(name, step, (*columns, ("$side", Expr(exp.Literal.number(i)))), None)
        side = self._whole(takes, (*names, "$side"))
        ends = _ends(root)
        return self._chained(name, (side,), names, Sets(root.keep, root.copies), ends)

    def _called(self, name: str, root: Processed | Asked) -> Chained:
        """The stage of a Python operator; its rows come in the order of event time, or by partition and offset."""
        row = tuple((n, col(n)) for n in root.input.schema.names)
        if isinstance(root, Asked):
            side = self._by_place(name, root.input, row)
            return self._chained(name, (side,), root.on, Asking.of(root, code_identity), None)
        columns = (*row, *((n, e) for n, e in root.keys if plain_column(e) != n))
        if root.ordered or steps.changes(root.input):
            side = self._side(name, root.input, columns, ordered=True)
        else:
            side = self._by_place(name, root.input, columns)
        if not side.grows and Hooks.of(root.function).on_retract is None:
            raise Unsupported(
                f"{root.name} is given rows that change, and cannot take one back",
                hint="give it a method on_retract(row, state, ctx), or ordered=True where rows have an event time",
                origin=root.origin,
            )
        keys = tuple(n for n, _ in root.keys)
        return self._chained(name, (side,), keys, Processing.of(root, code_identity), None)

    def _by_place(self, name: str, step: Step, columns: Named) -> Side:
        """Rows of sources, in the order of partition and offset."""
        inner, names = self._name(name), tuple(n for n, _ in columns)
        stage = Append(inner, names, self.lowering.append_feeds(step, columns), ordered=is_ordered(step), by_place=True)
        self.lowering.views.append(_inner(inner, stage, names))
        return self._whole([Take(inner)], names)

    def _late(self, root: Joined | JoinedAsOf | Settling, micros: int) -> Late:
        found = frozenset(s.name for s in steps.upstream(root) if isinstance(s, steps.Source))
        return Late(micros, found)

    def _side(self, name: str, step: Step, columns: Named, late: Late | None = None, *, ordered: bool = False) -> Side:
        """The rows of a step as one side of a stage; `ordered`: those of sources in the order of event time."""
        if ordered and not steps.changes(step):
            takes = [Take(self._rows(name, step, columns, late, ordered=True))]
        else:
            takes = self._takes(name, step, columns, late)
        return self._whole(takes, tuple(n for n, _ in columns))

    def _whole(self, takes: Iterable[Take], columns: tuple[str, ...]) -> Side:
        takes = tuple(takes)
        stages = [self._view(t.view).stage for t in takes]
        grows = all(_grows(s) for s in stages)
        names: tuple[str, ...] = ()
        single = False
        identity = None if len(takes) > 1 or isinstance(stages[0], Append) else stages[0].identity
        last = takes[0].ops[-1] if takes[0].ops else None
        if identity is not None and not grows and isinstance(last, Project) and len(takes[0].ops) == 1:
            project, names = _with_names(last, identity)
            takes = (replace(takes[0], ops=(project,)),)
            single = not names
        return Side(takes, columns, names, grows, single=single)

    def _takes(self, name: str, step: Step, columns: Named, late: Late | None) -> list[Take]:
        """The changes of a step, with these columns, as those of stages."""
        if not steps.changes(step):
            return [Take(self._rows(name, step, columns, late))]
        if isinstance(step, steps.Where | steps.Select):
            behind = dict(columns)
            keep: Expr | None = None
            at: Step = step
            while isinstance(at, steps.Where | steps.Select):
                if isinstance(at, steps.Where):
                    keep = both(keep, at.condition)
                else:
                    behind = {n: e.substitute(dict(at.columns)) for n, e in behind.items()}
                    keep = None if keep is None else keep.substitute(dict(at.columns))
                at = at.input
            return self._through(name, at, tuple(behind.items()), keep, late)
        return self._through(name, step, columns, None, late)

    def _through(self, name: str, step: Step, columns: Named, keep: Expr | None, late: Late | None) -> list[Take]:
        """The changes of a step that is no projection."""
        project = Project(None if keep is None else keep.spark(), tuple(Column(n, e.spark()) for n, e in columns))
        if isinstance(step, steps.Union):
            found: list[Take] = []
            for one in step.inputs:
                kept: Step = one if keep is None else steps.Where(one, keep)
                found += self._takes(name, kept, columns, late)
            return found
        if isinstance(step, Keeping):
            return [Take(self.inner(name, step).name, (project,))]
        assert not isinstance(step, steps.Source | Round), "its rows do not change"
        op = self.lowering.op(step)
        before = tuple((n, col(n)) for n in step.input.schema.names)
        return [replace(t, ops=(*t.ops, op, project)) for t in self._takes(name, step.input, before, late)]

    def inner(self, name: str, root: Keeping) -> ViewStage:
        """The view whose stage performs a step: an earlier one, or else an inner one."""
        if id(root) in self.made:
            return self._view(self.made[id(root)])
        key = (name, self.signature(root))
        if key not in self.made:
            _refuse_history(root)
            stage = self.stage(name, root)
            inner = self._name(name)
            columns = root.schema.names if not isinstance(stage, Chained) else stage.result
            self.lowering.views.append(_inner(inner, replace(stage, step=inner), columns))
            self.made[key] = inner
        self.made[id(root)] = self.made[key]
        return self._view(self.made[key])

    def signature(self, root: Step) -> str:
        """What a step means: two with the same one are performed once."""
        return signature(root, self.needed)

    def _view(self, name: str) -> ViewStage:
        return next(v for v in self.lowering.views if v.name == name)

    def _name(self, name: str) -> str:
        return f"{name}~{1 + sum(v.name.startswith(f'{name}~') for v in self.lowering.views)}"

    def _rows(self, name: str, step: Step, columns: Named, late: Late | None, *, ordered: bool = False) -> str:
        """An inner view that hands on rows of sources, with the columns that a stage takes."""
        inner, names = self._name(name), tuple(n for n, _ in columns)
        feeds = self.lowering.append_feeds(step, columns)
        stage = Append(inner, names, feeds, ordered=ordered or is_ordered(step))
        if late is not None and event_times.times_of(step):
            stage = replace(stage, lateness=late.micros, beside=late.sources)
        self.lowering.views.append(_inner(inner, stage, names))
        return inner


def _has_nested(root: Settling) -> bool:
    """Whether some column cannot be a key."""
    return any(f.type is not None and pa.types.is_nested(f.type) for f in root.schema)


def _cuts(root: Keeping) -> bool:
    return isinstance(root, Settling) and root.cuts


def _taken(root: Keeping) -> Named:
    """The columns that a stage takes of the rows before it. (Names of its own begin with ``$`` and ``@``.)"""
    if isinstance(root, Aggregated):
        arguments = tuple((f"@{n}", a.argument) for n, a in root.aggregates if a.argument is not None)
        by_order = any(a.kind in BY_ORDER for _, a in root.aggregates)
        return (*root.keys, *arguments, *(_order(root.input) if by_order else ()))
    assert not isinstance(root, Joined | JoinedAsOf | Compared | TableRows)
    row = tuple((n, col(n)) for n in root.input.schema.names)
    if not isinstance(root, Top | Windowed):
        return row
    computed = ((f"$by{i}", o.by) for i, o in enumerate(root.order) if plain_column(o.by) is None)
    if isinstance(root, Windowed):
        keys = tuple((n, e) for n, e in root.keys if plain_column(e) != n)
        return (*row, *keys, *root.added, *computed)
    return (*row, *root.added, *computed)


def _order(step: Step) -> Named:
    """What rows are put in order by where nothing is said: the latest of their times, if they have any."""
    known = list(event_times.times_of(step, certain=False))
    if len(known) < 2:
        return tuple(("$at", col(n)) for n in known)
    return (("$at", Expr(exp.func("greatest", *(exp.column(n) for n in known)))),)


def _what(root: Keeping, columns: tuple[str, ...]) -> object:
    """What the stage of a step with one input does."""
    if isinstance(root, Aggregated):
        measures = tuple(Measure(n, a.kind, a.argument is not None, a.user, a.returns) for n, a in root.aggregates)
        return Folded.of(measures) or Regroup(measures, ("$at",) if "$at" in columns else ())
    if isinstance(root, Top | Windowed):
        order = tuple(
            Sort(plain_column(o.by) or f"$by{i}", o.descending, o.nulls_first) for i, o in enumerate(root.order)
        )
        if isinstance(root, Top):
            return First(root.count, order, root.rank, tuple(n for n in columns if not n.startswith("$")))
        calls = tuple(
            Call(n, f.kind, None if f.argument is None else f"@{n}", f.offset, f.default, f.frame)
            for n, f in root.functions
        )
        return Over(order, calls, root.input.schema.names)
    if isinstance(root, Settling):
        return Settled(root.column, event_times.times_of(root.input)[root.column])
    if isinstance(root, Changelog):
        return Logged(root.names)
    return Once() if isinstance(root, Distinct) else Every()


def _one_bound(bounds: tuple[Expr, ...], function: str) -> Expr:
    """Several bounds of a span as one, which is NULL where one of them is."""
    if len(bounds) == 1:
        return bounds[0]
    missing = exp.or_(*(exp.paren(b.node.copy()).is_(exp.null()) for b in bounds))
    return Expr(
        exp.Case(ifs=[exp.If(this=exp.not_(missing), true=exp.func(function, *(b.node.copy() for b in bounds)))])
    )


def _until(bounds: tuple[Expr, ...], back: Mapping[str, Expr], lateness: int) -> Expr:
    """Until when a row is kept, in micros, over its own columns."""
    own = [b.substitute(back).node for b in bounds]
    least = own[0] if len(own) == 1 else exp.func("least", *own)
    return Expr(exp.Add(this=exp.paren(least), expression=exp.Literal.number(lateness)) if lateness else least)


def _test(condition: Expr) -> Test:
    return Test(condition.spark(), condition.columns(), quick(condition.node))


def _with_names(take: Project, identity: tuple[str, ...]) -> tuple[Project, tuple[str, ...]]:
    """A projection that has the columns which tell rows apart, too, and their names there."""
    there = {c.sql: c.name for c in take.columns}
    missing = tuple(Column(f"$id{i}", f"`{n}`") for i, n in enumerate(identity) if f"`{n}`" not in there)
    named = {**there, **{c.sql: c.name for c in missing}}
    return Project(take.keep, take.columns + missing), tuple(named[f"`{n}`"] for n in identity)


def _grows(stage: Stage) -> bool:
    """Whether a stage only ever adds rows: it hands them on, keeps each once, or answers when a window is over."""
    if isinstance(stage, Append):
        return True
    if isinstance(stage, Chained):
        return stage.only_inserts
    return stage.by_slices and stage.windowing.trigger == ON_CLOSE and stage.windowing.answers_once


def end_of(root: Keeping) -> str | None:
    """The column of results that says how old they are; None when there is none."""
    if isinstance(root, Aggregated) and not steps.changes(root.input):
        return "window_end"
    found = sorted(event_times.times_of(root, certain=False).items(), key=lambda c: c[1])
    return found[0][0] if found else None


def _ends(root: Keeping) -> tuple[str, int] | None:
    """By which key groups come to an end, where it is certain when their rows change for the last time."""
    found = sorted(event_times.times_of(root).items(), key=lambda c: c[1])
    return found[0] if found and not isinstance(root, Settling | Changelog) else None


def _inner(name: str, stage: Stage, columns: tuple[str, ...]) -> ViewStage:
    """A view that nobody sees, for a stage inside a chain."""
    return ViewStage(name, stage, None, columns, (), None, None, None, kept=False)


def is_ordered(step: Step) -> bool:
    """Whether rows are to come in the order of event time."""
    return any(isinstance(s, steps.Union) and s.ordered for s in steps.upstream(step))


def _refuse_history(root: Keeping) -> None:
    """Refuse a history of panes that no view would keep."""
    if isinstance(root, Aggregated) and root.windowing.panes is not None:
        raise Unsupported(
            "the history of panes of an aggregate that no view keeps is not supported",
            hint="end the aggregate in a view of its own before other steps follow it, or leave `panes` out",
            origin=root.origin,
        )
