"""Corrections: records that revise or delete earlier ones by key, and the recomputation of the windows over them.

Rows are kept individually under the hash of their key, as long as a window over them accepts records. A window that
contains an old or a new version of a record is recombined from all of its rows, which is correct for every aggregate.
The pane kernel receives the revised windows.

Columns of a row: ``$h`` hash and ``$key`` text of the record's key, ``$g`` hash of the group, ``$ver`` its version,
``$dead`` for a deleted record, and the columns of any row. In an arriving row, ``$del`` is the kind of revision.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from millstream.clock import BEGINNING, END_OF_TIME
from millstream.kernels.aggregates.combine import combine
from millstream.kernels.aggregates.partials import ORDER
from millstream.kernels.outcome import BEHIND, NOT_HELD, Dropped, OperatorClock, State
from millstream.kernels.windows import assign, late_rows
from millstream.kernels.windows.window_state import NEW_RECORDS
from millstream.plan.operators.aggregates.aggregation import Aggregation

UNIQUE = ("$h", "$key")
UPSERTS, DELETES, NOT_KEPT = 0, 1, 2
"""The effect of a record: it is a new version, it deletes its record, or the operator's condition filters it out."""


@dataclass
class Revised:
    """The result of an epoch: windows with their complete contents (``$n`` 0 for those that are empty now; ``$new``
    records that touched them), rows to keep, and records that could not be accepted.
    """

    contents: pl.DataFrame | None = None
    records: pl.DataFrame | None = None
    dropped: list[Dropped] = field(default_factory=list)


def revise(spec: Aggregation, records: State, clock: OperatorClock, arrivals: pl.DataFrame) -> Revised:
    """Apply records. Each is new, or a new version of a held record, or deletes one."""
    late, place = spec.windowing.lateness.micros, list(UNIQUE)
    arrivals = arrivals.rename({"$h": "$g", "$kh": "$h"}).with_columns(_ends(spec, arrivals).alias("$last"))
    order = ["$ver", *(c for c in ORDER[1:] if c in arrivals.columns)]
    newest = arrivals.sort(order, nulls_last=False, maintain_order=True).unique(
        "$key", keep="last", maintain_order=True
    )
    state_rows = records.scan(clock.before)
    alive = None if state_rows is None else state_rows.filter(pl.col("$x") > clock.before)
    old = None if alive is None else alive.join(newest, on=place, how="semi")
    newest, dropped = _refuse(newest, old, clock.watermark - late)
    if not len(newest):
        return Revised(dropped=dropped)
    written = _written(newest, old, late)
    touched = [written.filter(~pl.col("$dead"))]
    if old is not None:
        before = old.join(newest, on=place, how="semi").filter(~pl.col("$dead"))
        touched.append(before.select(written.columns))
    where = ["$h", "$s", "$e", *spec.keys]
    windows = _windows(spec, pl.concat(touched, how="vertical_relaxed")).filter(pl.col("$e") + late > clock.watermark)
    windows = windows.group_by(where).agg(pl.len().cast(pl.Int64).alias(NEW_RECORDS))
    now = written
    if alive is not None:
        others = alive.join(written, on=place, how="anti")
        now = pl.concat([others.select(written.columns), written], how="vertical_relaxed")
    groups = windows.select(pl.col("$h").alias("$g")).unique()
    rows = now.filter(~pl.col("$dead")).join(groups, on="$g", how="semi")
    inside = _windows(spec, rows).join(windows, on=where, how="semi", nulls_equal=True)
    contents = combine(spec, inside, where) if len(inside) else None
    return Revised(_with_empty(windows, contents, where), written, dropped)


def _ends(spec: Aggregation, rows: pl.DataFrame) -> pl.Series:
    ends = late_rows.last_ends(spec, rows.select("$s"))
    return ends.fill_null(BEGINNING)


def _refuse(newest: pl.DataFrame, old: pl.DataFrame | None, ended: int) -> tuple[pl.DataFrame, list[Dropped]]:
    """Drop versions that are older than the held one; quarantine records that arrive too late."""
    marked = newest.with_columns(pl.lit(None, pl.Int64).alias("$was"), pl.lit(value=False).alias("$there"))
    if old is not None and len(old):
        known = old.select("$key", pl.col("$ver").alias("$was"), (~pl.col("$dead")).alias("$there"))
        marked = newest.join(known, on="$key", how="left", maintain_order="left")
        marked = marked.with_columns(pl.col("$there").fill_null(value=False))
    marked = marked.filter(~(pl.col("$ver") <= pl.col("$was")).fill_null(value=False))
    versioned = pl.col("$ver").is_not_null()  # remembered even if the record does not exist
    marked = marked.filter((pl.col("$del") != NOT_KEPT) | pl.col("$there") | versioned)
    missing = (pl.col("$del") == DELETES) & ~pl.col("$there")
    behind = (pl.col("$del") == UPSERTS) & (pl.col("$last") <= ended)
    dropped = [
        Dropped(g, ts, ts + 1, reason, last, 1, (part, pos))
        for reason, rows in ((NOT_HELD, marked.filter(missing)), (BEHIND, marked.filter(behind)))
        for g, ts, last, part, pos in rows.select("$g", "$ts", "$last", "$part", "$pos").iter_rows()
    ]
    return marked.filter((~missing | versioned) & ~behind).drop("$was", "$there"), dropped


def _windows(spec: Aggregation, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows once per window, in ``$s`` and ``$e``, under the hash of their group."""
    grouped = rows.drop("$h").rename({"$g": "$h"})
    if assign.by_slices(spec):
        return assign.slices(spec, grouped, BEGINNING).drop("$slice")
    return assign.rows(spec, grouped)


def _written(newest: pl.DataFrame, old: pl.DataFrame | None, late: int) -> pl.DataFrame:
    """The rows for state. A version expires no earlier than the previous version would have."""
    rows = newest.with_columns(
        (pl.col("$del") != UPSERTS).alias("$dead"),
        pl.min_horizontal(pl.col("$last") + late, pl.lit(END_OF_TIME - 1)).alias("$x"),
        pl.lit(value=False).alias("$gone"),
    ).drop("$del", "$last")
    if old is not None and len(old):
        before = old.select(*UNIQUE, pl.col("$x").alias("$was"))
        rows = rows.join(before, on=list(UNIQUE), how="left", maintain_order="left")
        rows = rows.with_columns(pl.max_horizontal("$x", "$was").alias("$x")).drop("$was")
    return rows.select(sorted(rows.columns))


def _with_empty(windows: pl.DataFrame, contents: pl.DataFrame | None, where: list[str]) -> pl.DataFrame:
    if contents is None:
        return windows.with_columns(pl.lit(0, pl.Int64).alias("$n"))
    return windows.join(contents, on=where, how="left", nulls_equal=True, maintain_order="left").with_columns(
        pl.col("$n").fill_null(0)
    )
