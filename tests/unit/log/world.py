"""A log on a simulated disk, the operations on it, and the oracle: what must be there after a crash, and what may be.

A record is a number; records are numbered in the order in which they are sent. Every append has a producer and a
sequence, so that an append that was cut short can be tried again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from millstream.clock import ManualClock
from millstream.errors import DiskFull, LogFailed
from millstream.log.log import Log
from millstream.log.topic import Topic

from .disk import Fault, SimDisk

ROOT = Path("/home/log")
SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})


class Violation(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True)
class Promise:
    """What a person was told, and what is under way."""

    acked: tuple[int, ...] = ()
    """Offset -> record, from offset 0 on."""
    last: tuple[int, ...] = ()
    """The records of the last acknowledged append."""
    sequence: int = 0
    flight: tuple[int, ...] = ()
    """The records of an append that is not acknowledged: there as a whole, or not at all."""
    start: int = 0
    trimming: int | None = None
    """The start that a trim under way may reach."""
    held: int | None = None
    holding: int | None = None


def rows(numbers: tuple[int, ...], width: int) -> list[dict[str, object]]:
    return [{"n": n, "text": chr(97 + n % 26) * width} for n in numbers]


def width_of(numbers: tuple[int, ...]) -> int:
    return 3 if len(numbers) == 1 else 1800


class World:
    """A log, its disk, and what was promised."""

    def __init__(self, disk: SimDisk | None = None, promise: Promise | None = None) -> None:
        self.promise = promise or Promise()
        self.clock = ManualClock(1_000_000)
        if disk is None:
            self.disk = SimDisk()
            log = Log(ROOT, self.clock, self.disk)
            log.create("t", SCHEMA)
            log.close()
            self.disk = self.disk.restarted(
                {f: {n: x.current for n, x in i.items()} for f, i in self.disk.names.items()}
            )
        else:
            self.disk = disk
        self._open()

    def _open(self) -> None:
        self.log = Log(ROOT, self.clock, self.disk)
        self.topic: Topic = self.log.topic("t")

    # ------------------------------------------------------------ operations

    def append(self, count: int) -> None:
        promise = self.promise
        first = len(promise.acked)
        numbers = tuple(range(first, first + count))
        self.promise = replace(promise, flight=numbers)
        self._send(numbers, promise.sequence + 1)
        self.promise = replace(promise, acked=promise.acked + numbers, last=numbers, sequence=promise.sequence + 1)

    def _send(self, numbers: tuple[int, ...], sequence: int, *, repeated: bool = False) -> None:
        given = rows(numbers, width_of(numbers))
        ack = self.topic.append(given, producer="p", sequence=sequence, digest=f"d{sequence}")
        if ack.offsets != {0: (numbers[0], numbers[-1] + 1)} or (repeated and not ack.repeated):
            raise Violation(f"{numbers} was answered with {ack}")

    def small(self) -> None:
        self.append(1)

    def large(self) -> None:
        self.append(3)

    def roll(self) -> None:
        self.topic.roll()

    def trim(self) -> None:
        """Trim to what the reader holds, or to the end."""
        promise = self.promise
        end = len(promise.acked)
        before = end if promise.held is None else promise.held
        self.promise = replace(promise, trimming=before)
        report = self.topic.trim({0: before})
        start = report.removed.get(0, (0, promise.start))[1]
        if start > before:
            raise Violation(f"trimmed to {start}, not to {before}")
        self.promise = replace(promise, start=start)

    def hold(self) -> None:
        """Hold from the middle of what is there."""
        promise = self.promise
        at = (promise.start + len(promise.acked) + 1) // 2
        self.promise = replace(promise, holding=at)
        self.topic.hold("r", {0: at})
        self.promise = replace(promise, held=at)

    def reopen(self) -> None:
        self.log.close()
        self._open()

    def kill(self) -> None:
        """The process ends without a word; the machine goes on."""
        watch = self.disk.at_every_step
        self.disk = self.disk.killed()
        self.disk.at_every_step = watch
        self._open()

    def retry(self) -> None:
        """The acknowledgement was lost: the same append once more."""
        if self.promise.last:
            self._send(self.promise.last, self.promise.sequence, repeated=True)

    def full(self) -> None:
        """There is no space in the middle of a write."""
        promise = self.promise
        first = len(promise.acked)
        self.topic.append([], producer="p", sequence=1)
        self._opened()
        self.disk.fault = Fault(1, errno.ENOSPC, short=True, only=frozenset({"append"}))
        try:
            self.topic.append(rows((first, first + 1, first + 2), 1800), producer="p", sequence=promise.sequence + 1)
        except DiskFull:
            return
        finally:
            self.disk.fault = None
        raise Violation("a full disk took an append")

    def fail(self) -> None:
        """An fsync fails; the writer takes nothing more until it is opened anew."""
        promise = self.promise
        first = len(promise.acked)
        self._opened()
        self.promise = replace(promise, flight=(first,))
        self.disk.fault = Fault(1, errno.EIO, only=frozenset({"fsync"}))
        for _ in range(2):
            try:
                self.topic.append(
                    rows((first,), 3), producer="p", sequence=promise.sequence + 1, digest=f"d{promise.sequence + 1}"
                )
            except LogFailed:
                continue
            finally:
                self.disk.fault = None
            raise Violation("an append was taken after an fsync failed")
        self.reopen()
        self._opened()
        self.promise = promise

    def _opened(self) -> None:
        """Open the writer, if it is not."""
        self.topic._group(0)

    # ------------------------------------------------------------ the oracle

    def check(self, *, again: bool = True) -> None:
        """All that was promised, on this disk: it is read, appended to, opened `again`, and read."""
        promise = self.promise
        flight = promise.acked + promise.flight
        self._look(promise.acked, flight)
        # the append that was cut short is tried again, and lands once; else the last one is recognised
        if promise.flight:
            self._send(promise.flight, promise.sequence + 1)
            self._send(promise.flight, promise.sequence + 1, repeated=True)
        elif promise.last:
            self._send(promise.last, promise.sequence, repeated=True)
        self._more(promise.sequence + 2, len(flight), repeated=False)
        if again:
            self.reopen()
            self._more(promise.sequence + 2, len(flight), repeated=True)
        whole = (*flight, len(flight))
        self._look(whole, whole)
        self.log.close()

    def settled(self) -> Promise:
        """What was promised, now that it can be seen what of the operation under way took place.

        Recovery makes durable what it found of records and trims. A hold is its reader's own: it asks for it again.
        """
        promise = self.promise
        self._opened()
        if promise.holding is not None:
            self.topic.hold("r", {0: promise.holding})
        there = self.topic.end()[0] > len(promise.acked)
        held = self.topic.holds().get("r", {}).get(0)
        return Promise(
            promise.acked + promise.flight if there else promise.acked,
            promise.flight if there else promise.last,
            promise.sequence + there,
            start=self.topic.start()[0],
            held=held,
        )

    def _more(self, sequence: int, offset: int, *, repeated: bool) -> None:
        ack = self.topic.append({"n": offset, "text": "x"}, producer="p", sequence=sequence)
        if ack.offsets != {0: (offset, offset + 1)} or ack.repeated is not repeated:
            raise Violation(f"the record after offset {offset} was answered with {ack}")

    def _look(self, least: tuple[int, ...], most: tuple[int, ...]) -> None:
        """What can be read is what was promised, intact and in order."""
        promise = self.promise
        start, end = self.topic.start()[0], self.topic.end()[0]
        if end not in (len(least), len(most)):
            raise Violation(f"{end} records where {len(least)} or {len(most)} should be")
        if start < promise.start or start > max(promise.start, promise.trimming or 0):
            raise Violation(f"the start is {start}, not {promise.start} (or up to {promise.trimming})")
        table = self.topic.read(0, start, end)
        expected = list(most[start:end])
        if table["n"].to_pylist() != expected or table["$offset"].to_pylist() != list(range(start, end)):
            raise Violation(f"{table['n'].to_pylist()} where {expected} should be")
        for number, text in zip(table["n"].to_pylist(), table["text"].to_pylist(), strict=True):
            if text != "x" and text not in (chr(97 + number % 26) * 3, chr(97 + number % 26) * 1800):
                raise Violation(f"the text of {number} is {text[:20]!r}...")
        held = self.topic.holds().get("r", {}).get(0)
        if held not in (promise.held, promise.holding if promise.holding is not None else promise.held):
            raise Violation(f"the reader holds {held}, not {promise.held}")


OPERATIONS: dict[str, Callable[[World], None]] = {
    name: getattr(World, name)
    for name in ("small", "large", "roll", "trim", "hold", "reopen", "kill", "retry", "full", "fail")
}


def run(world: World, names: tuple[str, ...]) -> None:
    for name in names:
        OPERATIONS[name](world)


@dataclass(frozen=True)
class Moment:
    """A disk at the moment of a crash, and what was promised then."""

    disk: SimDisk
    promise: Promise
    step: int


def moments(world: World, work: Callable[[], None]) -> Iterator[Moment]:
    """Every moment of some work at which the machine may crash, the one before and the one after it too."""
    found = [Moment(world.disk.killed(), world.promise, 0)]

    def note(disk: SimDisk) -> None:
        found.append(Moment(disk.killed(), world.promise, len(found)))

    world.disk.at_every_step = note
    work()
    world.disk.at_every_step = None
    found.append(Moment(world.disk.killed(), world.promise, len(found)))
    yield from found
