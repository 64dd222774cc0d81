"""Lowering of steps that keep state: builds their operators and the inner views on the way.

The operators inside a view belong to **inner** views, named after it: ``<view>~1``, ``<view>~2``. The function that
builds the operator of a step is in the operator's own module; this class provides its inputs. `plan/lowering/lower.py`
puts the result into the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.errors import Unsupported
from millstream.model.expression import Expr, both, col
from millstream.model.steps import event_times
from millstream.model.steps import step as steps
from millstream.model.steps.aggregation import Aggregated
from millstream.model.steps.columns import Named
from millstream.model.steps.relations.loop import Round
from millstream.model.steps.step import Keeping, Step
from millstream.plan.lowering.signature import signature
from millstream.plan.operators.inputs import Side, Take
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.relations.ordered_merge import OrderedMerge
from millstream.plan.operators.relations.pass_through import PassThrough
from millstream.plan.operators.table import lowering_of
from millstream.plan.parts import Column, Feed, Project
from millstream.plan.plan import PlannedView

if TYPE_CHECKING:
    from millstream.plan.lowering.lower import Lowering

AnyOperator = TypeVar("AnyOperator", bound=Operator)


@dataclass(frozen=True)
class Late:
    """How far behind the watermark rows of a source are still accepted, and the sources whose watermarks count."""

    micros: int
    sources: frozenset[str]


@dataclass
class StatefulLowering:
    """Builds the operators of steps that keep state."""

    scans: Lowering
    needed: Mapping[int, Set[str]]
    """By the id of a join or temporal filter: the columns that are read downstream."""
    ttl: int | None = None
    """How long the operators of the current view keep rows that do not change."""
    views_by_step: dict[object, str] = field(default_factory=dict)
    """The view whose operator performs a step: by step across all views, and by meaning within one view. (If views with
    the same meaning shared an operator, none of them could be dropped without the others.)
    """

    def operator_of(self, name: str, step: Keeping) -> Operator:
        """Build the operator of a step that keeps state."""
        return lowering_of(step)(self, name, step)

    def operator(
        self,
        kind: type[AnyOperator],
        name: str,
        sides: tuple[Side, ...],
        keys: tuple[str, ...],
        *,
        ends: tuple[str, int] | None = None,
        **own: Any,
    ) -> AnyOperator:
        """Build an operator over sides, with its own fields."""
        feeds: dict[Feed, None] = {}
        for take in (t for s in sides for t in s.takes):
            feeds.update(dict.fromkeys(self._view(take.view).operator.feeds))
        self._distribute(sides, keys)
        sides = tuple(replace(s, stored=all(self._is_table(t.view) for t in s.takes)) for s in sides)
        ttl = None if not any(s.takes for s in sides) else self.ttl
        return kind(name, keys=keys, sides=sides, feeds=tuple(feeds), ends=ends, ttl=ttl, **own)

    def _distribute(self, sides: tuple[Side, ...], keys: tuple[str, ...]) -> None:
        """Let ordered rows wait in the shard of the operator that takes them."""
        for take in (t for s in sides for t in s.takes if not t.ops):
            at = next(i for i, v in enumerate(self.scans.views) if v.name == take.view)
            view = self.scans.views[at]
            placed = view.operator.placed_by(keys)
            if placed is not view.operator:
                self.scans.views[at] = replace(view, operator=placed)

    def _is_table(self, view: str) -> bool:
        operator = self._view(view).operator
        return operator.follows is not None or operator.constant

    def ends(self, step: Keeping) -> tuple[str, int] | None:
        """The key by which groups end, if it is certain when their rows change for the last time."""
        times = sorted(event_times.times_of(step).items(), key=lambda c: c[1])
        return times[0] if times else None

    def late(self, step: Keeping, micros: int) -> Late:
        """Which late rows of its sources a step accepts."""
        names = frozenset(s.name for s in steps.upstream(step) if isinstance(s, steps.Source))
        return Late(micros, names)

    def row_side(self, name: str, step: Step) -> Side:
        """All columns of a step as one side of an operator."""
        return self.side(name, step, tuple((n, col(n)) for n in step.schema.names))

    def by_place(self, name: str, step: Step, columns: Named) -> Side:
        """Rows of sources, ordered by partition and offset."""
        inner, names = self._name(name), tuple(n for n, _ in columns)
        kind = OrderedMerge if is_ordered(step) else PassThrough
        operator = kind(inner, names, feeds=self.scans.append_feeds(step, columns), by_place=True)
        self.scans.views.append(_inner(inner, operator, names))
        return self.whole([Take(inner)], names)

    def order_of(self, side: Side) -> tuple[str, ...]:
        """The columns that give the order of the rows of a side; none if they have no order."""
        orders = {self._view(t.view).operator.orders_rows for t in side.takes}
        return orders.pop() if len(orders) == 1 else ()

    def side(self, name: str, step: Step, columns: Named, late: Late | None = None, *, ordered: bool = False) -> Side:
        """The rows of a step as one side of an operator. With `ordered`, rows of sources come in event-time order."""
        if ordered and not steps.changes(step):
            takes = [Take(self._rows(name, step, columns, late, ordered=True))]
        else:
            takes = self.takes(name, step, columns, late)
        return self.whole(takes, tuple(n for n, _ in columns))

    def whole(self, takes: Iterable[Take], columns: tuple[str, ...]) -> Side:
        """Several takes as one side."""
        takes = tuple(takes)
        before = [self._view(t.view).operator for t in takes]
        append_only = all(o.append_only for o in before)
        names: tuple[str, ...] = ()
        single = False
        identity = None if len(takes) > 1 else before[0].identity
        last = takes[0].ops[-1] if takes[0].ops else None
        if identity is not None and not append_only and isinstance(last, Project) and len(takes[0].ops) == 1:
            project, names = _with_names(last, identity)
            takes = (replace(takes[0], ops=(project,)),)
            single = not names
        return Side(takes, columns, names, append_only, single=single)

    def takes(self, name: str, step: Step, columns: Named, late: Late | None) -> list[Take]:
        """The changes of a step, with these columns, as changes of operators."""
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
        """The changes of a step that is not a projection."""
        project = Project(None if keep is None else keep.spark(), tuple(Column(n, e.spark()) for n, e in columns))
        if isinstance(step, steps.Union):
            takes: list[Take] = []
            for one in step.inputs:
                kept: Step = one if keep is None else steps.Where(one, keep)
                takes += self.takes(name, kept, columns, late)
            return takes
        if isinstance(step, Keeping):
            return [Take(self.inner(name, step).name, (project,))]
        assert not isinstance(step, steps.Source | Round), "its rows do not change"
        op = self.scans.op(step)
        before = tuple((n, col(n)) for n in step.input.schema.names)
        return [replace(t, ops=(*t.ops, op, project)) for t in self.takes(name, step.input, before, late)]

    def inner(self, name: str, root: Keeping) -> PlannedView:
        """The view whose operator performs a step: an existing one, or a new inner view."""
        if id(root) in self.views_by_step:
            return self._view(self.views_by_step[id(root)])
        key = (name, self.signature(root))
        if key not in self.views_by_step:
            _refuse_history(root)
            operator = self.operator_of(name, root)
            inner = self._name(name)
            self.scans.views.append(_inner(inner, replace(operator, step=inner), operator.result))
            self.views_by_step[key] = inner
        self.views_by_step[id(root)] = self.views_by_step[key]
        return self._view(self.views_by_step[key])

    def signature(self, root: Step) -> str:
        """The signature of a step. Steps with equal signatures are performed once."""
        return signature(root, self.needed)

    def _view(self, name: str) -> PlannedView:
        return next(v for v in self.scans.views if v.name == name)

    def _name(self, name: str) -> str:
        return f"{name}~{1 + sum(v.name.startswith(f'{name}~') for v in self.scans.views)}"

    def _rows(self, name: str, step: Step, columns: Named, late: Late | None, *, ordered: bool = False) -> str:
        """An inner view that passes rows of sources through, with the columns that an operator reads."""
        inner, names = self._name(name), tuple(n for n, _ in columns)
        feeds = self.scans.append_feeds(step, columns)
        kind = OrderedMerge if ordered or is_ordered(step) else PassThrough
        operator = kind(inner, names, feeds=feeds)
        if late is not None and event_times.times_of(step):
            operator = replace(operator, lateness=late.micros, beside=late.sources)
        self.scans.views.append(_inner(inner, operator, names))
        return inner


def _with_names(take: Project, identity: tuple[str, ...]) -> tuple[Project, tuple[str, ...]]:
    """A projection that keeps the columns which identify a row, and their names after it."""
    there = {c.sql: c.name for c in take.columns}
    missing = tuple(Column(f"$id{i}", f"`{n}`") for i, n in enumerate(identity) if f"`{n}`" not in there)
    named = {**there, **{c.sql: c.name for c in missing}}
    return Project(take.keep, take.columns + missing), tuple(named[f"`{n}`"] for n in identity)


def end_of(step: Keeping) -> str | None:
    """The column of results that holds their age; None if there is none."""
    if isinstance(step, Aggregated) and not steps.changes(step.input):
        return "window_end"
    times = sorted(event_times.times_of(step, certain=False).items(), key=lambda c: c[1])
    return times[0][0] if times else None


def _inner(name: str, operator: Operator, columns: tuple[str, ...]) -> PlannedView:
    """Create a hidden view for an operator inside a view."""
    return PlannedView(name, operator, None, columns, (), None, None, None, kept=False)


def is_ordered(step: Step) -> bool:
    """Whether rows must come in event-time order."""
    return any(isinstance(s, steps.Union) and s.ordered for s in steps.upstream(step))


def _refuse_history(root: Keeping) -> None:
    """Refuse a history of panes that no view would keep."""
    if isinstance(root, Aggregated) and root.windowing.panes is not None:
        raise Unsupported(
            "the history of panes of an aggregate that no view keeps is not supported",
            hint="end the aggregate in a view of its own before other steps follow it, or leave `panes` out",
            origin=root.origin,
        )
