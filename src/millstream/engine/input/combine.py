"""Native combining: Spark's own groupBy builds the partials, if a scan feeds only one exact aggregation.

Rows that the operator does not keep fall into separate groups, so the same pass also counts every row and finds the
newest event time. The result has the form of `kernels/intake.py`.
"""

from __future__ import annotations

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.kernels.aggregates.combine import fold, group_columns, in_order
from millstream.kernels.aggregates.partials import PARTIALS, is_exact
from millstream.kernels.aggregates.sketches import SKETCHES
from millstream.kernels.intake import Intake, Tally
from millstream.kernels.scan_input import Role
from millstream.kernels.windows import assign, late_rows

_BAD, _FILTERED = -(2**63) + 1, -(2**63) + 2


def fits(roles: list[Role]) -> bool:
    """Whether Spark can combine for this scan as exactly as the kernels."""
    if len(roles) != 1 or not roles[0].operator.keyed_scan:
        return False
    operator = roles[0].operator
    if operator.corrected or not assign.by_slices(operator):
        return False
    return all(is_exact(m) and PARTIALS[m.kind].native is not None for m in operator.measures)


def combined(frame: DataFrame, role: Role, *, partitioned: bool) -> DataFrame:
    """The scan's columns, combined: one row per kept key and slice, one for errors, one for filtered rows.

    Impossible slices mark the last two, which costs less than another grouping column. `partitioned`: rows are counted
    per partition of the source.
    """
    operator = role.operator
    feed = role.feed
    kept = "`$bad` = 0" + (f" AND coalesce(`{feed.keep}`, false)" if feed.keep else "")
    others = f"WHEN NOT coalesce(`{feed.keep}`, false) THEN {_FILTERED}L" if feed.keep else ""
    places = feed.columns[: len(operator.keys)]
    group = [F.expr(f"CASE WHEN `$bad` <> 0 THEN {_BAD}L {others} ELSE `{feed.slice}` END").alias("$s")]
    group += [F.expr(f"IF({kept}, `{c}`, NULL)").alias(n) for c, n in zip(places, operator.keys, strict=True)]
    if partitioned:
        group.append(F.col("$part"))
    columns = iter(feed.columns[len(operator.keys) :])
    partials = []
    for measure in operator.measures:
        native = PARTIALS[measure.kind].native
        assert native is not None
        argument = f"`{next(columns)}`" if measure.has_argument else ""
        partials += [F.expr(sql).alias(name) for name, sql in native(measure, argument)]
    marks = [F.max("$mark").alias("$mark")] if "$mark" in frame.columns else []
    rows = frame.groupBy(*group).agg(F.count(F.lit(1)).alias("$n"), F.max("$ts").alias("$newest"), *marks, *partials)
    hashed = f"xxhash64({', '.join(f'`{n}`' for n in operator.keys)})" if operator.keys else "0L"
    return rows.withColumn("$h", F.expr(hashed))


def taken_in(rows: pl.DataFrame, role: Role, future: int) -> Intake | None:
    """The same result as `take_in`; None if rows from the future must be separated one by one."""
    operator = role.operator
    good = rows.filter(pl.col("$s") != _BAD)
    partition = pl.col("$part") if "$part" in rows.columns else pl.lit(0).alias("$part")
    newest = good.group_by(partition).agg(pl.col("$newest").max())
    times = dict(zip(newest["$part"].to_list(), newest["$newest"].to_list(), strict=True))
    if any(t > future for t in times.values()):
        return None
    if "$mark" in rows.columns:
        marked = good.group_by(partition).agg(pl.col("$mark").max()).drop_nulls()
        times = dict(zip(marked["$part"].to_list(), marked["$mark"].to_list(), strict=True))
    counted, healthy = int(rows["$n"].sum()), int(good["$n"].sum())
    intake = Intake(Tally(counted, counted - healthy, 0, times))
    kept = good.filter(pl.col("$s") != _FILTERED)
    intake.filtered[role.view] = healthy - int(kept["$n"].sum())
    in_time, late = late_rows.in_time(operator, kept, role.watermark)
    if late.any():
        intake.late[role.view] = int(kept.filter(late)["$n"].sum())
    kept = in_time
    intake.applied[role.view] = int(kept["$n"].sum())
    if len(kept):
        by = group_columns(operator)
        partials = in_order(operator, kept, by)
        sketched = any(m.kind in SKETCHES for m in operator.measures)  # Spark's bytes contain more than ours
        intake.frames[role.view] = [fold(operator, partials, by) if sketched or "$part" in kept.columns else partials]
    return intake
