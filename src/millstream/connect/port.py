"""The contracts of sources and sinks: what the epoch loop, the engine and the tools call, and on which thread.

A source is a set of partitions, each an append-only sequence of offsets. The loop calls `head`, fixes a slice (a range
of offsets per partition) with `admit`, records it durably, and only then reads: `slice` returns the forms
(`connect/forms.py`) that the engine reads. **The same slice returns the same rows, always**: after a crash the epoch is
rerun from its record.

A sink receives the changes of epochs in order. After a crash it receives the last one again, and declares how it
handles that (`SinkGuarantee`).

Threads: `head`, `pending` and `describe` of a source may be called by any thread at any time, also concurrently. All
other methods, and those of sinks, are called by the thread of one flow, one at a time. `testing/conformance/` checks
all of this for any connector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from millstream.clock import Micros
from millstream.connect.forms import Form
from millstream.model.guarantees import SinkGuarantee

Offsets = Mapping[int, int]
"""For every partition the offset after the last record."""

UNPARSABLE, NO_TIME, MISTYPED, FUTURE, OUT_OF_RANGE, DAMAGED = 1, 2, 3, 4, 5, 6
"""Why a row is an error, in the ``$bad`` column; 0 is a good row."""

REASONS = {
    UNPARSABLE: "unparsable",
    NO_TIME: "no event time",
    MISTYPED: "wrong type in a field",
    FUTURE: "event time too far in the future",
    OUT_OF_RANGE: "event time outside of the years 1 to 9999",
    DAMAGED: "the file cannot be read",
}


@dataclass(frozen=True)
class SourceSlice:
    """The offset ranges of one source in one epoch: partition -> (start, end)."""

    ranges: Mapping[int, tuple[int, int]]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read."""
        return all(start == end for start, end in self.ranges.values())

    @property
    def end(self) -> dict[int, int]:
        """Where the next slice begins."""
        return {p: end for p, (_, end) in self.ranges.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain data for the epoch record."""
        return {str(p): [start, end] for p, (start, end) in sorted(self.ranges.items())}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SourceSlice:
        """Read what `to_json` wrote."""
        return cls({int(p): (r[0], r[1]) for p, r in data.items()})


@dataclass(frozen=True)
class SourceFacts:
    """Facts about an open source, for the loop, for accounting, and for a repair without the flow."""

    kind: str
    """The name of its system, and what a repair needs to find it again: ``files``, ``log bids``. Stored on disk."""
    record_per_offset: bool = False
    """Whether every offset is one record, so that the numbers of records and offsets can be compared."""
    rests: bool = False
    """Whether no records arrive while no flow reads it, as with a generator: it was not silent then."""


class Lands(Protocol):
    """The part of a topic that a tap needs."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its records."""
        ...

    def append(self, rows: pa.Table, *, producer: str, sequence: int) -> object:
        """Append rows once for each sequence of a producer."""
        ...


@dataclass(frozen=True)
class SparkTap:
    """A source of Spark Structured Streaming whose records land in a topic while the flow runs, each exactly once."""

    format: str
    options: Mapping[str, str] = field(repr=False)
    topic: Lands


class SourcePort(Protocol):
    """An open source. `SourceBase` implements most of it with sensible defaults."""

    def head(self, now: Micros) -> Offsets:
        """The end of every partition. What it reports must be readable from then on, also after a crash: everything
        that the result depends on is durable when this returns. Any thread.
        """
        ...

    def admit(self, start: Offsets, head: Offsets, limit: int | None) -> SourceSlice:
        """The next slice: from `start` to at most `head`, about `limit` rows where the source can tell, otherwise as
        much as one epoch should read. It may not be empty while there is something to read. A partition that is missing
        in `start` was never read.
        """
        ...

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        """The rows of a slice, in the forms that the engine reads. May be called any number of times, also in a later
        process, for any slice that was admitted and begins after `start`.
        """
        ...

    def rows(self, part: SourceSlice) -> int:
        """The approximate number of rows of a slice; used for placement only."""
        ...

    def finished(self, start: Offsets) -> bool:
        """Whether a bounded source has been read to its end."""
        ...

    def start(self) -> Offsets | None:
        """The oldest readable offsets; None where the source does not store its records itself."""
        ...

    def end(self) -> Offsets | None:
        """The readable end, without discovery; None where it is unbounded. A flow that is
        ahead of this is not started.
        """
        ...

    def hold(self, offsets: Offsets) -> None:
        """The flow may still have to read from these offsets on; earlier records may be removed."""
        ...

    def pending(self, at: Offsets, now: Micros) -> int | None:
        """The number of pending records after these offsets; None where it is unknown. Must not change anything. Any
        thread.
        """
        ...

    def examine(self, part: SourceSlice) -> bool:
        """Look for damage after a slice could not be read, and record it durably, so that `slice` returns errors in its
        place; returns whether there was any.
        """
        ...

    def describe(self) -> SourceFacts:
        """Facts that do not change while it is open. Any thread."""
        ...

    def tap(self) -> SparkTap | None:
        """The Spark stream whose records must be landed while the flow runs, if there is one."""
        ...

    def close(self) -> None:
        """Release resources. Afterwards only `pending` and `describe` may be called."""
        ...


class SourceBase:
    """A base class for sources: a simple one implements `head`, `slice` and `describe`."""

    rows_per_epoch = 1_000_000
    """The most offsets that `admit` takes without a limit."""

    def head(self, now: Micros) -> Offsets:
        """See `SourcePort`."""
        raise NotImplementedError

    def slice(self, part: SourceSlice) -> Sequence[Form]:
        """See `SourcePort`."""
        raise NotImplementedError

    def describe(self) -> SourceFacts:
        """See `SourcePort`."""
        raise NotImplementedError

    def admit(self, start: Offsets, head: Offsets, limit: int | None) -> SourceSlice:
        """This many offsets, shared fairly by the partitions."""
        first = self.first()
        starts = {p: start.get(p, first.get(p, 0)) for p in head}
        waiting = {p: max(0, end - starts[p]) for p, end in head.items()}
        share = fair_shares(waiting, self.rows_per_epoch if limit is None else limit)
        return SourceSlice({p: (starts[p], starts[p] + share[p]) for p in sorted(head)})

    def first(self) -> Offsets:
        """Where a flow begins that has not read a partition yet; 0 by default."""
        return {}

    def rows(self, part: SourceSlice) -> int:
        """One per offset."""
        return sum(end - start for start, end in part.ranges.values())

    def finished(self, start: Offsets) -> bool:
        """Never."""
        return False

    def start(self) -> Offsets | None:
        """Not known."""
        return None

    def end(self) -> Offsets | None:
        """Not known."""
        return None

    def hold(self, offsets: Offsets) -> None:
        """Nothing is removed."""

    def pending(self, at: Offsets, now: Micros) -> int | None:
        """Not known."""
        return None

    def examine(self, part: SourceSlice) -> bool:
        """No damage is known."""
        return False

    def tap(self) -> SparkTap | None:
        """Nothing has to be landed."""
        return None

    def close(self) -> None:
        """Nothing is open."""


def fair_shares(waiting: Mapping[int, int], most: int) -> dict[int, int]:
    """How much is read from each partition when at most `most` is read in total: all of small ones, equal shares of the
    others.

    >>> fair_shares({0: 1, 1: 10, 2: 10}, 11)
    {0: 1, 1: 5, 2: 5}
    """
    share: dict[int, int] = {}
    for left, partition in zip(range(len(waiting), 0, -1), sorted(waiting, key=lambda p: (waiting[p], p)), strict=True):
        share[partition] = min(waiting[partition], -(-most // left))
        most = max(0, most - share[partition])
    return share


# ---------------------------------------------------------------- sinks


class SinkPort(Protocol):
    """An open sink of one flow. `SinkBase` implements most of it with sensible defaults."""

    @property
    def guarantee(self) -> SinkGuarantee:
        """How it handles an epoch that is delivered again."""
        ...

    def open(self, schema: pa.Schema, identity: tuple[str, ...] | None) -> None:
        """Called once, before anything else. `schema` is that of the changes; `identity` are the columns that identify
        a changed row, or None for append-only output. Refuses what the target cannot accept.
        """
        ...

    def last_epoch(self, writer: str) -> int | None:
        """The last epoch of a writer that the target certainly has completely, with all before it; -1 where it has
        none, and None where the target cannot tell. `writer` names flow, sink and generation: a flow that was restored
        to an earlier epoch writes under another name.
        """
        ...

    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        """Write the changes of an epoch, durably when this returns. Epochs increase, but not all are written: one
        without changes is skipped. `digest` identifies the content of the epoch; None where the flow does not need to
        recognise epochs (its guarantee is not exactly once).
        """
        ...

    def confirm(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        """On start: ensure that the target still has the last epoch that was written to
        it, and write it again if not.
        """
        ...

    def position(self) -> Mapping[str, Any] | None:
        """How far it has written the target, as plain data that is committed with the next epoch; None where it is not
        needed.
        """
        ...

    def resume(self, position: Mapping[str, Any]) -> None:
        """On start, with the result of `position` for the last epoch: refuse a target that lacks what was written."""
        ...

    def close(self) -> None:
        """Release resources."""
        ...


@dataclass(frozen=True)
class SinkPart:
    """Rows of an epoch that a task has written to the target of a sink, where no reader sees them yet."""

    name: str
    """By which the sink finds it, also in a later process."""
    rows: int
    bytes: int
    crc: int


class PartsWriter(Protocol):
    """Writes parts of a sink, in tasks on the executors. A frozen value that can be pickled."""

    def write(self, table: pa.Table, name: str) -> SinkPart:
        """Write rows with the columns of the sink, durably when this returns. `name` differs between all attempts of
        all tasks: epoch, token of the process, task, attempt, number. Raises a SinkError if the target cannot be
        written to.
        """
        ...


@runtime_checkable
class SinkWithParts(Protocol):
    """What a sink offers in addition if tasks can write to its target: a large epoch is written by all of them at once,
    and published by name after its commit. Optional.
    """

    def parts_writer(self) -> PartsWriter:
        """Writes parts on behalf of this sink."""
        ...

    def lost_parts(self, parts: Sequence[SinkPart], *, verify: bool) -> str | None:
        """Why parts cannot be published: a sentence that names one that is missing or damaged. None when they can, or
        when they have been. `verify` asks for their checksums too.
        """
        ...

    def publish(self, epoch: int, parts: Sequence[SinkPart], *, digest: str | None = None) -> None:
        """Make the parts of an epoch visible, in this order, durably when this returns. Is called again after a crash
        and then completes what is missing. `digest` as in `SinkPort.write`.
        """
        ...

    def forget_parts(self, through: int | None) -> None:
        """Remove parts that were not published, of epochs up to this one: of attempts that failed, or of epochs that
        were never committed. None: of all epochs.
        """
        ...


class SinkBase:
    """A base class for sinks: a simple one implements `write`, a transactional one also `last_epoch`."""

    guarantee: SinkGuarantee = SinkGuarantee.AT_LEAST_ONCE
    writer: str = ""
    """The name under which this sink writes, if it needs one."""

    def open(self, schema: pa.Schema, identity: tuple[str, ...] | None) -> None:
        """Accept everything."""

    def last_epoch(self, writer: str) -> int | None:
        """Cannot tell."""
        return None

    def write(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        """See `SinkPort`."""
        raise NotImplementedError

    def confirm(self, epoch: int, changes: pa.Table, *, digest: str | None = None) -> None:
        """Write the epoch again if the target can tell that it lacks it."""
        last = self.last_epoch(self.writer)
        if last is not None and last < epoch:
            self.write(epoch, changes, digest=digest)

    def position(self) -> Mapping[str, Any] | None:
        """Nothing needs to be known."""
        return None

    def resume(self, position: Mapping[str, Any]) -> None:
        """Nothing is known."""

    def close(self) -> None:
        """Nothing is open."""
