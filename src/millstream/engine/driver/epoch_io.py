"""What an epoch depends on and what it gives, as values. Without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa

from millstream.clock import BEGINNING
from millstream.connect.port import SourceSlice
from millstream.kernels.intake import Tally
from millstream.state.version import Version


@dataclass(frozen=True)
class EpochInput:
    """Everything an epoch depends on besides the plan and the state: fixed and written down before any work."""

    number: int
    slices: Mapping[str, SourceSlice]
    now: int
    watermarks: Mapping[str, int]
    before: Mapping[str, int]
    """The watermarks of the epoch before."""
    tables: Mapping[str, Path] = field(default_factory=dict)
    attempt: int = 0
    replay: Replay | None = None
    since: int = BEGINNING
    """The processing time of the epoch before."""
    fractions: Mapping[str, Mapping[float, int]] = field(default_factory=dict)
    """source -> fraction of its records -> the watermark for it, for the fractions that triggers ask for."""
    newest: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """source -> partition -> newest event time before this epoch, for sources whose disorder is to be counted."""
    without: Mapping[str, Sequence[tuple[int, int, str]]] = field(default_factory=dict)
    """source -> poison records, which are set apart as errors: partition, position and reason."""
    only: Mapping[str, Sequence[tuple[int, int, int]]] | None = None
    """source -> the only records to take: partition, first and last position. For the search for poison records."""


@dataclass(frozen=True)
class Replay:
    """Late records to be taken into their view: their times, and the slices that hold all records there ever were."""

    view: str
    times: Sequence[int]
    history: Mapping[str, SourceSlice]


@dataclass
class EpochOutput:
    """What an epoch gave, to be committed as a whole."""

    version: Version
    changes: dict[str, pa.Table] = field(default_factory=dict)
    """view -> all changes, in order."""
    stored: dict[str, pa.Table] = field(default_factory=dict)
    """view -> what the changes come to, at most one per row of the view."""
    panes: dict[str, pa.Table] = field(default_factory=dict)
    errors: dict[str, pa.Table] = field(default_factory=dict)
    mended: dict[str, pa.Table] = field(default_factory=dict)
    """view -> errors of earlier epochs that are none any more."""
    late: dict[str, pa.Table] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    """view -> rows that an expression or user code failed on, without those whose error is over."""
    replayed: pa.Table | None = None
    """The rows that a view is to show of the windows that late records were replayed into."""
    tallies: dict[str, Tally] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    filtered: dict[str, int] = field(default_factory=dict)
    """view -> good rows that its condition left out."""
    placements: dict[int, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def polars(table: pa.Table) -> pl.DataFrame:
    """An Arrow table as a frame."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame
