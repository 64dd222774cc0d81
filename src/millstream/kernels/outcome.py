"""The values that kernels receive and return: the operator's clock, its states, and the outcome of an epoch.

The engine builds the clock and opens the states. It writes the rows of an `Outcome` to state and passes the changes to
the view and to downstream operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import polars as pl

from millstream.clock import BEGINNING, Micros
from millstream.model.reserved import OP
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.operators.operator import Operator

EPOCH_ROWS = 1 << 32
"""How many numbers an epoch has for the rows that arrive in it."""

BEHIND = "behind the watermark"
FINISHED = "the trigger of its window has finished"
NO_WINDOW = "it belongs to no window"
NOT_HELD = "the record that it deletes is not held"

DUE_BY_WATERMARK: Final = "$wd"
"""The state column with the watermark at which a row must be processed next."""
DUE_BY_FRACTION: Final = "$fd"
"""The same for the watermark for a fraction of the data."""
DUE_BY_CLOCK: Final = "$pd"
"""The same for the processing time."""


class State(Protocol):
    """One state of an operator as a kernel sees it (implemented in `state/shard.py`)."""

    def lookup(self, hashes: np.ndarray, after: Micros) -> pl.DataFrame | None:
        """The rows for these hashes that expire after an instant."""
        ...

    def scan(self, after: Micros) -> pl.DataFrame | None:
        """All rows that expire after an instant."""
        ...

    def first(self) -> Micros:
        """The earliest expiry of any row."""
        ...

    def due(self, columns: Mapping[str, tuple[int, int]], after: Micros) -> np.ndarray:
        """The sorted hashes of rows that have a number in one of these columns within its range. A range excludes its
        first number and includes its second. Rows that have been replaced count too.
        """
        ...


@dataclass(frozen=True)
class OperatorClock:
    """The clock of an operator: the watermarks of the previous and the current epoch, and the processing time."""

    before: Micros
    watermark: Micros
    now: Micros = 0
    fractions: Mapping[float, Micros] = field(default_factory=dict)
    """The watermarks for fractions of the data."""
    since: Micros = BEGINNING
    """The processing time of the previous epoch."""
    epoch: int = 0
    """The number of the epoch."""
    newest: Micros = BEGINNING
    """The newest event time among the records of the epoch."""
    begins: bool = False
    """Whether the operator must emit its first result row now: it is never empty, it has no row yet, and it has no
    input. Such an operator runs in one shard.
    """
    shard: int = 0
    """The shard that the kernel runs for, of `shards`."""
    shards: int = 1
    hashes: tuple[int, int] | None = None
    """The first and last key hash of that shard; None if the operator runs in one shard."""

    @classmethod
    def of(
        cls,
        operator: Operator,
        before: Mapping[str, Micros],
        watermarks: Mapping[str, Micros],
        now: Micros,
        fractions: Mapping[str, Mapping[float, int]],
        since: Micros = BEGINNING,
    ) -> OperatorClock:
        """Compute the clock of an operator from the watermarks (and fraction watermarks) of the sources that
        feed it.
        """
        sources = operator.sources
        if not sources:  # rows of a stored table have no event time
            return cls(BEGINNING, BEGINNING, now, {}, since)
        watermark = min(watermarks[s] for s in sources)
        shares = {f: min(fractions.get(s, {}).get(f, watermark) for s in sources) for f in operator.fractions}
        return cls(min(before[s] for s in sources), watermark, now, shares, since)

    def row_numbers(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Pairs of numbers for rows that arrive in this epoch and shard. Pairs are unique over epochs and shards. The
        second number is 0, unless the shard has more rows than its part of the numbers of an epoch.
        """
        most = EPOCH_ROWS // self.shards
        number = np.arange(count, dtype=np.int64)
        first = self.epoch * EPOCH_ROWS + np.where(number < most, self.shard * most, 0) + number
        return first, np.where(number < most, 0, self.shard + 1)

    @property
    def latest(self) -> Micros:
        """The greatest of all watermarks."""
        return max(self.watermark, *self.fractions.values()) if self.fractions else self.watermark

    @property
    def earliest(self) -> Micros:
        """The least of the fraction watermarks. None of them lags the watermark for all data."""
        return max(self.watermark, min(self.fractions.values(), default=self.watermark))

    def horizon(self, spec: Aggregation) -> Micros:
        """Windows that end at or before this instant accept no more records."""
        return self.watermark - spec.windowing.lateness.micros


class Dropped(NamedTuple):
    """Records that a kernel could not accept: those of a key (by hash) from `start` inclusive to `end` exclusive."""

    hash: int
    start: int
    end: int
    reason: str
    window_end: int
    rows: int
    place: tuple[int, int] | None = None
    """Partition and offset, if this is a single record."""


class StateRows(NamedTuple):
    """Rows for a state to keep, and the expiry of each."""

    rows: pl.DataFrame
    expiry: np.ndarray


class Failure(NamedTuple):
    """A row that user code failed on: the reason, and the row as JSON."""

    reason: str
    record: str


@dataclass(frozen=True)
class Outcome:
    """The result of one epoch of one operator."""

    changes: pl.DataFrame | None = None
    state_rows: Mapping[str, StateRows] = field(default_factory=dict)
    """The rows to write, by state."""
    panes: pl.DataFrame | None = None
    dropped: Sequence[Dropped] = ()
    """Records that the operator could not accept."""
    failures: Sequence[Failure] = ()
    """Rows that user code failed on, to be quarantined."""
    skipped: int = 0
    """The number of rows skipped because user code failed on them."""


def keeping(changes: pl.DataFrame | None, **states: pl.DataFrame | None) -> Outcome:
    """Build an outcome whose state rows hold their expiry in ``$x``."""
    state_rows = {
        n: StateRows(rows, rows["$x"].to_numpy()) for n, rows in states.items() if rows is not None and len(rows)
    }
    return Outcome(changes if changes is not None and len(changes) else None, state_rows)


def due_columns(clock: OperatorClock) -> dict[str, tuple[int, int]]:
    """The columns that decide when the pane kernel must process a row, with the range that is due in this epoch. A
    range excludes its first number, which earlier epochs have covered, and includes its second.
    """
    return {
        DUE_BY_WATERMARK: (clock.before, clock.watermark),
        DUE_BY_FRACTION: (clock.before, clock.latest),
        DUE_BY_CLOCK: (clock.since, clock.now),
    }


def net(changes: pl.DataFrame, identity: Sequence[str]) -> pl.DataFrame:
    """Reduce a series of changes to their net effect: at most one change per row of a view."""
    numbered = changes.with_row_index("$at")
    by: list[Any] = list(identity) or [pl.lit(0).alias("$one")]
    ends = numbered.group_by(by, maintain_order=True).agg(
        pl.col(OP).first().alias("$first"), pl.col(OP).last().alias("$last"), pl.col("$at").last()
    )
    there = ~pl.col("$last").is_in(["-D", "-U"])
    new = pl.col("$first") == "+I"
    op = pl.when(there & new).then(pl.lit("+I")).when(there).then(pl.lit("+U")).otherwise(pl.lit("-D"))
    last = ends.filter(there | ~new).select("$at", op.alias("$op")).sort("$at")
    chosen = changes[last["$at"]]
    return chosen.with_columns(last["$op"].alias(OP))
