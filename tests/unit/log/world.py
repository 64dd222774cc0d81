"""A log on a simulated disk, the operations on it, and the oracle: what must be there after a crash, and what may be.

A record is a number; records are numbered in the order in which they are sent, and those of a topic that was made anew
are numbered higher. Every append has a producer and a sequence, so that an append that was cut short is tried again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pyarrow as pa

from millstream.clock import ManualClock
from millstream.errors import DiskFull, DuplicateName, LogFailed, UnknownName
from millstream.log.log import Log
from millstream.log.topic import Topic

from .disk import Fault, SimDisk

ROOT = Path("/home/log")
SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})
MADE_ANEW = 2600
"""By so much higher are the numbers of a topic than those of the one that had its name before."""


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
    there: bool = True
    """Whether there is a topic."""
    changing: bool = False
    """Whether it is being made or dropped: then it is there whole, or it is not there."""
    first: int = 0
    """The number of its first record."""
    id: str = ""
    before: Promise | None = None
    """The topic that had the name, as long as its drop may be undone by a crash."""


def rows(numbers: tuple[int, ...], width: int) -> list[dict[str, object]]:
    return [{"n": n, "text": chr(97 + n % 26) * width} for n in numbers]


def width_of(numbers: tuple[int, ...]) -> int:
    return 3 if len(numbers) == 1 else 1800


class World:
    """A log, its disk, and what was promised."""

    def __init__(self, disk: SimDisk | None = None, promise: Promise | None = None) -> None:
        self.promise = promise or Promise()
        self.clock = ManualClock(1_000_000)
        self.disk = with_a_topic() if disk is None else disk
        self._open()
        if promise is None:
            self.promise = Promise(id=self.topic.id)

    def _open(self) -> None:
        self.log = Log(ROOT, self.clock, self.disk)
        if self.log.exists("t"):
            self.log.topic("t")

    @property
    def topic(self) -> Topic:
        return self.log.topic("t")

    # ------------------------------------------------------------ operations

    def create(self) -> None:
        """Make the topic; refused if it is there."""
        promise = self.promise = self.found()
        if promise.there:
            self._refused(DuplicateName, lambda: self.log.create("t", SCHEMA))
            return
        self.promise = replace(promise, changing=True)
        made = self.log.create("t", SCHEMA)
        self.promise = Promise(first=promise.first, id=made.id)

    def drop(self) -> None:
        """Drop the topic; refused if it is not there, and then it does not come back either."""
        promise = self.promise = self.found()
        self.promise = replace(promise, changing=promise.there)
        if promise.there:
            self.log.drop("t")
        else:
            self._refused(UnknownName, lambda: self.log.drop("t"))
        self.promise = without(promise)

    def _refused(self, why: type[Exception], work: Callable[[], object]) -> None:
        try:
            work()
        except why:
            return
        raise Violation(f"it was not refused as {why.__name__}")

    def append(self, count: int) -> None:
        promise = self.promise
        first = promise.first + len(promise.acked)
        numbers = tuple(range(first, first + count))
        self.promise = replace(promise, flight=numbers)
        self._send(numbers, promise.sequence + 1)
        self.promise = replace(promise, acked=promise.acked + numbers, last=numbers, sequence=promise.sequence + 1)

    def _send(self, numbers: tuple[int, ...], sequence: int, *, repeated: bool = False) -> None:
        given = rows(numbers, width_of(numbers))
        ack = self.topic.append(given, producer="p", sequence=sequence, digest=f"d{sequence}")
        begin = numbers[0] - self.promise.first
        if ack.offsets != {0: (begin, begin + len(numbers))} or (repeated and not ack.repeated):
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
        first = promise.first + len(promise.acked)
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
        first = promise.first + len(promise.acked)
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
        self.promise = self.settled()

    def _opened(self) -> None:
        """Open the writer, if it is not; make the topic, if it is not there."""
        if not self.found().there:
            self.create()
        self.topic._group(0)

    # ------------------------------------------------------------ the oracle

    def found(self) -> Promise:
        """What was promised of the topic that is there, or of there being none."""
        promise, before = self.promise, self.promise.before
        if not self.log.exists("t"):
            if promise.there and not promise.changing:
                raise Violation("the topic is gone")
            return without(promise, back=promise) if promise.there else replace(promise, changing=False)
        made = self.topic.id
        if promise.there:
            if made != promise.id:
                raise Violation(f"there is the topic {made}, not {promise.id}")
            return replace(promise, changing=False)
        if before is not None and made == before.id:
            return before
        if not promise.changing:
            raise Violation("there is a topic that nobody made, or that was dropped")
        return Promise(first=promise.first, id=made)

    def check(self, *, again: bool = True) -> None:
        """All that was promised, on this disk: it is read, appended to, opened `again`, and read."""
        self.promise = self.found()
        if not self.promise.there:
            self.create()
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
        promise = self.promise = self.found()
        if not promise.there:
            return promise
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
            first=promise.first,
            id=promise.id,
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


def with_a_topic() -> SimDisk:
    """A disk with an empty topic, all of it durable."""
    disk = SimDisk()
    log = Log(ROOT, ManualClock(1_000_000), disk)
    log.create("t", SCHEMA)
    log.close()
    return disk.restarted({f: {n: x.current for n, x in i.items()} for f, i in disk.names.items()})


@cache
def _first() -> SimDisk:
    return with_a_topic()


def with_the_same_topic() -> SimDisk:
    """The same topic every time, so that equal work leaves equal disks."""
    return _first().killed()


def without(promise: Promise, back: Promise | None = None) -> Promise:
    """What is promised when the topic was dropped; it may be `back` after a crash."""
    first = promise.first + MADE_ANEW if promise.there else promise.first
    return Promise(there=False, first=first, before=None if back is None else replace(back, changing=False))


WITHIN: dict[str, Callable[[World], None]] = {
    name: getattr(World, name) for name in ("small", "large", "roll", "trim", "hold", "retry", "full", "fail")
}
"""What is done with a topic that is there."""
LIVES: dict[str, Callable[[World], None]] = {name: getattr(World, name) for name in ("create", "drop")}
OPERATIONS = {**WITHIN, **{name: getattr(World, name) for name in ("reopen", "kill")}, **LIVES}


def run(world: World, names: tuple[str, ...]) -> None:
    """Do these; what needs a topic is left out when there is none."""
    for name in names:
        if name not in WITHIN or world.found().there:
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
