"""How aggregations read rows of a scan: selects keys, arguments and windows, and combines rows into partials.

`kernels/intake.py` calls these functions; `kernels/aggregates/aggregation.py` receives the partials.
"""

from __future__ import annotations

import polars as pl

from millstream.kernels.aggregates.combine import combine, fold, group_columns
from millstream.kernels.aggregates.partials import is_exact
from millstream.kernels.frames import concat_rows
from millstream.kernels.scan_input import Role, ScanInput, positions
from millstream.kernels.windows import assign, late_rows
from millstream.model.windows.kinds import SessionWindow
from millstream.plan.operators.aggregates.aggregation import Aggregation


def _select(rows: pl.DataFrame, role: Role) -> pl.DataFrame:
    feed, operator = role.feed, role.operator
    selected = rows if feed.keep is None or operator.corrected else rows.filter(pl.col(feed.keep))
    keys = [pl.col(c).alias(n) for c, n in zip(feed.columns, operator.keys, strict=False)]
    with_argument = [m for m in operator.measures if m.has_argument]
    arguments = [
        pl.col(c).alias(f"@{m.name}") for c, m in zip(feed.columns[len(operator.keys) :], with_argument, strict=True)
    ]
    order = positions(selected, role)
    gap = [pl.col(feed.gap).alias("$gap")] if feed.gap else []
    if operator.corrected:
        gap += _revisions(selected, role)
    return selected.select(
        pl.col(feed.hash).alias("$h"), pl.col(feed.slice).alias("$s"), *gap, *order, *keys, *arguments
    )


def _revisions(rows: pl.DataFrame, role: Role) -> list[pl.Expr]:
    """Which record a row revises, and how (see `kernels/windows/corrections.py`). A row of a source without corrections
    revises none.
    """
    feed = role.feed
    if "$key" in rows.columns:
        columns = [pl.col(c) for c in ("$kh", "$key", "$ver")]
        does = pl.col("$del").cast(pl.Int8)
    else:
        place = pl.concat_str(pl.lit(feed.source), "$part", "$pos", separator=" ")
        columns = [pl.col(feed.hash).alias("$kh"), place.alias("$key"), pl.lit(None, pl.Int64).alias("$ver")]
        does = pl.lit(0, pl.Int8)
    if feed.keep is not None:
        dropped = (does == 0) & ~pl.col(feed.keep).fill_null(value=False)
        does = pl.when(dropped).then(pl.lit(2, pl.Int8)).otherwise(does)
    return [*columns, does.alias("$del")]


def _in_time(rows: pl.DataFrame, role: Role) -> tuple[pl.DataFrame, pl.Series | None]:
    if role.operator.corrected:  # a lookup of its record decides whether a correction is late
        return rows, None
    return late_rows.in_time(role.operator, rows, role.watermark)


def _combines(operator: Aggregation) -> bool:
    """Whether rows may be combined piece by piece."""
    return not operator.keeps_records and all(is_exact(m) for m in operator.measures)


def _combine(operator: Aggregation, rows: pl.DataFrame) -> pl.DataFrame:
    return combine(operator, rows) if _combines(operator) else rows


def gather(operator: Aggregation, frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    """One partial row per key and slice from all parts of the epoch; rows, if the operator keeps single rows."""
    rows = concat_rows(frames)
    if rows is None or operator.keeps_records:
        return rows
    if not _combines(operator):
        return combine(operator, rows)
    if len(frames) == 1:
        return rows
    if isinstance(operator.window, SessionWindow):
        rows = assign.sessions(rows, operator.keys)
    return fold(operator, rows, group_columns(operator))


SCAN_INPUT = ScanInput(_select, _in_time, _combine, gather)
