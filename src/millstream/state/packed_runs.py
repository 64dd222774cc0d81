"""The runs of a step in a compact form, for tasks: a task decodes only the runs of its own shard.

A version with thousands of runs per step reaches every task of an epoch. Here the runs are JSON one after the other,
with their ranges of hashes as arrays, so that a task finds its runs without decoding the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import orjson

from millstream.state.run import StateRun

_ALL = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, eq=False)
class PackedRuns(Sequence[StateRun]):
    """Runs, oldest first."""

    lows: np.ndarray
    highs: np.ndarray
    """The least and the greatest hash of each run."""
    ends: np.ndarray
    """Where the JSON of each run ends."""
    data: bytes

    @classmethod
    def of(cls, runs: Sequence[StateRun]) -> PackedRuns:
        """Pack runs."""
        if isinstance(runs, PackedRuns):
            return runs
        ranges = np.array([r.hashes or _ALL for r in runs], np.int64).reshape(len(runs), 2)
        texts = [r.encoded for r in runs]
        ends = np.cumsum([len(t) for t in texts], dtype=np.int64)
        return cls(ranges[:, 0].copy(), ranges[:, 1].copy(), ends, b"".join(texts))

    def meeting(self, hashes: tuple[int, int]) -> list[StateRun]:
        """The runs that may hold rows with a hash in a range (first and last)."""
        found = np.flatnonzero((self.lows <= hashes[1]) & (self.highs >= hashes[0]))
        return [self._run(i) for i in found.tolist()]

    def _run(self, index: int) -> StateRun:
        start = int(self.ends[index - 1]) if index else 0
        return StateRun.from_json(orjson.loads(self.data[start : int(self.ends[index])]))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[StateRun]:
        return map(self._run, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> StateRun: ...
    @overload
    def __getitem__(self, index: slice) -> list[StateRun]: ...

    def __getitem__(self, index: int | slice) -> StateRun | list[StateRun]:
        numbers = range(len(self))[index]
        return self._run(numbers) if isinstance(numbers, int) else [self._run(i) for i in numbers]
