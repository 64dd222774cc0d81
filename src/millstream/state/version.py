"""Versions: the list of runs of every step, oldest first. `compaction.py` keeps the lists short.

A version is part of the store's transaction, so it always matches the views.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from millstream.clock import Micros
from millstream.state.run import StateRun
from millstream.state.run_block import ManifestFile, RunBlock
from millstream.state.run_list import RunList


@dataclass(frozen=True)
class Version:
    """The runs of every step after an epoch.

    It may have hundreds of thousands of runs. Versions share the blocks that an epoch has not changed, so that the work
    of an epoch follows its changes.
    """

    runs: Mapping[str, Sequence[StateRun]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", {step: RunList.of(runs) for step, runs in self.runs.items()})

    def list_of(self, step: str) -> RunList:
        """The runs of a step, as a list of blocks."""
        runs = self.runs.get(step, _NONE)
        assert isinstance(runs, RunList)
        return runs

    def of(self, step: str, hashes: tuple[int, int] | None = None) -> Sequence[StateRun]:
        """The runs of a step, oldest first; with `hashes`, those that may hold rows in this range."""
        runs = self.list_of(step)
        return runs if hashes is None else runs.meeting(hashes)

    def only(self, steps: Iterable[str]) -> Version:
        """The runs of some steps."""
        return Version({step: self.runs[step] for step in steps if step in self.runs})

    def with_runs(self, step: str, runs: RunList) -> Version:
        """The version with other runs of a step."""
        return Version({**self.runs, step: runs})

    def advance(self, step: str, added: Iterable[StateRun] | RunBlock, watermark: Micros) -> Version:
        """The version after an epoch: without expired batches, and with the new runs last."""
        return self.with_runs(step, self.list_of(step).expire(watermark).plus(added))

    def replaced(self, step: str, old: Sequence[StateRun], new: Iterable[StateRun]) -> Version:
        """The version with consecutive runs replaced by their merge."""
        return self.with_runs(step, self.list_of(step).replaced([r.file for r in old], new))

    # ---- files

    @property
    def blocks(self) -> Iterator[RunBlock]:
        """The blocks of all steps."""
        return (block for step in self.runs for block in self.list_of(step).blocks)

    @property
    def manifests(self) -> list[ManifestFile]:
        """The files that describe blocks."""
        return [b.manifest for b in self.blocks if b.manifest is not None]

    @cached_property
    def files(self) -> frozenset[str]:
        """The files this version needs."""
        return frozenset(_files(self.blocks))

    def dropped_in(self, later: Version) -> set[str]:
        """The files that this version needs and another one does not. Blocks that both have are not looked at."""
        theirs = {id(b) for b in later.blocks}
        mine = {id(b) for b in self.blocks}
        needed = _files(b for b in later.blocks if id(b) not in mine)
        return _files(b for b in self.blocks if id(b) not in theirs) - needed

    # ---- sizes

    def rows(self, step: str) -> int:
        """State rows of a step. A key changed since the last compaction counts once per change."""
        return self.list_of(step).rows

    def bytes(self, step: str) -> int:
        """Bytes on disk of a step."""
        return self.list_of(step).size

    # ---- as data

    def to_json(self) -> dict[str, Any]:
        """Plain data for the store."""
        return {step: [r.to_json() for r in runs] for step, runs in self.runs.items() if runs}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Version:
        """Read what `to_json` wrote."""
        return cls({step: tuple(StateRun.from_json(r) for r in runs) for step, runs in data.items()})


_NONE = RunList()


def _files(blocks: Iterable[RunBlock]) -> set[str]:
    found: set[str] = set()
    for block in blocks:
        found.update(block.files)
        if block.manifest is not None:
            found.add(block.manifest.file)
    return found
