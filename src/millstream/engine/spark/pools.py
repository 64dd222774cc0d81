"""Pools of Spark's fair scheduler: epochs come first, merges of state take what they leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPACTION = "compaction"

ALLOCATIONS = f"""<?xml version="1.0"?>
<allocations>
  <pool name="default"><schedulingMode>FIFO</schedulingMode><weight>1000</weight></pool>
  <pool name="{COMPACTION}"><schedulingMode>FIFO</schedulingMode><weight>1</weight></pool>
</allocations>
"""
"""A free slot goes to the pool with the fewest running tasks for its weight. So a merge has one slot, however many
tasks of epochs wait, and more only if they leave them. Jobs without a pool, those of epochs, are in `default`, in the
order in which they were started.
"""

_POOL = "spark.scheduler.pool"


@contextmanager
def in_pool(spark: SparkSession, pool: str, tag: str) -> Iterator[None]:
    """Run the jobs of this thread in a pool, with a tag by which they can be cancelled."""
    context = spark.sparkContext
    context.setLocalProperty(_POOL, pool)
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)
        context.setLocalProperty(_POOL, None)  # type: ignore[arg-type]
