"""The history of sources: a batch query of Spark over all that they hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from millstream.connect.port import SourcePort, SourceSlice
from millstream.engine import prelude
from millstream.engine.errors import translated
from millstream.engine.readers import read
from millstream.limits import Limits, Watch, too_large
from millstream.plan.stages import Plan, SourceStage

Given = Mapping[str, tuple[SourceStage, SourcePort, SourceSlice, Plan]]
"""By name: a source, its port, the slice that holds all of it, and the plan of a view over all of its columns."""


def answered(spark: SparkSession, given: Given, sql: str, now: int, log: Path, limits: Limits) -> pa.Table:
    """The answer to a question (checked before) over temporary views of these names."""
    with translated(log):
        try:
            for name, (source, port, part, plan) in given.items():
                view = plan.views[0]
                (feed,) = view.stage.feeds
                scan = next(s for s in plan.scans if s.id == feed.scan)
                frame = read(spark, source, port, part, now, strict=True).frame
                frame = prelude.columns(prelude.through(frame, scan, source, {}, now), scan)
                good = frame.where("`$bad` = 0") if "$bad" in frame.columns else frame
                shown = zip(feed.columns, view.columns, strict=True)
                good.selectExpr(*(f"`{c}` AS `{n}`" for c, n in shown)).createOrReplaceTempView(name)
            return _within(spark, sql, limits)
        finally:
            for name in given:
                spark.catalog.dropTempView(name)


def _within(spark: SparkSession, sql: str, limits: Limits) -> pa.Table:
    """Answer within limits: jobs that take too long are cancelled, and an answer that is too large is not fetched."""
    context, group = spark.sparkContext, f"question-{uuid4().hex}"
    context.setLocalProperty("spark.jobGroup.id", group)
    context.setLocalProperty("spark.job.interruptOnCancel", "true")
    try:
        with Watch(limits, lambda: context.cancelJobGroup(group)) as watch:
            try:
                return spark.sql(sql).toArrow()
            except Exception as error:
                if watch.reason is not None:
                    raise watch.reason from None
                if "spark.driver.maxResultSize" in str(error):
                    raise too_large(limits) from None
                raise
    finally:
        for name in ("spark.jobGroup.id", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]
