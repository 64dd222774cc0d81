"""The plan of a flow: sources, scans, and views with their operators. Frozen values, free of Spark.

A plan reads like the path of a record: **sources** provide rows, **scans** compute columns over them (one scan serves
all views that need only expressions), **feeds** name the columns of a scan that an operator reads, and a **view**
stores the result of its **operator** (`plan/operators/`). Operators read scans, or the changes of others.

System columns begin with ``$``: ``$ts`` event time in micros, ``$part`` and ``$pos`` the position in the source,
``$bad`` why a row is an error (0: it is none), ``$h`` hash of the key, ``$s`` start of the slice, ``$n`` rows combined.
"""

from __future__ import annotations

import re
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
from millstream.model.types.schema import Schema
from millstream.plan.operators.operator import Operator
from millstream.plan.parts import Batches, Column, Feed, Op, Project

_PLAIN_NAME = re.compile("[A-Za-z0-9_]+")
"""Names that `repr` does not change."""


@dataclass(frozen=True, eq=False)
class PlannedSource:
    """A source, and what its reader must provide."""

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
    types: pa.Schema | None = field(default=None, compare=False, repr=False)
    """Its columns with their types, once bound."""


@dataclass(frozen=True, eq=False)
class PlannedView:
    """A view: the operator that feeds it, the projection after it, and how rows are identified and kept."""

    name: str
    operator: Operator
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
    results: pa.Schema | None = None
    """Columns of its operator's results with their types, once bound."""
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
        """Whether it only feeds other views: its name is not public, and those views quarantine its late rows."""
        return not self.kept and self.sink is None

    @property
    def sink_schema(self) -> pa.Schema:
        """The columns that its sink gets: a stream that changes says how, in a first column."""
        assert self.schema is not None, "once bound"
        fields = [self.schema.field(c) for c in self.columns]
        return pa.schema(fields if self.kind_column is None else [pa.field(self.kind_column, pa.string()), *fields])

    @property
    def kind_column(self) -> str | None:
        """The column that tells a sink what kind of change a row is; None where rows are append-only."""
        return None if self.identity is None else free_name(SHOWN_OP, self.columns)

    def for_sink(self, changes: pa.Table) -> pa.Table:
        """Changes as its sink gets them."""
        columns = self.columns if self.identity is None else (OP, *self.columns)
        return changes.select(columns).rename_columns(self.sink_schema.names).cast(self.sink_schema)

    @property
    def panes_kept(self) -> int | None:
        """How long panes are kept, in micros; None when their history is not."""
        return self.operator.panes_kept


@dataclass(frozen=True, eq=False)
class Plan:
    """Everything an epoch of a flow does. `id` names its content."""

    flow: str
    sources: tuple[PlannedSource, ...]
    scans: tuple[Scan, ...]
    views: tuple[PlannedView, ...]
    id: str = ""
    tables: tuple[str, ...] = field(default=())
    guarantee: str = EXACTLY_ONCE
    functions: tuple[Function, ...] = ()
    """The Python functions that its expressions call."""

    def source(self, name: str) -> PlannedSource:
        """The source of this name."""
        return next(s for s in self.sources if s.name == name)

    def scans_of(self, source: str) -> tuple[Scan, ...]:
        """The scans over a source, root scan first."""
        return tuple(s for s in self.scans if s.source == source)

    def scan(self, number: int) -> Scan:
        """The scan with this number."""
        return next(s for s in self.scans if s.id == number)

    def reads_clock(self, feed: Feed) -> bool:
        """Whether a feed uses the column with the time of processing of its source."""
        name = self.source(feed.source).options.processing_time
        if name is None:
            return False
        scan = self.scan(feed.scan)
        columns = {feed.keep, feed.hash, feed.slice, feed.gap, *feed.columns}
        return f"`{name}`" in repr((scan.ops, [c.sql for c in scan.columns if c.name in columns]))

    def columns_read(self, source: str) -> frozenset[str] | None:
        """The columns of a source that its scans may read; None where a function gets whole rows. A name that is in no
        expression is not read.
        """
        scans, planned = self.scans_of(source), self.source(source)
        if any(isinstance(op, Batches) for s in scans for op in s.ops):
            return None
        used = repr((planned.options, planned.options.time_sql, [(s.ops, s.columns) for s in scans]))
        return frozenset(n for n in planned.schema.names if n in used or not _PLAIN_NAME.fullmatch(n))

    @property
    def fractions(self) -> tuple[float, ...]:
        """The fractions of the data that some trigger waits for."""
        return tuple(sorted({f for v in self.views for f in v.operator.fractions}))

    @property
    def stateful(self) -> tuple[Operator, ...]:
        """The operators that keep state."""
        return tuple(v.operator for v in self.views if v.operator.stateful)

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The views whose operators feed others."""
        return frozenset(n for v in self.views for n in v.operator.inputs)

    @cached_property
    def downstream(self) -> Mapping[str, tuple[str, ...]]:
        """By view: the visible views whose path begins with its operator, itself among them."""
        first: dict[str, dict[str, None]] = {}
        views: dict[str, tuple[str, ...]] = {v.name: () for v in self.views}
        for view in self.views:
            first[view.name] = {f: None for name in view.operator.inputs for f in first[name]} or {view.name: None}
            if not view.inner:
                for name in first[view.name]:
                    views[name] += (view.name,)
        return views

    def view(self, name: str) -> PlannedView:
        """The view of this name."""
        return next(v for v in self.views if v.name == name)

    @cached_property
    def watched(self) -> frozenset[str]:
        """The stored tables whose changes are followed."""
        return frozenset(t for v in self.views if (t := v.operator.follows) is not None)

    @cached_property
    def constants(self) -> tuple[str, ...]:
        """The operators that give a row which is there from the first epoch on."""
        return tuple(v.operator.step for v in self.views if v.operator.constant)
