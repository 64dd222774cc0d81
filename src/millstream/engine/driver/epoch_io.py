"""The input and output of an epoch, as values. Without Spark.

`runtime/` builds an `EpochInput`, the engine returns an `EpochOutput`, and `runtime/` commits it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa

from millstream.clock import BEGINNING
from millstream.connect.port import PartsWriter, SinkPart, SourceSlice
from millstream.kernels.intake import Tally
from millstream.state.version import Version

HotKeys = Mapping[str, Mapping[int, int]]
"""Step of a join -> hash of a hot key -> the side whose rows are spread over all shards."""


@dataclass(frozen=True)
class OperatorLoad:
    """How evenly the rows that an operator received in an epoch were spread over shards."""

    rows: int
    fullest: int
    """The rows of the shard with the most."""
    shards: int
    key: str | None = None
    """The values of the key with the most rows, if some key has many."""
    share: float = 0.0
    """Its part of all rows."""

    @property
    def skew(self) -> float:
        """The rows of the fullest shard over the mean."""
        return self.fullest * self.shards / self.rows if self.rows else 1.0


@dataclass(frozen=True)
class EpochInput:
    """Everything an epoch depends on in addition to the plan and the state. It is fixed and recorded before any
    work.
    """

    number: int
    slices: Mapping[str, SourceSlice]
    now: int
    watermarks: Mapping[str, int]
    before: Mapping[str, int]
    """The watermarks of the previous epoch."""
    tables: Mapping[str, Path] = field(default_factory=dict)
    attempt: int = 0
    replay: Replay | None = None
    since: int = BEGINNING
    """The processing time of the previous epoch."""
    fractions: Mapping[str, Mapping[float, int]] = field(default_factory=dict)
    """source -> fraction of its records -> its watermark, for the fractions that triggers wait for."""
    newest: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """source -> partition -> newest event time before this epoch, for sources whose disorder is measured."""
    without: Mapping[str, Sequence[tuple[int, int, str]]] = field(default_factory=dict)
    """source -> poison records, which are quarantined as errors: partition, position and reason."""
    only: Mapping[str, Sequence[tuple[int, int, int]]] | None = None
    """source -> the only records to read: partition, first and last position. Used to search for poison records."""
    hot: HotKeys = field(default_factory=dict)
    """The hot keys of joins. Results do not depend on them."""
    parts: Mapping[str, PartsWriter] = field(default_factory=dict)
    """view -> how tasks write its changes to its sink, if they can. A large epoch then returns `parts` of it in place
    of `changes`.
    """


@dataclass(frozen=True)
class Replay:
    """Late records to apply to their view: their times, and the slices that hold the complete history."""

    view: str
    times: Sequence[int]
    history: Mapping[str, SourceSlice]


@dataclass
class EpochOutput:
    """The output of an epoch, to be committed as a whole."""

    version: Version
    changes: dict[str, pa.Table] = field(default_factory=dict)
    """view -> all changes, in order."""
    parts: dict[str, Sequence[SinkPart]] = field(default_factory=dict)
    """view -> what tasks have written of its changes to its sink, in order. Such a view has no `changes`."""
    stored: dict[str, pa.Table] = field(default_factory=dict)
    """view -> the net effect of the changes, at most one per row of the view."""
    panes: dict[str, pa.Table] = field(default_factory=dict)
    errors: dict[str, pa.Table] = field(default_factory=dict)
    mended: dict[str, pa.Table] = field(default_factory=dict)
    """view -> errors of earlier epochs to retract."""
    late: dict[str, pa.Table] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    """view -> rows that an expression or user code failed on, without those whose error was retracted."""
    replayed: pa.Table | None = None
    """The rows that a view must show for the windows into which late records were replayed."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    filtered: dict[str, int] = field(default_factory=dict)
    """view -> good rows that its condition filtered out."""
    placements: dict[int, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    hot: HotKeys = field(default_factory=dict)
    """The hot keys of joins, for the next epoch."""
    loads: dict[str, OperatorLoad] = field(default_factory=dict)
    """view -> how evenly the rows of its operator were spread over shards, if it ran on the executors."""

    @property
    def changed(self) -> dict[str, int]:
        """By view with changes: their number."""
        rows = {name: table.num_rows for name, table in self.changes.items()}
        return rows | {name: sum(p.rows for p in parts) for name, parts in self.parts.items()}


def polars(table: pa.Table) -> pl.DataFrame:
    """Convert an Arrow table to a Polars frame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
