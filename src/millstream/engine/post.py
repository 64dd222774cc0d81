"""Steps behind one that keeps state: where, select and with_columns over changes, in Spark SQL like all expressions."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from millstream.model.accumulation import Accumulation
from millstream.plan.stages import Aggregation, Project, ViewStage


def after(spark: Any, view: ViewStage, changes: pa.Table) -> pa.Table:
    """The changes of a view from the changes of its stage."""
    if view.post is None:
        return changes
    done = computed(spark, view.post, changes)
    if view.post.keep is None:
        return done
    return _paired(done, view.identity or (), retract=_retracts(view))


def computed(spark: Any, project: Project, changes: pa.Table) -> pa.Table:
    """The changes with other columns, those left out whose row is not kept."""
    frame = spark.createDataFrame(changes)
    if project.keep is not None:
        frame = frame.where(project.keep)
    return frame.selectExpr("op", *(f"{c.sql} AS `{c.name}`" for c in project.columns)).toArrow()


def _retracts(view: ViewStage) -> bool:
    stage = view.stage
    return not isinstance(stage, Aggregation) or stage.windowing.accumulation is Accumulation.RETRACTING


def _paired(changes: pa.Table, identity: tuple[str, ...], *, retract: bool) -> pa.Table:
    """An update whose other half was filtered away is an insert or a delete."""
    rows = pl.from_arrow(changes)
    assert isinstance(rows, pl.DataFrame)
    if not len(rows):
        return changes
    keys = list(identity)
    halves = pl.col("op").is_in(["-U"]).any(), pl.col("op").is_in(["+U"]).any()
    old, new = (h.over(keys) if keys else h for h in halves)
    op = (
        pl.when((pl.col("op") == "-U") & ~new)
        .then(pl.lit("-D"))
        .when((pl.col("op") == "+U") & ~old)
        .then(pl.lit("+I"))
        .otherwise(pl.col("op"))
    )
    paired = rows.with_columns(op.alias("op"))
    return (paired if retract else paired.filter(pl.col("op") != "-U")).to_arrow()
