"""Queries the history of sources: a Spark batch query over everything that they hold. `live/inspect.py` gets the
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import sleep
from uuid import uuid4

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from millstream.connect.port import SourcePort, SourceSlice
from millstream.engine.input import prelude
from millstream.engine.input.readers.slices import read
from millstream.engine.spark.errors import translated
from millstream.engine.spark.frames import collected
from millstream.engine.spark.session import end
from millstream.limits import Limits, Watch, too_large
from millstream.plan.plan import Plan, PlannedSource

HistorySources = Mapping[str, tuple[PlannedSource, SourcePort, SourceSlice, Plan]]
"""By name: a source, its port, the slice that holds all of it, and the plan of a view over all of its columns."""


_LOOKS, _PAUSE = 20, 0.25
"""How often to check for cancelled tasks, and the seconds in between."""


def answered(spark: SparkSession, sources: HistorySources, sql: str, now: int, log: Path, limits: Limits) -> pa.Table:
    """The result of a query (checked before) over temporary views with these names."""
    with translated(log):
        try:
            for name, (source, port, part, plan) in sources.items():
                view = plan.views[0]
                (feed,) = view.operator.feeds
                scan = next(s for s in plan.scans if s.id == feed.scan)
                frame = read(spark, source, port, part, now, strict=True).frame
                frame = prelude.columns(prelude.through(frame, scan, source, {}, now), scan)
                good = frame.where("`$bad` = 0") if "$bad" in frame.columns else frame
                shown = zip(feed.columns, view.columns, strict=True)
                good.selectExpr(*(f"`{c}` AS `{n}`" for c, n in shown)).createOrReplaceTempView(name)
            return _within(spark, sql, limits)
        finally:
            with suppress(Exception):  # the process may have ended
                for name in sources:
                    spark.catalog.dropTempView(name)


def _has_stopped(context: SparkContext, group: str) -> bool:
    """Whether the tasks of cancelled jobs have ended. A task in a long loop does not notice the cancellation and would
    occupy a core permanently.
    """
    tracker = context.statusTracker()
    infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [f" in stage {stage}." for info in infos if info is not None for stage in info.stageIds]
    for _ in range(_LOOKS):
        threads = context._jvm.java.lang.Thread.getAllStackTraces().keySet().toString()  # type: ignore[union-attr]
        if not any(stage in threads for stage in stages):
            return True
        sleep(_PAUSE)
    return False


def _within(spark: SparkSession, sql: str, limits: Limits) -> pa.Table:
    """Run a query within limits: jobs that take too long are cancelled, and a result that is too large is not
    fetched.
    """
    context, group = spark.sparkContext, f"question-{uuid4().hex}"
    context.setLocalProperty("spark.jobGroup.id", group)
    context.setLocalProperty("spark.job.interruptOnCancel", "true")
    try:
        with Watch(limits, lambda: context.cancelJobGroup(group)) as watch:
            try:
                return collected(spark.sql(sql))
            except Exception as error:
                if "spark.driver.maxResultSize" in str(error):
                    raise too_large(limits) from None
                reason = watch.reason
                if reason is None:
                    raise
        if not _has_stopped(context, group):
            end()
            reason.detail = "Spark's Java process was ended to stop it; flows are started again by themselves"
        raise reason
    finally:
        with suppress(Exception):
            for name in ("spark.jobGroup.id", "spark.job.interruptOnCancel"):
                context.setLocalProperty(name, None)  # type: ignore[arg-type]
