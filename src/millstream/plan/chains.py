"""Chains: from a step over rows that change to a stage over the changes of another stage.

The stages inside a chain belong to **inner** views, named after the view at its end: ``<view>~1``, ``<view>~2``.
"""

from __future__ import annotations

from millstream.errors import Unsupported
from millstream.model import step as steps
from millstream.model.expression import col
from millstream.model.schema import Schema
from millstream.model.step import Aggregated, Keeping, Step, Top, plain_column
from millstream.model.trigger import ON_CLOSE
from millstream.plan.stages import (
    Append,
    Chained,
    Column,
    First,
    Measure,
    Once,
    Project,
    Regroup,
    Sort,
    Stage,
    ViewStage,
)


def taken(root: Keeping) -> steps.Named:
    """The columns that a stage takes of the rows before it. (Names of its own begin with ``$`` and ``@``.)"""
    if isinstance(root, Aggregated):
        arguments = tuple((f"@{n}", a.argument) for n, a in root.aggregates if a.argument is not None)
        return (*root.keys, *arguments)
    row = tuple((n, col(n)) for n in root.input.schema.names)
    if not isinstance(root, Top):
        return row
    computed = ((f"$by{i}", o.by) for i, o in enumerate(root.order) if plain_column(o.by) is None)
    return (*row, *root.added, *computed)


def projection(step: Step, columns: steps.Named) -> steps.Select:
    """The columns as a step behind another one."""
    return steps.Select(step, columns, Schema(()))


def chained(name: str, root: Keeping, given: ViewStage, take: Project | None) -> Chained:
    """The stage of a step over the changes of a view's stage."""
    columns = tuple(n for n, _ in taken(root))
    stage, what = given.stage, _what(root, columns)
    names: tuple[str, ...] = ()
    keys = tuple(n for n, _ in root.keys) if isinstance(root, Aggregated | Top) else columns
    if take is not None and not isinstance(stage, Append) and not _grows(stage):
        take, names = _with_names(take, stage.identity)
    return Chained(name, given.name, take, columns, names, keys, what, stage.feeds, _grows(stage), _ends(root))


def _with_names(take: Project, identity: tuple[str, ...]) -> tuple[Project, tuple[str, ...]]:
    """A projection that has the columns which tell rows apart, too, and their names there."""
    there = {c.sql: c.name for c in take.columns}
    missing = tuple(Column(f"$id{i}", f"`{n}`") for i, n in enumerate(identity) if f"`{n}`" not in there)
    named = {**there, **{c.sql: c.name for c in missing}}
    return Project(take.keep, take.columns + missing), tuple(named[f"`{n}`"] for n in identity)


def _what(root: Keeping, columns: tuple[str, ...]) -> First | Regroup | Once:
    if isinstance(root, Aggregated):
        measures = tuple(Measure(n, a.kind, a.argument is not None, a.user, a.returns) for n, a in root.aggregates)
        return Regroup(measures)
    if isinstance(root, Top):
        order = tuple(
            Sort(plain_column(o.by) or f"$by{i}", o.descending, o.nulls_first) for i, o in enumerate(root.order)
        )
        return First(root.count, order, root.rank, tuple(n for n in columns if not n.startswith("$")))
    return Once()


def _grows(stage: Stage) -> bool:
    """Whether a stage only ever adds rows: it hands them on, keeps each once, or answers when a window is over."""
    if isinstance(stage, Append):
        return True
    if isinstance(stage, Chained):
        return stage.only_inserts
    return stage.by_slices and stage.windowing.trigger == ON_CLOSE and stage.windowing.answers_once


def end_of(root: Keeping) -> str | None:
    """The column among those that tell results apart which is the end of a window; None when there is none."""
    if isinstance(root, Aggregated) and not steps.changes(root.input):
        return "window_end"
    names = [n for n, _ in root.keys] if isinstance(root, Aggregated | Top) else root.schema.names
    return next((n for n in names if steps.is_window_end(root, n)), None)


def _ends(root: Keeping) -> tuple[str, int] | None:
    """By which key groups come to an end, where it is certain when a window changes for the last time: its answers
    come from slices, and all stages behind it have it among their keys.
    """
    chain = [s for s in steps.upstream(root.input) if isinstance(s, Keeping)]
    if not chain or not isinstance(chain[-1], Aggregated) or not chain[-1].windowing.by_slices:
        return None
    if any(isinstance(s, steps.Source) and s.options.corrections is not None for s in steps.upstream(chain[-1])):
        return None
    ends = [end_of(step) for step in (root, *chain[:-1])]
    return None if ends[0] is None or None in ends else (ends[0], chain[-1].windowing.lateness.micros)


def inner(name: str, stage: Stage, columns: tuple[str, ...]) -> ViewStage:
    """A view that nobody sees, for a stage inside a chain."""
    return ViewStage(name, stage, None, columns, (), None, None, None, kept=False)


def refuse_history(root: Keeping) -> None:
    """Refuse a history of panes that no view would keep."""
    if isinstance(root, Aggregated) and root.windowing.panes is not None:
        raise Unsupported(
            "the history of panes of an aggregate that no view keeps is not supported",
            hint="end the aggregate in a view of its own before other steps follow it, or leave `panes` out",
            origin=root.origin,
        )
