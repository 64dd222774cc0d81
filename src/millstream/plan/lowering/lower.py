"""Lowering: translates the steps of a flow into scans, feeds and operators.

Expressions between two row-changing steps are folded into one another. A chain of where, select and with_columns
therefore costs one projection, and views that differ only in expressions share a scan. Steps that keep state are
lowered by `plan/lowering/stateful.py`. The planner applies its rules to the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from millstream.errors import DefinitionError, Unsupported
from millstream.model.error_policy import NULL
from millstream.model.expression import Expr, both, col
from millstream.model.flow import Flow
from millstream.model.reserved import OP
from millstream.model.steps import step as steps
from millstream.model.steps.loop import Round
from millstream.model.steps.process import Processed
from millstream.model.steps.relational import Gathered
from millstream.model.steps.step import Aggregated, Keeping, Step
from millstream.model.windows.kinds import SessionWindow
from millstream.plan.code_identity import code_identity
from millstream.plan.lowering import stateful
from millstream.plan.lowering.native_subset import quick_sql
from millstream.plan.lowering.needed_columns import needed
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.operators.operator import ROW
from millstream.plan.operators.relations.ordered_merge import OrderedMerge
from millstream.plan.operators.relations.pass_through import PassThrough
from millstream.plan.parts import Batches, Column, Explode, Feed, Lookup, Measure, Op, Project
from millstream.plan.plan import Plan, PlannedSource, PlannedView, Scan


@dataclass(frozen=True, eq=False)
class _Branch:
    """A source's rows after some ops, with the expressions and the condition that are still pending."""

    source: steps.Source
    ops: tuple[Op, ...]
    names: Mapping[str, Expr]
    keep: Expr | None = None

    def flush(self) -> tuple[Op, ...]:
        """The ops, including the pending expressions."""
        identity = all(e.spark() == f"`{n}`" for n, e in self.names.items())
        if identity and self.keep is None and self.ops:
            return self.ops
        columns = tuple(Column(n, e.spark()) for n, e in self.names.items())
        return (*self.ops, Project(_sql(self.keep), columns))

    def after(self, op: Op, names: tuple[str, ...]) -> _Branch:
        """The branch after a row-changing op."""
        return _Branch(self.source, (*self.flush(), op), {n: col(n) for n in names})


@dataclass
class _ScanBuilder:
    """Collects the distinct columns of one scan."""

    id: int
    source: str
    ops: tuple[Op, ...]
    names: dict[str, str] = field(default_factory=dict)

    def column(self, sql: str) -> str:
        """The name under which the scan provides this expression."""
        return self.names.setdefault(sql, f"$e{len(self.names)}")

    def build(self) -> Scan:
        return Scan(self.id, self.source, self.ops, tuple(Column(n, sql) for sql, n in self.names.items()))


class Lowering:
    """Builds the plan of one flow."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.scans: dict[tuple[str, str], _ScanBuilder] = {}
        self.views: list[PlannedView] = []
        self.stateful = stateful.StatefulLowering(self, needed(flow))
        for source in flow.sources:
            self.scan(source.name, ())

    def scan(self, source: str, ops: tuple[Op, ...]) -> _ScanBuilder:
        """The scan over a source after some ops."""
        key = (source, repr([_identity(op) for op in ops]))
        if key not in self.scans:
            self.scans[key] = _ScanBuilder(len(self.scans), source, ops)
        return self.scans[key]

    def plan(self) -> Plan:
        """Build the plan of the whole flow."""
        for view in self.flow.views:
            self.views.append(self.view(view))
        views = tuple(self.views)
        sources = tuple(PlannedSource(s.name, s.connector, s.read, s.options) for s in self.flow.sources)
        scans = tuple(b.build() for b in self.scans.values())
        tables = {op.table for s in scans for op in s.ops if isinstance(op, Lookup)}
        made = Plan(self.flow.name, sources, scans, views, guarantee=self.flow.guarantee)
        made = replace(made, tables=tuple(sorted(tables | made.watched)))
        return replace(made, functions=tuple(self.flow.functions.values()))

    def view(self, view: steps.View) -> PlannedView:
        """Build a view with its operator."""
        self.stateful.ttl = None if view.state_ttl is None else view.state_ttl.micros
        made = replace(self._kept(view), sink=view.sink, kept=view.kept, on_error=view.on_error)
        if view.sink is not None:
            view.sink.check_changes(view.name, append_only=made.identity is None, origin=view.origin)
        if view.on_error == NULL:
            self._refuse_null(view, made.operator.feeds)
        return made

    def _refuse_null(self, view: steps.View, feeds: tuple[Feed, ...]) -> None:
        """Refuse the policy NULL for expressions over the records of a source: one scan computes them for all views."""
        for feed in feeds:
            scan = next(s for s in self.scans.values() if s.id == feed.scan)
            names = {name: sql for sql, name in scan.names.items()}
            used = [names[c] for c in (*((feed.keep,) if feed.keep else ()), *feed.columns)]
            used += [sql for op in scan.ops for sql in _expressions(op)]
            risky = next((s for s in used if quick_sql(s) is None), None)
            if risky is not None or any(isinstance(op, Batches) for op in scan.ops):
                raise Unsupported(
                    f"`{view.name}` has on_error = 'null', and computes with records of the source `{feed.source}`",
                    detail=f"NULL cannot be taken there for what fails: {(risky or 'map_batches').replace('`', '')}",
                    hint="use a function that gives NULL, as try_divide or try_cast, and leave on_error out",
                    origin=view.origin,
                )

    def _kept(self, view: steps.View) -> PlannedView:
        post, root = _split(view.input)
        retention = None if view.retention is None else view.retention.micros
        if not isinstance(root, Keeping):
            if not steps.changes(view.input):
                return self._append(view, retention)
            post, root = [], Gathered(view.input, view.origin)
        elif isinstance(root, Processed) and len(root.outputs) > 1:
            post, root = [], Gathered(view.input, view.origin)  # several views may share it, and it runs once
        operator = self.stateful.operator_of(view.name, root)
        if root in steps.upstream(view.input):
            self.stateful.made.setdefault(id(root), view.name)
        project = _post(post, root)
        columns = project.columns if project else tuple(Column(n, f"`{n}`") for n in root.schema.names)
        shown = {c.sql: c.name for c in columns}
        end = stateful.end_of(root)
        needed = identity = operator.identity or ()
        if not operator.reads_scans and end is not None and retention is not None and end not in needed:
            needed = (*needed, end)
        hidden = tuple(n for n in needed if f"`{n}`" not in shown)
        if hidden and project:
            project = Project(project.keep, columns + tuple(Column(_hidden(n), f"`{n}`") for n in hidden))
        stored = {n: shown.get(f"`{n}`", _hidden(n)) for n in needed}
        return PlannedView(
            view.name,
            operator,
            project,
            tuple(c.name for c in columns),
            tuple(_hidden(n) for n in hidden),
            None if operator.identity is None else tuple(stored[n] for n in identity),
            retention,
            stored.get(end or ""),
        )

    def _append(self, view: steps.View, retention: int | None) -> PlannedView:
        names = view.input.schema.names
        feeds = self.append_feeds(view.input, tuple((n, col(n)) for n in names))
        kind = OrderedMerge if stateful.is_ordered(view.input) else PassThrough
        operator = kind(view.name, names, feeds=feeds)
        hidden = () if retention is None else ("$ts",)
        return PlannedView(view.name, operator, None, names, hidden, None, retention, "$ts" if hidden else None)

    def append_feeds(self, step: Step, columns: steps.Named) -> tuple[Feed, ...]:
        """The feeds of an operator that passes rows through with these columns."""
        feeds = []
        for branch in self.branches(step):
            scan, keep, record = self._place(branch)
            names = {n: steps.plain_column(e) for n, e in columns}
            taken = tuple(
                scan.column(branch.names[c].spark() if (c := names[n]) else e.substitute(branch.names).spark())
                for n, e in columns
            )
            feeds.append(Feed(scan.id, scan.source, keep, record, taken))
        return tuple(feeds)

    def aggregation(self, name: str, root: Aggregated) -> Aggregation:
        """Build the operator of an aggregate over rows of sources."""
        feeds = []
        for branch in self.branches(root.input):
            scan, keep, record = self._place(branch)
            keys = [_normal_zero(e.substitute(branch.names), e.type_in(root.input.schema)) for _, e in root.keys]
            arguments = [
                a.argument.substitute(branch.names).spark() for _, a in root.aggregates if a.argument is not None
            ]
            hashed = f"xxhash64({', '.join(keys)})" if keys else "0L"
            feeds.append(
                Feed(
                    scan.id,
                    scan.source,
                    keep,
                    record,
                    tuple(scan.column(sql) for sql in (*keys, *arguments)),
                    scan.column(hashed),
                    scan.column(root.windowing.window.slice_sql("`$ts`")),
                    self._gap(scan, root, branch),
                )
            )
        measures = tuple(Measure(n, a.kind, a.argument is not None, a.user, a.returns) for n, a in root.aggregates)
        keys_named = tuple(n for n, _ in root.keys)
        corrected = any(b.source.options.corrections is not None for b in self.branches(root.input))
        return Aggregation(
            name, keys_named, root.windowing, measures, feeds=tuple(feeds), corrected=corrected, totals=root.totals
        )

    def _gap(self, scan: _ScanBuilder, root: Aggregated, branch: _Branch) -> str:
        window = root.windowing.window
        if not isinstance(window, SessionWindow) or window.gap_by is None:
            return ""
        gap = window.gap_by.substitute(branch.names).spark()
        return scan.column(f"unix_micros(TIMESTAMP '1970-01-01 00:00:00+00:00' + ({gap}))")

    def _place(self, branch: _Branch) -> tuple[_ScanBuilder, str | None, str]:
        scan = self.scan(branch.source.name, branch.ops)
        keep = None if branch.keep is None else scan.column(branch.keep.spark())
        parts = ", ".join(f"{e.spark()} AS `{n}`" for n, e in branch.names.items())
        return scan, keep, f"to_json(struct({parts}))"

    def branches(self, step: Step) -> list[_Branch]:
        """The paths on which rows reach this step, one per source upstream."""
        if isinstance(step, steps.Source):
            return [_Branch(step, (), {n: col(n) for n in step.schema.names})]
        if isinstance(step, steps.Union):
            return [b for s in step.inputs for b in self.branches(s)]
        assert not isinstance(step, Keeping | Round), "the model refuses steps behind an aggregate that need branches"
        return [self._through(b, step) for b in self.branches(step.input)]

    def _through(self, b: _Branch, step: Step) -> _Branch:
        if isinstance(step, steps.Where):
            condition = step.condition.substitute(b.names)
            return replace(b, keep=both(b.keep, condition))
        if isinstance(step, steps.Select):
            return replace(b, names={n: e.substitute(b.names) for n, e in step.columns})
        if isinstance(step, steps.MapBatches):
            event_time = b.source.options.event_time
            if event_time is not None and event_time not in step.schema:
                raise DefinitionError(
                    f"map_batches loses the event time `{event_time}`",
                    hint=f"keep a column `{event_time} TIMESTAMP` in its schema",
                    origin=step.origin,
                )
        return b.after(self.op(step), step.schema.names)

    def op(self, step: Step) -> Op:
        """Lower a row-changing step to an op."""
        if isinstance(step, steps.FlatMap):
            return Explode(step.name, step.array.spark(), step.keep_empty)
        if isinstance(step, steps.Enrich):
            return Lookup(step.table, step.on, step.columns, step.required)
        if isinstance(step, steps.MapBatches):
            return Batches(step.function, step.takes, step.schema, code_identity(step.function))
        raise Unsupported(f"no plan for the step {type(step).__name__}")


def lower(flow: Flow) -> Plan:
    """Build the unoptimized plan of a flow. The planner's rules refine it."""
    return Lowering(flow).plan()


def _split(step: Step) -> tuple[list[Step], Step]:
    """Split the steps at the last one that keeps state: the steps after it, first one first, and that step. If none
    keeps state, no steps and the step itself.
    """
    behind: list[Step] = []
    at = step
    while isinstance(at, steps.Where | steps.Select):
        behind.insert(0, at)
        at = at.input
    return (behind, at) if isinstance(at, Keeping) else ([], step)


def _post(behind: list[Step], root: Keeping) -> Project | None:
    if not behind:
        return None
    names: dict[str, Expr] = {n: col(n) for n in root.schema.names}
    keep: Expr | None = None
    for step in behind:
        if isinstance(step, steps.Where):
            condition = step.condition.substitute(names)
            keep = both(keep, condition)
        elif isinstance(step, steps.Select):
            names = {n: e.substitute(names) for n, e in step.columns}
    return Project(_sql(keep), tuple(Column(n, e.spark()) for n, e in names.items()))


def _expressions(op: Op) -> list[str]:
    """The Spark SQL expressions of an op."""
    if isinstance(op, Project):
        return [*([] if op.keep is None else [op.keep]), *(c.sql for c in op.columns)]
    return [op.array] if isinstance(op, Explode) else []


def _hidden(name: str) -> str:
    """The name under which a hidden column is stored: with a ``$``, or two where one would clash with a name that
    Millstream reserves.
    """
    if name.startswith("$"):
        return name
    return f"$${name}" if f"${name}" in (OP, "$ts", *ROW) else f"${name}"


def _sql(condition: Expr | None) -> str | None:
    return None if condition is None else condition.spark()


def _normal_zero(key: Expr, kind: pa.DataType | None) -> str:
    """Make -0.0 and 0.0 one key."""
    sql = key.spark()
    return f"({sql} + 0.0D)" if kind is not None and pa.types.is_floating(kind) else sql


def _identity(op: Op) -> Any:
    """The identity by which equal ops share a scan. A function equals only itself, because its closure may differ."""
    return ("batches", id(op.function), op.takes, op.schema) if isinstance(op, Batches) else op
