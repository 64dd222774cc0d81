"""How operators take rows of a scan: which columns, which rows are late, and how rows are combined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from millstream.kernels.aggregates.partials import ORDER
from millstream.plan.operators.operator import Operator
from millstream.plan.parts import Feed


@dataclass(frozen=True)
class Role:
    """One operator that a scan feeds: the number of its view in the plan, the operator, its feed, and the watermark it
    works by.
    """

    view: int
    operator: Any
    feed: Feed
    watermark: int


@dataclass(frozen=True)
class ScanInput:
    """How an operator takes rows of a scan."""

    select: Callable[[pl.DataFrame, Role], pl.DataFrame]
    """The good rows of a scan as the operator takes them."""
    in_time: Callable[[pl.DataFrame, Role], tuple[pl.DataFrame, pl.Series | None]]
    """The rows that are not late, and which are (None: none)."""
    combine: Callable[[Any, pl.DataFrame], pl.DataFrame]
    """Rows combined as far as a part of the epoch allows."""
    gather: Callable[[Any, list[pl.DataFrame]], pl.DataFrame | None]
    """All that was taken in of an epoch, as the kernel takes it."""


def positions(rows: pl.DataFrame, role: Role) -> list[pl.Expr]:
    """The columns that rows are ordered by; where several feeds come together, the feed counts before the partition."""
    feeds = role.operator.feeds
    before = feeds.index(role.feed) << 20
    part = pl.col("$part") if len(feeds) == 1 else pl.col("$part").cast(pl.Int64) + before
    return [part.alias(c) if c == "$part" else pl.col(c) for c in ORDER if c in rows.columns]


def together(frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    """Frames of the same columns as one; None when there are none."""
    if not frames:
        return None
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical_relaxed")


def as_they_are(operator: Operator, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows that nothing combines."""
    del operator
    return rows
