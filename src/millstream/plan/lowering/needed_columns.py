"""Finds the columns of a join or temporal filter that are read downstream. The lowering drops the others at the
input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.model.expression import Expr
from millstream.model.flow import Flow
from millstream.model.steps import event_times
from millstream.model.steps import step as steps
from millstream.model.steps.aggregation import Aggregated
from millstream.model.steps.relations.join import Joined
from millstream.model.steps.relations.temporal_filter import Temporal
from millstream.model.steps.step import Step


def needed(flow: Flow) -> Mapping[int, set[str]]:
    """By the id of a join or temporal filter: the columns of its rows that a later step or a view reads."""
    columns: dict[int, set[str]] = {}
    for view in flow.views:
        _visit(view.input, set(view.input.schema.names), columns)
    return columns


def _visit(step: Step, read: set[str], columns: dict[int, set[str]]) -> None:
    if isinstance(step, Joined):
        _joined(step, read, columns)
    elif isinstance(step, Temporal):
        known = columns.setdefault(id(step), set())
        known |= read
        _visit(step.input, known | _columns((*step.since, *step.until)), columns)
    elif isinstance(step, steps.Where):
        _visit(step.input, read | set(step.condition.columns()), columns)
    elif isinstance(step, steps.Select):
        _visit(step.input, _columns(e for _, e in step.columns), columns)
    elif isinstance(step, Aggregated):
        expressions = [e for _, e in step.keys] + [a.argument for _, a in step.aggregates if a.argument is not None]
        order = event_times.times_of(step.input, certain=False) if steps.changes(step.input) else {}
        _visit(step.input, _columns(expressions) | set(order), columns)
    else:
        for before in steps.inputs(step):
            union = read if isinstance(step, steps.Union) else set(before.schema.names)
            _visit(before, union, columns)


def _joined(step: Joined, read: set[str], columns: dict[int, set[str]]) -> None:
    known = columns.setdefault(id(step), set())
    known |= read
    bounds = event_times.joined(step)
    needed_names = known | _columns([*bounds.left, *bounds.right])
    if step.condition is not None:
        needed_names |= set(step.condition.columns())
    back = {new: old for old, new in step.renamed}
    _visit(step.left, needed_names & set(step.left.schema.names) | _columns(mine for mine, _ in step.on), columns)
    _visit(
        step.right, {back[n] for n in needed_names if n in back} | _columns(theirs for _, theirs in step.on), columns
    )


def _columns(expressions: Iterable[Expr]) -> set[str]:
    return {c for e in expressions for c in e.columns()}
