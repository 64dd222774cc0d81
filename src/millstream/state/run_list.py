"""The runs of a step in a version: blocks, oldest first. It reads like a sequence of `StateRun` objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import overload

import numpy as np

from millstream.clock import END_OF_TIME, Micros
from millstream.state.run import StateRun
from millstream.state.run_block import RunBlock

MOST_BLOCKS = 64
"""More blocks without a manifest than this become one."""


class RunList(Sequence[StateRun]):
    """Runs, oldest first. Immutable; versions share its blocks."""

    __slots__ = ("blocks",)

    def __init__(self, blocks: Iterable[RunBlock] = ()) -> None:
        self.blocks = tuple(blocks)

    @classmethod
    def of(cls, runs: Iterable[StateRun]) -> RunList:
        """The list of some runs."""
        if isinstance(runs, RunList):
            return runs
        kept = tuple(runs)
        return cls([RunBlock.of(kept)] if kept else ())

    # ---- what it holds

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def __iter__(self) -> Iterator[StateRun]:
        return chain.from_iterable(b.runs for b in self.blocks)

    @overload
    def __getitem__(self, index: int) -> StateRun: ...
    @overload
    def __getitem__(self, index: slice) -> list[StateRun]: ...

    def __getitem__(self, index: int | slice) -> StateRun | list[StateRun]:
        at = range(len(self))[index]
        if not isinstance(at, int):
            return list(self)[index]
        for block in self.blocks:
            if at < len(block):
                return block.run(at)
            at -= len(block)
        raise AssertionError(index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        if isinstance(other, RunList) and self.blocks == other.blocks:
            return True
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RunList({list(self)!r})"

    @property
    def files(self) -> Iterator[str]:
        """The files of the runs."""
        return chain.from_iterable(b.files for b in self.blocks)

    @property
    def rows(self) -> int:
        """Rows that are not dropped."""
        return sum(b.rows for b in self.blocks)

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(b.size for b in self.blocks)

    @property
    def first(self) -> int:
        """The earliest expiry of any row; the end of time if there are no rows."""
        return min((b.first for b in self.blocks), default=END_OF_TIME)

    @property
    def layers(self) -> list[tuple[int, int]]:
        """Where each layer begins, and how many rows it has (`RunBlock.layers`). Every block begins one."""
        found: list[tuple[int, int]] = []
        before = 0
        for block in self.blocks:
            found += [(before + start, rows) for start, rows in block.layers] if before else block.layers
            before += len(block)
        return found

    def meeting(self, hashes: tuple[int, int]) -> list[StateRun]:
        """The runs that may hold rows with a hash in a range (first and last)."""
        return [run for block in self.blocks for run in block.meeting(hashes)]

    # ---- other lists

    def expire(self, watermark: Micros) -> RunList:
        """This list without the batches that closed at the watermark."""
        return RunList(left for block in self.blocks if (left := block.expire(watermark)) is not None)

    def plus(self, added: Iterable[StateRun] | RunBlock) -> RunList:
        """This list with newer runs."""
        new = added if isinstance(added, RunBlock) else RunList.of(added)
        blocks = (*self.blocks, *(new.blocks if isinstance(new, RunList) else (new,)))
        return RunList(blocks)._tidy()

    def since(self, index: int) -> RunList:
        """The runs from a place on."""
        kept: list[RunBlock] = []
        for block in self.blocks:
            if index < len(block):
                kept.append(block if index <= 0 else block.take(np.arange(index, len(block))))
            index -= len(block)
        return RunList(kept)

    def replaced(self, old: Collection[str], new: Iterable[StateRun]) -> RunList:
        """This list with runs, by the names of their files, replaced by others: these come where the first of them was.
        If none of them is left, nothing comes.
        """
        names, coming = frozenset(old), RunList.of(new)
        blocks: list[RunBlock] = []
        placed = False
        for block in self.blocks:
            hit = np.fromiter((f in names for f in block.files), bool, len(block))
            if not hit.any():
                blocks.append(block)
                continue
            first = int(hit.argmax()) if not placed else 0
            places = np.flatnonzero(~hit)
            before, after = places[places < first], places[places >= first]
            blocks += [block.take(before)] if len(before) else []
            blocks += [] if placed else coming.blocks
            blocks += [block.take(after)] if len(after) else []
            placed = True
        return RunList(blocks)

    def _tidy(self) -> RunList:
        """The same runs, with few blocks: those without a manifest are joined if there are many."""
        if sum(b.manifest is None for b in self.blocks) <= MOST_BLOCKS:
            return self
        blocks: list[RunBlock] = []
        for is_new, group in groupby(self.blocks, key=lambda b: b.manifest is None):
            some = list(group)
            blocks += [RunBlock.joined(some)] if is_new else some
        return RunList(blocks)
