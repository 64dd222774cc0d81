"""Compacts state runs between epochs. `state/compaction.py` chooses the runs; the results are adopted between two
epochs.

Small merges run at once, larger ones in a thread: there in this process, or as tasks on the executors if the engine
takes them (`MergerPort`). A merge belongs to a version only once it is adopted and that version is committed. What a
crash, a lost task or a merge that came too late leaves is found and removed as other files that no version names.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from millstream.clock import Micros
from millstream.kernels.kernel import by_expiry, kernel_of
from millstream.plan.operators.operator import Operator
from millstream.runtime.engine_port import MergerPort
from millstream.state.compaction import Expiry, RunMerge, due, merge
from millstream.state.run import StateRun
from millstream.state.run_list import RunList
from millstream.state.shard import RunCache
from millstream.state.version import Version

AT_ONCE_ROWS, AT_ONCE_RUNS = 200_000, 100
"""A merge of no more rows and runs than this does not delay the next epoch noticeably."""


@dataclass
class _Job:
    merge: RunMerge
    new: Future[Sequence[StateRun]]


class Compactor:
    """Keeps the lists of runs short. Used by the flow's thread; large merges run in a separate thread."""

    def __init__(
        self, cache: RunCache, operators: Sequence[Operator], token: int = 0, merger: MergerPort | None = None
    ) -> None:
        self._cache, self._token, self._merger = cache, token, merger
        self._steps: dict[str, tuple[tuple[str, ...], Expiry]] = {}
        for operator in operators:
            for number, spec in enumerate(operator.states):
                expiry = by_expiry if number else kernel_of(operator).expiry
                self._steps[operator.state_step(spec)] = (tuple(spec.unique), partial(expiry, operator))
        self._jobs: dict[str, _Job] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="millstream-compaction")

    @property
    def merging(self) -> frozenset[str]:
        """The beginnings of the names of merges under way."""
        return frozenset(job.merge.name for job in self._jobs.values())

    def between(self, version: Version, epoch: int, watermark: Micros) -> Version:
        """Adopt finished merges and start those that are due. What a reader of the version sees does not change."""
        for step in self._steps:
            version = self._finish(version, step)
            runs = due(self._newer(version.list_of(step), step))
            if runs is None:
                continue
            oldest = len(runs) == len(version.list_of(step))
            wanted = RunMerge(step, f"{step}/{epoch:012d}-{self._token}", runs, *self._steps[step], watermark, oldest)
            if runs.rows <= AT_ONCE_ROWS and len(runs) <= AT_ONCE_RUNS:
                version = version.replaced(step, runs, self._merged_here(wanted))
            elif step not in self._jobs:
                self._jobs[step] = _Job(wanted, self._pool.submit(self._merged, wanted))
        return version

    def close(self) -> None:
        """End a running merge. What it wrote is removed as a file that no version names."""
        if self._merger is not None:
            self._merger.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _newer(self, runs: RunList, step: str) -> RunList:
        """Return the runs after those that are being merged. A merge takes adjacent runs only; otherwise newer rows
        would become older.
        """
        job = self._jobs.get(step)
        if job is None:
            return runs
        files = {r.file for r in job.merge.runs}
        return runs.since(max((i for i, file in enumerate(runs.files) if file in files), default=-1) + 1)

    def _finish(self, version: Version, step: str) -> Version:
        """Adopt a merge that has finished: in place of those of its runs that have not expired since."""
        job = self._jobs.get(step)
        if job is None or not job.new.done():
            return version
        del self._jobs[step]
        old = {r.file for r in job.merge.runs}
        left = [i for i, file in enumerate(version.list_of(step).files) if file in old]
        if job.new.exception() is not None and len(left) < len(old):
            return version  # some of its runs expired and were removed before it had read them
        merged = job.new.result()
        if left and left[-1] - left[0] >= len(left):
            return version  # other runs have come between them: the merge is of another version
        self._cache.trust([r.file for r in merged])
        return version.replaced(step, job.merge.runs, merged)

    def _merged(self, wanted: RunMerge) -> Sequence[StateRun]:
        """Perform a large merge. Called in the thread."""
        if self._merger is not None and self._merger.takes(wanted):
            return self._merger.merged(wanted)
        return self._merged_here(wanted)

    def _merged_here(self, wanted: RunMerge) -> Sequence[StateRun]:
        """Perform a merge in this process."""
        args = (wanted.runs, wanted.unique, wanted.expiry, wanted.watermark)
        merged = merge(self._cache, f"{wanted.name}-c.arrow", *args, oldest=wanted.oldest)
        return [] if merged is None else [merged]
