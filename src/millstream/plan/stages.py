"""The stages of a plan: what the engine performs and the kernels are told. Frozen values, free of Spark and sqlglot.

A plan reads like the path of a record: **sources** give rows, **scans** compute columns over them (one scan serves
all views that need nothing but expressions), **feeds** say which columns of a scan a stage takes, and a **view**
keeps what its stage (aggregation, append, or one chained to the stage of an earlier view) gives.

System columns begin with ``$``: ``$ts`` event time in micros, ``$part`` and ``$pos`` the position in the source,
``$bad`` why a row is an error (0: it is none), ``$h`` hash of the key, ``$s`` start of the slice, ``$n`` rows combined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from millstream.model.connector import Connector, Sink
from millstream.model.error_policy import QUARANTINE
from millstream.model.guarantees import EXACTLY_ONCE
from millstream.model.python.function import Function
from millstream.model.reserved import OP, SHOWN_OP, free_name
from millstream.model.source_options import SourceOptions
from millstream.model.steps.step import borders_of
from millstream.model.types.schema import Schema
from millstream.model.windows.kinds import AnyWindow, CountWindow
from millstream.model.windows.trigger import ON_CHANGE
from millstream.model.windows.window import Window
from millstream.model.windows.windowing import Windowing
from millstream.plan.operators.chained import (
    ROW,
    AsOf,
    Call,
    Chained,
    Constant,
    Every,
    First,
    Join,
    Once,
    Over,
    Regroup,
    Sets,
    Settled,
    Side,
    Sort,
    Stored,
    Take,
    Test,
)
from millstream.plan.parts import Batches, Column, Explode, Fed, Feed, Lookup, Measure, Op, Project

__all__ = [
    "ROW",
    "Aggregation",
    "Append",
    "AsOf",
    "Batches",
    "Call",
    "Chained",
    "Column",
    "Constant",
    "Every",
    "Explode",
    "Feed",
    "First",
    "Join",
    "Lookup",
    "Measure",
    "Once",
    "Op",
    "Over",
    "Plan",
    "Project",
    "Regroup",
    "Scan",
    "Sets",
    "Settled",
    "Side",
    "Sort",
    "SourceStage",
    "Stage",
    "Stored",
    "Take",
    "Test",
    "ViewStage",
    "view_of",
]


@dataclass(frozen=True, eq=False)
class SourceStage:
    """A source and what is asked of its reader."""

    name: str
    connector: Connector
    schema: Schema
    options: SourceOptions
    positions: bool = False
    """Whether rows must carry their position, because an aggregate depends on order."""


@dataclass(frozen=True)
class Scan:
    """One pass over a source's slice: row-changing steps, then every column that some feed needs.

    The scan without ops is the source's **root scan**; it also accounts for every row.
    """

    id: int
    source: str
    ops: tuple[Op, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, eq=False)
class Aggregation(Fed):
    """Keys, window and aggregates of one keyed stage; all that a kernel needs to know."""

    step: str
    keys: tuple[str, ...]
    windowing: Windowing
    measures: tuple[Measure, ...]
    feeds: tuple[Feed, ...]
    fingerprint: str = ""
    key_types: tuple[pa.DataType, ...] = ()
    retract: bool = False
    """Whether changes carry the old row (-U), or only the new one."""
    corrected: bool = False
    """Whether records may revise earlier ones."""
    totals: tuple[int, ...] = ()
    """The numbers of the grouping sets without keys; the last key says which set a row is in."""

    @property
    def by_slices(self) -> bool:
        """Whether slices shared by windows are enough."""
        return self.windowing.by_slices and not self.corrected

    @property
    def is_never_empty(self) -> bool:
        """Whether it has a result row from its first epoch on, also over no rows: it has no keys, or a grouping set
        without keys, and no window.
        """
        is_global = self.by_slices and self.grid.is_global and self.windowing.trigger == ON_CHANGE
        return is_global and (not self.keys or bool(self.totals))

    @property
    def keeps_records(self) -> bool:
        """Whether it keeps rows one by one."""
        return self.corrected or isinstance(self.window, CountWindow)

    @property
    def window(self) -> AnyWindow:
        """Its windows."""
        return self.windowing.window

    @property
    def grid(self) -> Window:
        """Its windows, where they lie on a grid that all keys share."""
        assert isinstance(self.window, Window)
        return self.window

    @property
    def borders(self) -> tuple[str, ...]:
        """The window columns of the result."""
        return borders_of(self.windowing)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell one result row from another."""
        return (self.borders[:1] if isinstance(self.window, CountWindow) else self.borders) + self.keys


@dataclass(frozen=True, eq=False)
class Append(Fed):
    """Rows go to the view as they come."""

    step: str
    columns: tuple[str, ...]
    feeds: tuple[Feed, ...]
    fingerprint: str = ""
    ordered: bool = False
    """Whether rows are held back until they can go on in the order of event time."""
    lateness: int | None = None
    """How far behind the watermark, in micros, rows are still taken; None: none comes too late."""
    beside: frozenset[str] = frozenset()
    """Sources whose watermarks count too, because its rows meet theirs."""
    by_place: bool = False
    """Whether rows go on in the order of partition and offset, however they were read."""

    @property
    def is_timely(self) -> bool:
        """Whether rows may come too late for it."""
        return self.ordered or self.lateness is not None

    @property
    def sources(self) -> frozenset[str]:
        """The sources whose watermarks hold it."""
        return super().sources | self.beside


Stage = Aggregation | Append | Chained


def view_of(step: str) -> str:
    """The view that a step of state belongs to: one of its stages, or the records that a stage keeps."""
    return step.partition("$")[0].partition("~")[0]


@dataclass(frozen=True, eq=False)
class ViewStage:
    """A view: the stage that feeds it, the steps after that stage, and how rows are told apart and kept."""

    name: str
    stage: Stage
    post: Project | None
    columns: tuple[str, ...]
    hidden: tuple[str, ...]
    """Identity columns the user dropped; kept in the store under a ``$`` name, not shown."""
    identity: tuple[str, ...] | None
    """Stored columns that make a row unique (none: the view has one row); None for an append-only view."""
    retention: int | None
    time_column: str | None
    """Stored column that retention is measured by."""
    fingerprint: str = ""
    """Names what the view means; kept rows and state fit only a view with the same one."""
    schema: pa.Schema | None = None
    """Stored columns with their types, once bound."""
    panes: pa.Schema | None = None
    """Columns of the history of panes, once bound, if it is kept."""
    sink: Sink | None = None
    """Where its changes are written to."""
    kept: bool = True
    """Whether it is a table of the store."""
    on_error: str = QUARANTINE
    """What is done about a row that one of its expressions fails on."""
    retracts: bool = True
    """Whether its changes carry the old row (-U), once bound."""

    @property
    def inner(self) -> bool:
        """Whether it only feeds others: nobody sees its name, and what comes too late for it is set apart for them."""
        return not self.kept and self.sink is None

    @property
    def sink_schema(self) -> pa.Schema:
        """The columns that its sink gets: a stream that changes says how, in a first column."""
        assert self.schema is not None, "once bound"
        shown = [self.schema.field(c) for c in self.columns]
        return pa.schema(shown if self.kind_column is None else [pa.field(self.kind_column, pa.string()), *shown])

    @property
    def kind_column(self) -> str | None:
        """The column that tells a sink what kind of change a row is; None where rows only come."""
        return None if self.identity is None else free_name(SHOWN_OP, self.columns)

    def for_sink(self, changes: pa.Table) -> pa.Table:
        """Changes as its sink gets them."""
        taken = self.columns if self.identity is None else (OP, *self.columns)
        return changes.select(taken).rename_columns(self.sink_schema.names).cast(self.sink_schema)

    @property
    def panes_kept(self) -> int | None:
        """How long panes are kept, in micros; None when their history is not."""
        how = self.stage.windowing.panes if isinstance(self.stage, Aggregation) else None
        return None if how is None else how.micros


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything an epoch of a flow does. `id` names its content."""

    flow: str
    sources: tuple[SourceStage, ...]
    scans: tuple[Scan, ...]
    views: tuple[ViewStage, ...]
    id: str = ""
    tables: tuple[str, ...] = field(default=())
    guarantee: str = EXACTLY_ONCE
    functions: tuple[Function, ...] = ()
    """The Python functions that its expressions call."""

    def source(self, name: str) -> SourceStage:
        """The source of this name."""
        return next(s for s in self.sources if s.name == name)

    def scans_of(self, source: str) -> tuple[Scan, ...]:
        """The scans over a source, root scan first."""
        return tuple(s for s in self.scans if s.source == source)

    def reads_clock(self, feed: Feed) -> bool:
        """Whether a feed uses the column with the time of processing of its source."""
        name = self.source(feed.source).options.processing_time
        if name is None:
            return False
        scan = next(s for s in self.scans if s.id == feed.scan)
        taken = {feed.keep, feed.hash, feed.slice, feed.gap, *feed.columns}
        return f"`{name}`" in repr((scan.ops, [c.sql for c in scan.columns if c.name in taken]))

    @property
    def fractions(self) -> tuple[float, ...]:
        """The fractions of the data that some trigger asks for."""
        return tuple(sorted({f for a in self.aggregations for f in a.windowing.fractions}))

    @property
    def stateful(self) -> tuple[Stage, ...]:
        """The stages that keep state."""
        return tuple(v.stage for v in self.views if not isinstance(v.stage, Append) or v.stage.ordered)

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The views whose stages others are chained to."""
        return frozenset(n for v in self.views if isinstance(v.stage, Chained) for n in v.stage.inputs)

    @cached_property
    def behind(self) -> Mapping[str, tuple[str, ...]]:
        """By view: the views that people see whose chain begins with its stage, itself among them."""
        first: dict[str, dict[str, None]] = {}
        found: dict[str, tuple[str, ...]] = {v.name: () for v in self.views}
        for view in self.views:
            inputs = view.stage.inputs if isinstance(view.stage, Chained) else ()
            first[view.name] = {f: None for name in inputs for f in first[name]} or {view.name: None}
            if not view.inner:
                for name in first[view.name]:
                    found[name] += (view.name,)
        return found

    def view(self, name: str) -> ViewStage:
        """The view of this name."""
        return next(v for v in self.views if v.name == name)

    @cached_property
    def watched(self) -> frozenset[str]:
        """The stored tables whose changes are followed."""
        whats = (v.stage.what for v in self.views if isinstance(v.stage, Chained))
        return frozenset(w.table for w in whats if isinstance(w, Stored) and not isinstance(w, Constant))

    @cached_property
    def constants(self) -> tuple[str, ...]:
        """The steps that give a row which is there from the first epoch on."""
        chained = (v.stage for v in self.views if isinstance(v.stage, Chained))
        return tuple(s.step for s in chained if isinstance(s.what, Constant))

    @property
    def aggregations(self) -> tuple[Aggregation, ...]:
        """The keyed stages."""
        return tuple(v.stage for v in self.views if isinstance(v.stage, Aggregation))
