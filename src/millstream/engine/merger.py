"""Merges runs of state on the executors: one Spark job per merge, beside the jobs of epochs.

The job is in a pool of the fair scheduler with a low weight, so that epochs do not wait for it: while an epoch has
tasks waiting, a merge has one task slot. `runtime/epoch/compactor.py` calls it from its own thread.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.engine.exchange import job
from millstream.engine.spark.cluster import is_local, parallelism
from millstream.engine.spark.errors import translated
from millstream.engine.spark.pools import COMPACTION, in_pool
from millstream.engine.tasks.merge_task import MergeTask, merged_runs
from millstream.errors import EngineFailed
from millstream.state.compaction import RunMerge
from millstream.state.run import StateRun
from millstream.state.shard import KEY_GROUPS
from millstream.state.storage import Storage

LOCAL_ROWS = 4_000_000
"""On one machine, the tasks of a merge and the driver share its cores: only a merge of more rows is worth a job."""
PART_ROWS = 1_000_000
"""About how many rows a task merges."""


class SparkMerger:
    """Merges the runs of one flow."""

    def __init__(self, spark: SparkSession, state: Storage, log: Path | None = None) -> None:
        self._spark, self._state, self._log = spark, state, log
        self._tag = f"millstream-merge-{uuid.uuid4().hex}"
        self._ended = self._running = False

    def takes(self, merge: RunMerge) -> bool:
        """On a cluster, all merges that do not run at once; else large ones."""
        return merge.rows > LOCAL_ROWS or not is_local(str(self._spark.sparkContext.master))

    def merged(self, merge: RunMerge) -> Sequence[StateRun]:
        """Perform a merge: a task per range of hashes."""
        parts = min(KEY_GROUPS, max(parallelism(self._spark), -(-merge.rows // PART_ROWS)))
        with translated(self._log), in_pool(self._spark, COMPACTION, self._tag):
            self._running = True
            try:
                if self._ended:
                    raise EngineFailed("the merge was cancelled: its flow has ended")
                return merged_runs(job.merged(self._spark, MergeTask(merge, parts, self._state)))
            finally:
                self._running = False

    def cancel(self) -> None:
        """Cancel the running job. Its tasks end soon after."""
        self._ended = True
        if self._running:
            with suppress(Exception):  # if Spark has ended, its jobs have too
                self._spark.sparkContext.cancelJobsWithTag(self._tag)
