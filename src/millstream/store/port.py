"""The contract of a store: the authority on what a flow has done.

An epoch is one transaction: the changes of all views, errors, late rows, and the row of the epoch itself with its
slice, clock, plan and state version. A reader therefore always sees the views of a flow as of one epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from millstream.budget import Budget
from millstream.clock import Micros
from millstream.limits import Limits


@dataclass(frozen=True)
class ViewSpec:
    """What a store must know about a view to store it."""

    name: str
    schema: pa.Schema
    columns: tuple[str, ...]
    """The visible columns; the schema may have more."""
    identity: tuple[str, ...] | None
    retention: int | None
    time_column: str | None
    fingerprint: str
    panes: pa.Schema | None = None
    """The columns of the history of panes, if it is kept."""
    panes_kept: int | None = None
    ordered: bool = False
    """Whether it is an append-only view with event times, whose rows can be late."""
    kept: bool = True
    """Whether it is stored as a table; otherwise only its quarantined rows are."""


@dataclass(frozen=True)
class WriterState:
    """What a stored table has of a sink."""

    writer: str
    epoch: int
    """The last epoch that was applied to it; -1: none."""
    keys: bytes | None = None
    """The keys that the sink's query has rows for after this epoch, where the sink needs to know."""


@dataclass(frozen=True)
class EpochRow:
    """A committed epoch in the store."""

    number: int
    plan: str
    slices: Mapping[str, Any]
    clock: Mapping[str, Any]
    version: Mapping[str, Any]
    progress: Mapping[str, Any]
    """Cumulative: newest event times, counts."""


@dataclass(frozen=True)
class EpochCommit:
    """Everything that one epoch changes, to be applied atomically."""

    flow: str
    token: int
    row: EpochRow
    changes: Mapping[str, pa.Table] = field(default_factory=dict)
    errors: Mapping[str, pa.Table] = field(default_factory=dict)
    mended: Mapping[str, pa.Table] = field(default_factory=dict)
    """view -> errors that are resolved: `partition`, `raw`, and `times`, the number of them."""
    late: Mapping[str, pa.Table] = field(default_factory=dict)
    panes: Mapping[str, pa.Table] = field(default_factory=dict)
    replayed: str | None = None
    """The view whose late records this epoch has replayed."""
    watermark: Micros = 0
    """The lowest watermark of the flow, for retention."""
    upsert: bool = False
    """Whether a new row replaces one with the same identity: the flow has lost its state."""


AsOf = dict[str, tuple[str, int]]
"""The views of a home, in lower case, each with its flow and the epoch of the flow that a result reflects."""


def epochs_read(as_of: AsOf, tables: Iterable[str]) -> dict[str, int]:
    """The flows whose views are among the tables (``v$late`` belongs to ``v``), each with its epoch."""
    views = (table.partition("$")[0].lower() for table in tables)
    return dict(as_of[view] for view in views if view in as_of)


class EpochStore(Protocol):
    """What the epoch loop needs. Called by the threads of flows."""

    def prepare(self, flow: str, views: Sequence[ViewSpec], sources: Sequence[str]) -> None:
        """Create the tables of a flow's views, and of the errors of its sources; existing tables stay unchanged.
        Refuses (IncompatibleChange) a view whose meaning has changed while its rows were kept.
        """
        ...

    def take_lease(self, flow: str, owner: str) -> int:
        """Return a token greater than all previous ones; from now on commits with an older token are refused."""
        ...

    def commit(self, commit: EpochCommit) -> None:
        """Apply an epoch durably and atomically. Refuses (LeaseLost) a token that is no longer the flow's, and
        (RecoveryFailed) a number that does not follow the last; then nothing has changed.
        """
        ...

    def late_times(self, view: str) -> list[int]:
        """The event times of the late records of a view that were not replayed yet."""
        ...

    def all_rows(self, view: str) -> pa.Table:
        """All rows of a view, including its hidden columns."""
        ...

    def last(self, flow: str) -> EpochRow | None:
        """The newest committed epoch of a flow."""
        ...

    def epochs(self, flow: str, most: int) -> list[EpochRow]:
        """The newest committed epochs of a flow, newest first."""
        ...

    def generation(self, flow: str, sink: str = "") -> int:
        """How often a flow, or one of its sinks, was reset."""
        ...

    def members(self, flow: str) -> set[str]:
        """The names of the views and sinks that a flow has had."""
        ...

    def raise_generation(self, flow: str, sink: str, least: int) -> None:
        """Raise the generation of a sink to at least this value."""
        ...


class QueryStore(Protocol):
    """What a query needs. Called by any thread; what it reads is as of one epoch of every flow."""

    @property
    def dialect(self) -> str:
        """The SQL dialect of `query`, as sqlglot names it; `sql/query/` generates it."""
        ...

    @property
    def budget(self) -> Budget:
        """The memory that all queries share."""
        ...

    def tables(self) -> Mapping[str, Sequence[str]]:
        """Every view and table that may be read, with its columns."""
        ...

    def query(
        self,
        sql: str,
        inputs: Mapping[str, pa.Table] | None = None,
        *,
        limits: Limits | None = None,
        apart: Sequence[str] | None = None,
        as_of: AsOf | None = None,
    ) -> pa.Table:
        """Answer a validated SELECT; `inputs` are tables for this query only, and `apart` are the tables that it reads
        if it may need much memory. The epochs that the result reflects are added to `as_of`.
        """
        ...


class TableStore(Protocol):
    """Stored tables: their rows, the version of each, and what sinks have written to them."""

    def put_table(self, name: str, data: pa.Table, version: int = 0, writer_state: WriterState | None = None) -> None:
        """Replace a stored table; `writer_state` records the sink and epoch of the rows, in the same transaction."""
        ...

    def table_rows(self, name: str) -> pa.Table:
        """The rows of a stored table, as they were written."""
        ...

    def writer_state(self, name: str, writer: str) -> WriterState:
        """What a stored table has of a sink."""
        ...

    def table_versions(self) -> Mapping[str, int]:
        """The version of every stored table."""
        ...

    def forget_table(self, name: str) -> None:
        """Drop a stored table."""
        ...


class CatalogStore(Protocol):
    """What definitions, listings and repairs need: which flows and views there are, and the catalog of SQL."""

    def flows(self) -> list[str]:
        """The flows that have run in this home."""
        ...

    def views(self) -> list[dict[str, Any]]:
        """The views (`view`) with their flow (`flow`) and their numbers of rows (`rows`) and late rows (`late`)."""
        ...

    def flow_of_view(self, name: str) -> str | None:
        """The flow that a view belongs to; for ``v$late``, that of ``v``."""
        ...

    def fingerprints(self, flow: str) -> dict[str, str]:
        """The plan fingerprint that the rows of each view of a flow come from."""
        ...

    def failures(self) -> dict[str, str]:
        """The flows that have stopped because they failed, and why."""
        ...

    def note_failure(self, flow: str, status: str | None) -> None:
        """Record why a flow has stopped; None: it runs again."""
        ...

    def kept_catalog(self) -> bytes | None:
        """The last saved catalog of SQL; None when there is none."""
        ...

    def keep_catalog(self, content: bytes) -> None:
        """Save the catalog of SQL, replacing the previous one."""
        ...

    def forget_view(self, name: str, flow: str) -> None:
        """Drop a view or sink of a flow (case-insensitive), with its rows, late records and panes. A later sink of the
        same name in this flow gets a new generation.
        """
        ...

    def forget_flow(self, flow: str) -> None:
        """Drop everything of a flow: its views, its epochs and its lease. Its generation remains and increases."""
        ...


class StoreFiles(Protocol):
    """What checkpoints need of the files."""

    def copied(self, to: Path, meanwhile: Callable[[], None]) -> None:
        """Copy the store to a new file, as of one epoch of every flow; no epoch is
        committed until `meanwhile` returns.
        """
        ...

    def close(self) -> None:
        """Close the files."""
        ...


class Store(EpochStore, QueryStore, TableStore, CatalogStore, StoreFiles, Protocol):
    """The complete contract."""
