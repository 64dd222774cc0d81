"""Finds poison records, which make their epoch fail, by trying parts of its slice.

A try commits nothing. The poison records are written to the epoch's record before the epoch runs, so that every later
try, also after a crash, excludes the same records.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np

from millstream.errors import MillstreamError, UserCodeFailed
from millstream.runtime.epoch.loop import FlowLoop
from millstream.runtime.epoch.memory_limit import bounded
from millstream.runtime.epoch.records import EpochRecord
from millstream.runtime.supervision.supervisor import failure, head, is_suspect, reason
from millstream.state.version import Version

MOST = 100
"""With more poison records than this in one epoch, the code is at fault."""
PROBES = 8
"""The number of records that are first tried alone, if there are more; when all of them fail, the code is at fault."""

_TRIES = 10**9
"""The first number of a try, so that its state files have unique names."""


class Searchable(Protocol):
    """What the search requires of an engine in addition to running epochs."""

    def run(self, version: Version, epoch_input: Any) -> Any:
        """Run an epoch. Its input may name the `only` records to read, and records to leave out (`without`)."""
        ...

    def places(self, epoch_input: Any) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
        """By source, partitions and positions of the good records of its slice, in order."""
        ...


@dataclass(frozen=True)
class Culprit:
    """A record that fails alone."""

    source: str
    partition: int
    position: int
    reason: str


def search(loop: FlowLoop, error: MillstreamError) -> EpochRecord:
    """Find the poison records of the current epoch, and write them to its record. Raises `error`, with the findings,
    when the cause is not single records.
    """
    record = loop.book.read(loop.number + 1)
    if record is None or record.replay is not None:
        raise error
    epoch_input = loop.epoch_input(record)
    tried = _Tries(loop, epoch_input)
    culprits: list[Culprit] = []
    while True:
        out = _with(record.excluded, culprits)
        still = tried.fails(replace(epoch_input, without=out))
        if still is None:
            break
        rows = _Rows(tried.engine.places(replace(epoch_input, without=out)))
        more = _Search(tried, replace(epoch_input, without=out), rows, record.epoch).all(still)
        culprits += more
        if len(culprits) > MOST:
            raise _it_is_the_code(record.epoch, f"more than {MOST} of its records fail alone", still)
    if culprits:
        record = replace(record, poison=_with(record.excluded, culprits), has_old_positions=False)
        loop.book.open(record)
    return record


class _Tries:
    """Runs epochs that are never committed."""

    def __init__(self, loop: FlowLoop, epoch_input: Any) -> None:
        self.engine = cast(Searchable, loop.engine)
        self._loop, self._epoch_input = loop, epoch_input
        self._attempts = itertools.count(_TRIES)

    def fails(self, epoch_input: Any) -> MillstreamError | None:
        """Return how an epoch fails; None when it does not. An error that no record can cause is raised."""
        try:
            with bounded(self._loop.plan.flow):
                self.engine.run(self._loop.version, replace(epoch_input, attempt=next(self._attempts)))
        except BaseException as error:
            known = failure(self._loop.plan.flow, error)
            if not isinstance(error, Exception) and type(error).__module__ == "builtins":
                raise  # the process is being stopped
            if not is_suspect(known):
                raise
            return known
        return None


class _Rows:
    """The records of an epoch in one sequence, whatever their source."""

    def __init__(self, places: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
        self._sources = sorted(places)
        self._places = places
        self._starts = list(itertools.accumulate((len(places[s][0]) for s in self._sources), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def ranges(self, first: int, end: int) -> dict[str, list[tuple[int, int, int]]]:
        """The records [first, end) as partitions with their first and last position, by source."""
        chosen: dict[str, list[tuple[int, int, int]]] = {}
        for source, start in zip(self._sources, self._starts, strict=False):
            partitions, positions = (a[max(0, first - start) : max(0, end - start)] for a in self._places[source])
            for partition in np.unique(partitions).tolist():
                mine = positions[partitions == partition]
                chosen.setdefault(source, []).append((int(partition), int(mine[0]), int(mine[-1])))
        return chosen

    def culprit(self, number: int, error: MillstreamError) -> Culprit:
        """Return a record that fails alone."""
        ((source, ((partition, position, _),)),) = self.ranges(number, number + 1).items()
        return Culprit(source, partition, position, f"poisonous: {reason(error)}")


class _Search:
    """Bisects an epoch down to single records that fail alone."""

    def __init__(self, tries: _Tries, epoch_input: Any, rows: _Rows, epoch: int) -> None:
        self._tries, self._epoch_input, self._rows, self._epoch = tries, epoch_input, rows, epoch
        self._culprits: list[Culprit] = []

    def all(self, error: MillstreamError) -> list[Culprit]:
        """Return all records that fail alone; the epoch as a whole fails with `error`."""
        if self._fails(0, 0) is not None:
            raise self._as_a_whole(error, "the epoch fails even without any record")
        rows = len(self._rows)
        probes = np.linspace(0, rows - 1, PROBES).astype(int).tolist()
        if rows > PROBES and all(self._fails(i, i + 1) for i in probes):
            why = f"{PROBES} of its {rows:,} records were tried alone, and all of them fail"
            raise _it_is_the_code(self._epoch, why, error)
        self._halve(0, rows, error)
        return self._culprits

    def _halve(self, first: int, end: int, error: MillstreamError) -> None:
        if end - first == 1:
            self._culprits.append(self._rows.culprit(first, error))
            return
        before, middle = len(self._culprits), (first + end) // 2
        for part in ((first, middle), (middle, end)):
            failed = self._fails(*part)
            if failed is not None and len(self._culprits) <= MOST:
                self._halve(*part, failed)
        if len(self._culprits) == before:
            reason = f"{end - first:,} of its records fail together, but neither half of them alone"
            raise self._as_a_whole(error, reason)

    def _fails(self, first: int, end: int) -> MillstreamError | None:
        return self._tries.fails(replace(self._epoch_input, only=self._rows.ranges(first, end)))

    def _as_a_whole(self, error: MillstreamError, why: str) -> MillstreamError:
        known = f"no single record of epoch {self._epoch} is at fault: {why}"
        error.detail = f"{error.detail}\n  {known}" if error.detail else known
        return error


def _it_is_the_code(epoch: int, why: str, error: MillstreamError) -> UserCodeFailed:
    failed = UserCodeFailed(
        head(error),
        detail=f"it is the code, not the data of epoch {epoch}: {why}",
        hint="correct the flow and start again; nothing of the epoch was committed",
    )
    failed.__cause__ = error
    return failed


def _with(before: Mapping[str, Any], culprits: list[Culprit]) -> dict[str, list[tuple[int, int, str]]]:
    """Group poison records by source, as an epoch record stores them."""
    out = {source: list(rows) for source, rows in before.items()}
    for one in culprits:
        out.setdefault(one.source, []).append((one.partition, one.position, one.reason))
    return {source: sorted(rows) for source, rows in out.items()}
