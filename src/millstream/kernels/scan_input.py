"""How operators read rows of a scan: which columns they select, which rows are late, and how rows are combined.

`kernels/intake.py` applies a `ScanInput` to the rows of a scan and hands the result to the operator's kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from millstream.clock import Micros
from millstream.kernels.aggregates.partials import ORDER
from millstream.plan.operators.operator import Operator
from millstream.plan.parts import Feed


@dataclass(frozen=True)
class Role:
    """One operator that a scan feeds: the number of its view in the plan, the operator, its feed, and its watermark."""

    view: int
    operator: Any
    feed: Feed
    watermark: Micros


@dataclass(frozen=True)
class ScanInput:
    """The functions with which an operator reads rows of a scan."""

    select: Callable[[pl.DataFrame, Role], pl.DataFrame]
    """Select the columns of the operator from the good rows of a scan."""
    in_time: Callable[[pl.DataFrame, Role], tuple[pl.DataFrame, pl.Series | None]]
    """Split off late rows: the rows in time, and a mask of the late ones (None: there are none)."""
    combine: Callable[[Any, pl.DataFrame], pl.DataFrame]
    """Combine rows as far as one part of the epoch allows."""
    gather: Callable[[Any, list[pl.DataFrame]], pl.DataFrame | None]
    """Combine all parts of the epoch into the input of the kernel."""


def positions(rows: pl.DataFrame, role: Role) -> list[pl.Expr]:
    """The columns that order rows. If several feeds are merged, the feed counts before the partition."""
    feeds = role.operator.feeds
    before = feeds.index(role.feed) << 20
    part = pl.col("$part") if len(feeds) == 1 else pl.col("$part").cast(pl.Int64) + before
    return [part.alias(c) if c == "$part" else pl.col(c) for c in ORDER if c in rows.columns]


def as_they_are(operator: Operator, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows uncombined."""
    del operator
    return rows
