"""Versions: the list of runs of every step, oldest first. `compaction.py` keeps the lists short.

A version is part of the store's transaction, so it always matches the views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from millstream.clock import Micros
from millstream.state.packed_runs import PackedRuns
from millstream.state.run import StateRun

if TYPE_CHECKING:
    from millstream.state.manifest import RunManifest


@dataclass(frozen=True)
class Version:
    """The runs of every step after an epoch.

    It may have hundreds of thousands of runs, so what an epoch does with all of them is done once per run, and a task
    that receives a version decodes only the runs of its shard.
    """

    runs: Mapping[str, Sequence[StateRun]] = field(default_factory=dict)
    manifests: Mapping[str, tuple[RunManifest, ...]] = field(default_factory=dict, compare=False)
    """The files that describe the oldest runs of steps with many (`state/manifest.py`)."""
    expired: Mapping[str, int] = field(default_factory=dict, compare=False)
    """By step: the watermark up to which batches were dropped since this version was loaded."""

    def of(self, step: str, hashes: tuple[int, int] | None = None) -> Sequence[StateRun]:
        """The runs of a step, oldest first; with `hashes`, those that may hold rows in this range."""
        runs = self.runs.get(step, ())
        if hashes is None:
            return runs
        return runs.meeting(hashes) if isinstance(runs, PackedRuns) else [r for r in runs if r.meets(hashes)]

    def only(self, steps: Iterable[str]) -> Version:
        """The runs of some steps."""
        return Version({step: self.runs[step] for step in steps if step in self.runs})

    def __reduce__(self) -> tuple[Any, ...]:
        """Packed for another process, which reads runs and no manifests."""
        return Version, ({step: PackedRuns.of(runs) for step, runs in self.runs.items()},)

    def advance(self, step: str, added: Iterable[StateRun], watermark: Micros) -> Version:
        """The version after an epoch: without expired batches, and with the new runs last."""
        live = [r for run in self.of(step) if (r := run.expire(watermark)) is not None]
        return replace(self, runs={**self.runs, step: (*live, *added)}, expired={**self.expired, step: watermark})

    def replaced(self, step: str, old: Sequence[StateRun], new: StateRun | None) -> Version:
        """The version with consecutive runs replaced by their merge."""
        names = {r.file for r in old}
        runs: list[StateRun] = []
        placed = False
        for run in self.of(step):
            if run.file not in names:
                runs.append(run)
            elif not placed:
                placed = True
                if new is not None:
                    runs.append(new)
        return replace(self, runs={**self.runs, step: tuple(runs)})

    @cached_property
    def files(self) -> frozenset[str]:
        """The files this version needs."""
        manifests = [m.file for of_step in self.manifests.values() for m in of_step]
        return frozenset([*(r.file for runs in self.runs.values() for r in runs), *manifests])

    def rows(self, step: str) -> int:
        """State rows of a step. A key changed since the last compaction counts once per change."""
        return sum(r.rows for r in self.of(step))

    def bytes(self, step: str) -> int:
        """Bytes on disk of a step."""
        return sum(r.bytes for r in self.of(step))

    def to_json(self) -> dict[str, Any]:
        """Plain data for the store."""
        return {step: [r.to_json() for r in runs] for step, runs in self.runs.items() if runs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Version:
        """Read what `to_json` wrote."""
        return cls({step: tuple(StateRun.from_json(r) for r in runs) for step, runs in data.items()})
