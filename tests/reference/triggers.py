"""Triggers of the reference: the table of docs/decisions/0008-panes.md, one class per row.

A trigger is a value; `begin` gives a running copy of it that sees records, says whether it is ready, and fires.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """What a trigger looks at: processing time, whether W has reached the window's end, and the same for fractions."""

    now: int
    ended: bool
    ended_for: Callable[[float], bool]


class Running:
    """A trigger that has begun. `fire` is called only when it is ready, and never once it is finished."""

    finished = False

    def see(self, count: int, first: int) -> None:
        """Some records came; `first` is the processing time of the earliest."""
        raise NotImplementedError

    def ready(self, moment: Moment) -> bool:
        raise NotImplementedError

    def fire(self, moment: Moment) -> None:
        raise NotImplementedError


class Trigger:
    def begin(self) -> Running:
        raise NotImplementedError


# ---------------------------------------------------------------- after_count


@dataclass(frozen=True)
class AfterCount(Trigger):
    n: int

    def begin(self) -> Running:
        return _AfterCount(self.n)


class _AfterCount(Running):
    def __init__(self, n: int) -> None:
        self.n, self.seen = n, 0

    def see(self, count: int, first: int) -> None:
        self.seen += count

    def ready(self, moment: Moment) -> bool:
        return self.seen >= self.n

    def fire(self, moment: Moment) -> None:
        self.finished = True


# ---------------------------------------------------------------- after_delay


@dataclass(frozen=True)
class AfterDelay(Trigger):
    delay: int
    aligned: bool = False

    def begin(self) -> Running:
        return _AfterDelay(self.delay, self.aligned)


class _AfterDelay(Running):
    def __init__(self, delay: int, aligned: bool) -> None:
        self.delay, self.aligned = delay, aligned
        self.first: int | None = None

    def see(self, count: int, first: int) -> None:
        if self.first is None:
            self.first = first

    def ready(self, moment: Moment) -> bool:
        if self.first is None:
            return False
        if self.aligned:
            # OPEN: "the next multiple after" is read strictly: a record that comes on a multiple waits for the next.
            return moment.now >= (self.first // self.delay + 1) * self.delay
        return moment.now >= self.first + self.delay

    def fire(self, moment: Moment) -> None:
        self.finished = True


# ---------------------------------------------------------------- after_watermark


@dataclass(frozen=True)
class AfterWatermark(Trigger):
    early: Trigger | None = None
    late: Trigger | None = None

    def begin(self) -> Running:
        return _AfterWatermark(self.early, self.late)


class _AfterWatermark(Running):
    """`early` until the on-time firing, `late` after it: each is repeated, and sees only the records of its time."""

    def __init__(self, early: Trigger | None, late: Trigger | None) -> None:
        self.on_time_fired = False
        self.early = None if early is None else Repeatedly(early).begin()
        self.late = None if late is None else Repeatedly(late).begin()

    def see(self, count: int, first: int) -> None:
        part = self.late if self.on_time_fired else self.early
        if part is not None:
            part.see(count, first)

    def ready(self, moment: Moment) -> bool:
        if self.on_time_fired:
            return self.late is not None and self.late.ready(moment)
        return moment.ended or (self.early is not None and self.early.ready(moment))

    def fire(self, moment: Moment) -> None:
        # OPEN: inside all_of the on-time firing may have to wait for other parts; until it has fired, records are
        # still seen by `early`, also those that come after the end.
        if self.on_time_fired:
            assert self.late is not None
            self.late.fire(moment)
        elif moment.ended:
            self.on_time_fired = True
            self.finished = self.late is None
        else:
            assert self.early is not None
            self.early.fire(moment)


# ---------------------------------------------------------------- after_fraction


@dataclass(frozen=True)
class AfterFraction(Trigger):
    fraction: float

    def begin(self) -> Running:
        return _AfterFraction(self.fraction)


class _AfterFraction(Running):
    def __init__(self, fraction: float) -> None:
        self.fraction = fraction

    def see(self, count: int, first: int) -> None:
        pass

    def ready(self, moment: Moment) -> bool:
        return moment.ended_for(self.fraction)

    def fire(self, moment: Moment) -> None:
        self.finished = True


# ---------------------------------------------------------------- any_of, all_of


@dataclass(frozen=True)
class AnyOf(Trigger):
    parts: tuple[Trigger, ...]

    def begin(self) -> Running:
        return _Together(any, [p.begin() for p in self.parts])


@dataclass(frozen=True)
class AllOf(Trigger):
    parts: tuple[Trigger, ...]

    def begin(self) -> Running:
        return _Together(all, [p.begin() for p in self.parts])


class _Together(Running):
    def __init__(self, enough: Callable[[list[bool]], bool], parts: list[Running]) -> None:
        self.enough, self.parts = enough, parts

    def see(self, count: int, first: int) -> None:
        for part in self.parts:
            part.see(count, first)

    def ready(self, moment: Moment) -> bool:
        return self.enough([part.ready(moment) for part in self.parts])

    def fire(self, moment: Moment) -> None:
        for part in self.parts:
            if part.ready(moment):
                part.fire(moment)
        self.finished = True


# ---------------------------------------------------------------- in_order


@dataclass(frozen=True)
class InOrder(Trigger):
    parts: tuple[Trigger, ...]

    def begin(self) -> Running:
        return _InOrder(list(self.parts))


class _InOrder(Running):
    def __init__(self, parts: list[Trigger]) -> None:
        self.present, *self.later = [p.begin() for p in parts]

    def see(self, count: int, first: int) -> None:
        self.present.see(count, first)

    def ready(self, moment: Moment) -> bool:
        return self.present.ready(moment)

    def fire(self, moment: Moment) -> None:
        self.present.fire(moment)
        if not self.present.finished:
            return
        if self.later:
            # The next part begins with nothing seen, and is looked at the next time the window is looked at.
            self.present, *self.later = self.later
        else:
            self.finished = True


# ---------------------------------------------------------------- repeatedly, once, until


@dataclass(frozen=True)
class Repeatedly(Trigger):
    part: Trigger

    def begin(self) -> Running:
        return _Repeatedly(self.part)


class _Repeatedly(Running):
    def __init__(self, trigger: Trigger) -> None:
        self.trigger, self.part = trigger, trigger.begin()

    def see(self, count: int, first: int) -> None:
        self.part.see(count, first)

    def ready(self, moment: Moment) -> bool:
        return self.part.ready(moment)

    def fire(self, moment: Moment) -> None:
        self.part.fire(moment)
        if self.part.finished:
            self.part = self.trigger.begin()


@dataclass(frozen=True)
class Once(Trigger):
    part: Trigger

    def begin(self) -> Running:
        return _Once(self.part.begin())


class _Once(Running):
    def __init__(self, part: Running) -> None:
        self.part = part

    def see(self, count: int, first: int) -> None:
        self.part.see(count, first)

    def ready(self, moment: Moment) -> bool:
        return self.part.ready(moment)

    def fire(self, moment: Moment) -> None:
        self.part.fire(moment)
        self.finished = True


@dataclass(frozen=True)
class Until(Trigger):
    part: Trigger
    stop: Trigger

    def begin(self) -> Running:
        return _Until(self.part.begin(), self.stop.begin())


class _Until(Running):
    def __init__(self, part: Running, stop: Running) -> None:
        self.part, self.stop = part, stop

    def see(self, count: int, first: int) -> None:
        self.part.see(count, first)
        self.stop.see(count, first)

    def ready(self, moment: Moment) -> bool:
        return self.part.ready(moment) or self.stop.ready(moment)

    def fire(self, moment: Moment) -> None:
        # OPEN: `stop` may itself be a trigger that is repeated; the first time it is ready ends it all.
        self.finished = self.stop.ready(moment)
        if self.part.ready(moment):
            self.part.fire(moment)
            self.finished = self.finished or self.part.finished


def finishes(trigger: Trigger) -> bool:
    """Whether it can ever be finished; nothing but the last part of in_order may be one that cannot."""
    match trigger:
        case Repeatedly():
            return False
        case AfterWatermark():
            return trigger.late is None
        case InOrder():
            return finishes(trigger.parts[-1])
        case _:
            return True


# ---------------------------------------------------------------- short names, as on the page

ON_CHANGE = Repeatedly(AfterCount(1))


def on_change() -> Trigger:
    return ON_CHANGE


def on_close() -> Trigger:
    return after_watermark()


def every(delay: int, *, aligned: bool = False) -> Trigger:
    return Repeatedly(AfterDelay(delay, aligned))


def after_count(n: int) -> Trigger:
    return AfterCount(n)


def after_delay(delay: int, *, aligned: bool = False) -> Trigger:
    return AfterDelay(delay, aligned)


def after_watermark(early: Trigger | None = None, late: Trigger | None = ON_CHANGE) -> Trigger:
    return AfterWatermark(early, late)


def after_fraction(fraction: float) -> Trigger:
    return AfterFraction(fraction)


def any_of(*parts: Trigger) -> Trigger:
    return AnyOf(parts)


def all_of(*parts: Trigger) -> Trigger:
    return AllOf(parts)


def in_order(*parts: Trigger) -> Trigger:
    return InOrder(parts)


def repeatedly(part: Trigger) -> Trigger:
    return Repeatedly(part)


def once(part: Trigger) -> Trigger:
    return Once(part)


def until(part: Trigger, stop: Trigger) -> Trigger:
    return Until(part, stop)
