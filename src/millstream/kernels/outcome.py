"""What a kernel works with and gives: the clock of its operator, its states, and the outcome of an epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl

from millstream.clock import BEGINNING
from millstream.model.reserved import OP
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.operators.operator import Operator

BEHIND = "behind the watermark"
FINISHED = "the trigger of its window has finished"
NO_WINDOW = "it belongs to no window"
NOT_HELD = "the record that it deletes is not held"


class State(Protocol):
    """State of one step as a kernel sees it (see `state/shard.py`)."""

    def lookup(self, hashes: np.ndarray, after: int) -> pl.DataFrame | None:
        """The rows for these hashes that expire after an instant."""
        ...

    def scan(self, after: int) -> pl.DataFrame | None:
        """All rows that expire after an instant."""
        ...

    def first(self) -> int:
        """The instant at which the first row expires."""
        ...

    def due(self, columns: Mapping[str, tuple[int, int]], after: int) -> np.ndarray:
        """The hashes, sorted, of rows (replaced ones among them) with a number in one of these columns that is above
        the first of those given, and not above the second.
        """
        ...


@dataclass(frozen=True)
class StageClock:
    """The clock an operator works by: the watermark of the epoch before and of this one, and the processing time."""

    before: int
    watermark: int
    now: int = 0
    fractions: Mapping[float, int] = field(default_factory=dict)
    """The watermarks for fractions of the data."""
    since: int = BEGINNING
    """The processing time of the epoch before."""
    epoch: int = 0
    """The number of the epoch."""
    newest: int = BEGINNING
    """The newest event time among the records of the epoch."""

    @classmethod
    def of(
        cls,
        operator: Operator,
        before: Mapping[str, int],
        watermarks: Mapping[str, int],
        now: int,
        fractions: Mapping[str, Mapping[float, int]],
        since: int = BEGINNING,
    ) -> StageClock:
        """The clock of an operator from those of the sources (and of fractions of their records) that feed it."""
        sources = operator.sources
        if not sources:  # rows of a stored table have no time
            return cls(BEGINNING, BEGINNING, now, {}, since)
        watermark = min(watermarks[s] for s in sources)
        shares = {f: min(fractions.get(s, {}).get(f, watermark) for s in sources) for f in operator.fractions}
        return cls(min(before[s] for s in sources), watermark, now, shares, since)

    @property
    def latest(self) -> int:
        """The greatest of all watermarks."""
        return max(self.watermark, *self.fractions.values()) if self.fractions else self.watermark

    @property
    def earliest(self) -> int:
        """The least of all watermarks for fractions; none of them is behind the one for all."""
        return max(self.watermark, min(self.fractions.values(), default=self.watermark))

    def horizon(self, spec: Aggregation) -> int:
        """Windows that end up to here take no more records."""
        return self.watermark - spec.windowing.lateness.micros


class Dropped(NamedTuple):
    """Records that a kernel could not take: those of a key (by hash) from `start` until before `end`."""

    hash: int
    start: int
    end: int
    reason: str
    window_end: int
    rows: int
    place: tuple[int, int] | None = None
    """Partition and offset, where it is one record."""


class Kept(NamedTuple):
    """Rows that a state has to keep, and when each may be forgotten."""

    rows: pl.DataFrame
    expiry: np.ndarray


class Failure(NamedTuple):
    """A row that user code failed on: why, and the row as JSON."""

    reason: str
    record: str


@dataclass(frozen=True)
class Outcome:
    """What an epoch did to one operator."""

    changes: pl.DataFrame | None = None
    kept: Mapping[str, Kept] = field(default_factory=dict)
    """By state: the rows to write."""
    panes: pl.DataFrame | None = None
    dropped: Sequence[Dropped] = ()
    """Records that the operator could not take."""
    failures: Sequence[Failure] = ()
    """Rows that user code failed on, to be quarantined."""
    skipped: int = 0
    """How many rows were left out because user code failed on them."""


def keeping(changes: pl.DataFrame | None, **states: pl.DataFrame | None) -> Outcome:
    """An outcome whose rows of state hold their expiry in ``$x``."""
    kept = {n: Kept(rows, rows["$x"].to_numpy()) for n, rows in states.items() if rows is not None and len(rows)}
    return Outcome(changes if changes is not None and len(changes) else None, kept)


def due_columns(clock: StageClock) -> dict[str, tuple[int, int]]:
    """By which columns rows of the pane kernel must be looked at: when one is above the first number and not above the
    second. (What was due before was looked at before.)
    """
    return {
        "$wd": (clock.before, clock.watermark),
        "$fd": (clock.before, clock.latest),
        "$pd": (clock.since, clock.now),
    }


def net(changes: pl.DataFrame, identity: Sequence[str]) -> pl.DataFrame:
    """What a series of changes comes to for each row of a view: one change, or none."""
    numbered = changes.with_row_index("$at")
    by: list[Any] = list(identity) or [pl.lit(0).alias("$one")]
    ends = numbered.group_by(by, maintain_order=True).agg(
        pl.col(OP).first().alias("$first"), pl.col(OP).last().alias("$last"), pl.col("$at").last()
    )
    there = ~pl.col("$last").is_in(["-D", "-U"])
    new = pl.col("$first") == "+I"
    op = pl.when(there & new).then(pl.lit("+I")).when(there).then(pl.lit("+U")).otherwise(pl.lit("-D"))
    kept = ends.filter(there | ~new).select("$at", op.alias("$op")).sort("$at")
    chosen = changes[kept["$at"]]
    return chosen.with_columns(kept["$op"].alias(OP))


def together(frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    """The frames as one; None when there is nothing in them."""
    filled = [f for f in frames if len(f)]
    return pl.concat(filled, how="vertical_relaxed") if filled else None
