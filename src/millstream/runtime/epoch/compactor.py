"""Compacts state runs between epochs: small merges inline, large ones in a thread. `state/compaction.py` chooses the
runs; the results are adopted between two epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from millstream.clock import Micros
from millstream.kernels.kernel import by_expiry, kernel_of
from millstream.plan.operators.operator import Operator
from millstream.state.compaction import due, merge
from millstream.state.run import StateRun
from millstream.state.shard import RunCache
from millstream.state.version import Version

AT_ONCE_ROWS = 200_000


@dataclass
class _Job:
    old: Sequence[StateRun]
    new: Future[StateRun | None]


class Compactor:
    """Keeps the lists of runs short. Used by the flow's thread; large merges run in a separate thread."""

    def __init__(self, cache: RunCache, operators: Sequence[Operator], token: int = 0) -> None:
        self._cache, self._token = cache, token
        self._steps: dict[str, tuple[list[str], Callable[[pl.DataFrame], np.ndarray]]] = {}
        for operator in operators:
            for number, spec in enumerate(operator.states):
                expiry = by_expiry if number else kernel_of(operator).expiry
                self._steps[operator.state_step(spec)] = (list(spec.unique), partial(expiry, operator))
        self._jobs: dict[str, _Job] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="millstream-compaction")

    def between(self, version: Version, epoch: int, watermark: Micros) -> Version:
        """Adopt finished merges and start those that are due. What a reader of the version sees does not change."""
        for step in self._steps:
            version = self._finish(version, step)
            runs = due(self._newer(version.of(step), step))
            if runs is None:
                continue
            name = f"{step}/{epoch:012d}-{self._token}-c.arrow"
            oldest = runs[0].file == version.of(step)[0].file
            if sum(r.rows for r in runs) <= AT_ONCE_ROWS:
                version = version.replaced(step, runs, _one(self._merge(step, name, runs, watermark, oldest)))
            elif step not in self._jobs:
                self._jobs[step] = _Job(runs, self._pool.submit(self._merge, step, name, runs, watermark, oldest))
        return version

    def close(self) -> None:
        """Wait for a running merge. The next start finds and removes what it wrote."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _newer(self, runs: Sequence[StateRun], step: str) -> Sequence[StateRun]:
        """Return the runs after those that are being merged. A merge takes adjacent runs only; otherwise newer rows
        would become older.
        """
        job = self._jobs.get(step)
        if job is None:
            return runs
        files = {r.file for r in job.old}
        last = max((i for i, r in enumerate(runs) if r.file in files), default=-1)
        return runs[last + 1 :]

    def _finish(self, version: Version, step: str) -> Version:
        job = self._jobs.get(step)
        if job is None or not job.new.done():
            return version
        del self._jobs[step]
        files = {r.file for r in version.of(step)}
        if job.new.exception() is not None and not all(r.file in files for r in job.old):
            return version  # some of its runs expired and were removed before it had read them
        merged = job.new.result()
        return version.replaced(step, job.old, _one(merged))

    def _merge(
        self, step: str, name: str, runs: Sequence[StateRun], watermark: Micros, oldest: bool
    ) -> StateRun | None:
        columns, expiry = self._steps[step]
        return merge(self._cache, name, runs, columns, expiry, watermark, oldest=oldest)


def _one(merged: StateRun | None) -> list[StateRun]:
    return [] if merged is None else [merged]
