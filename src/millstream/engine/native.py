"""Native combining: Spark's own groupBy makes the partials, where one exact aggregation is all that a scan feeds.

Rows that the stage does not keep fall into one group of their own, so the same pass also counts every row and finds the
newest event time; no second look at the data is needed.
"""

from __future__ import annotations

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.kernels.aggregate import late
from millstream.kernels.aggregates import PARTIALS, is_exact
from millstream.kernels.combine import group_columns, in_order
from millstream.kernels.intake import Intake, Role, Tally
from millstream.plan.stages import Aggregation


def fits(roles: list[Role]) -> bool:
    """Whether Spark can combine for this scan as exactly as the kernels would."""
    if len(roles) != 1 or not isinstance(roles[0].stage, Aggregation):
        return False
    return all(is_exact(m) and PARTIALS[m.kind].native is not None for m in roles[0].stage.measures)


def combined(frame: DataFrame, role: Role) -> DataFrame:
    """The scan's columns, combined: one row per kept key and slice, and one for all other rows."""
    stage = role.stage
    assert isinstance(stage, Aggregation)
    feed = role.feed
    kept = "`$bad` = 0" + (f" AND coalesce(`{feed.keep}`, false)" if feed.keep else "")
    places = feed.columns[: len(stage.keys)]
    marked = frame.withColumn("$kept", F.expr(kept))
    keys = [F.expr(f"IF(`$kept`, `{c}`, NULL)").alias(n) for c, n in zip(places, stage.keys, strict=True)]
    group = [F.col("$kept"), F.col("$part"), F.expr(f"IF(`$kept`, `{feed.slice}`, NULL)").alias("$s"), *keys]
    columns = iter(feed.columns[len(stage.keys) :])
    partials = []
    for measure in stage.measures:
        native = PARTIALS[measure.kind].native
        assert native is not None
        argument = f"`{next(columns)}`" if measure.has_argument else ""
        partials += [F.expr(sql).alias(name) for name, sql in native(measure, argument)]
    rows = marked.groupBy(*group).agg(
        F.count(F.lit(1)).alias("$n"),
        F.expr("max(IF(`$bad` = 0, `$ts`, NULL))").alias("$newest"),
        F.expr("count_if(`$bad` <> 0)").alias("$nbad"),
        *partials,
    )
    hashed = f"xxhash64({', '.join(f'`{n}`' for n in stage.keys)})" if stage.keys else "0L"
    return rows.withColumn("$h", F.expr(hashed))


def taken_in(rows: pl.DataFrame, role: Role, future: int) -> Intake | None:
    """What `take_in` would have given; None when rows from the future must be picked out one by one."""
    stage = role.stage
    assert isinstance(stage, Aggregation)
    newest = rows.filter(pl.col("$newest").is_not_null()).group_by("$part").agg(pl.col("$newest").max())
    times = dict(zip(newest["$part"].to_list(), newest["$newest"].to_list(), strict=True))
    if any(t > future for t in times.values()):
        return None
    intake = Intake(Tally(int(rows["$n"].sum()), int(rows["$nbad"].sum()), 0, times))
    kept = rows.filter(pl.col("$kept"))
    behind = late(stage, kept["$s"], role.watermark)
    if behind.any():
        intake.late[role.view] = int(kept.filter(behind)["$n"].sum())
        kept = kept.filter(~behind)
    intake.applied[role.view] = int(kept["$n"].sum())
    if len(kept):
        intake.frames[role.view] = [in_order(stage, kept, group_columns(stage))]
    return intake
