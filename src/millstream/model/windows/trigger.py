"""Triggers: when a window emits a result. Triggers are values that can be combined; docs/decisions/0008-panes.md
defines them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from millstream.errors import DefinitionError
from millstream.model.origin import here
from millstream.model.types.duration import Duration


@dataclass(frozen=True)
class AfterCount:
    """Fires after at least `n` records."""

    n: int

    def __str__(self) -> str:
        return f"after {self.n} record{'s' * (self.n != 1)}"


@dataclass(frozen=True)
class AfterDelay:
    """Fires after a delay in processing time since the first record."""

    delay: Duration
    aligned: bool = False

    def __str__(self) -> str:
        return f"at the next multiple of {self.delay}" if self.aligned else f"{self.delay} after the first record"


@dataclass(frozen=True)
class AfterWatermark:
    """Fires when the watermark passes the end of the window; repeats `early` before that and `late` after it."""

    early: Trigger | None = None
    late: Trigger | None = None

    def __str__(self) -> str:
        parts = [f"early {self.early}"] if self.early else []
        return ", ".join(["when the window closes", *parts, f"late {self.late}" if self.late else "never late"])


@dataclass(frozen=True)
class AfterFraction:
    """Fires when the watermark for a fraction of the data passes the end of the window."""

    fraction: float

    def __str__(self) -> str:
        return f"when {self.fraction:g} of the data has arrived"


@dataclass(frozen=True)
class AnyOf:
    """Fires when any part is ready; then it is finished."""

    parts: tuple[Trigger, ...]

    def __str__(self) -> str:
        return f"any of ({'; '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class AllOf:
    """Fires when all parts are ready; then it is finished."""

    parts: tuple[Trigger, ...]

    def __str__(self) -> str:
        return f"all of ({'; '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class InOrder:
    """Runs its parts one after another."""

    parts: tuple[Trigger, ...]

    def __str__(self) -> str:
        return f"in order ({'; '.join(map(str, self.parts))})"


@dataclass(frozen=True)
class Repeatedly:
    """Repeats its part."""

    part: Trigger

    def __str__(self) -> str:
        if self.part == AfterCount(1):
            return "on change"
        if isinstance(self.part, AfterDelay):
            return f"every {self.part.delay}" + (", aligned" if self.part.aligned else "")
        return f"repeatedly ({self.part})"


@dataclass(frozen=True)
class Once:
    """Runs its part once."""

    part: Trigger

    def __str__(self) -> str:
        return f"once ({self.part})"


@dataclass(frozen=True)
class Until:
    """Runs its part until `stop` is ready."""

    part: Trigger
    stop: Trigger

    def __str__(self) -> str:
        return f"({self.part}) until ({self.stop})"


Trigger = AfterCount | AfterDelay | AfterWatermark | AfterFraction | AnyOf | AllOf | InOrder | Repeatedly | Once | Until

ON_CHANGE = Repeatedly(AfterCount(1))
ON_CLOSE = AfterWatermark(late=ON_CHANGE)


def on_change() -> Trigger:
    """Emit a result in every epoch that changes the window (the default).

    >>> str(on_change())
    'on change'
    """
    return ON_CHANGE


def on_close() -> Trigger:
    """Emit a result when the window closes, and again for every change by late records that are still accepted."""
    return ON_CLOSE


def after_watermark(*, early: Trigger | None = None, late: Trigger | None = ON_CHANGE) -> Trigger:
    """Emit a result when the window closes; before that whenever `early` is ready, after that whenever `late` is ready.

    Both parts repeat. With ``late=None`` the on-time result is the last one.

    >>> str(after_watermark(early=every("1 second")))
    'when the window closes, early every 1s, late on change'
    """
    return AfterWatermark(None if early is None else _trigger(early), None if late is None else _trigger(late))


def after_count(n: int) -> Trigger:
    """Emit a result after at least `n` records. Records are counted at the end of an epoch."""
    if not whole_and_positive(n):
        raise DefinitionError(f"after_count needs a whole number from 1 to 10^15, not {n!r:.40}", origin=here())
    return AfterCount(n)


def after_delay(delay: str | timedelta | Duration, *, aligned: bool = False) -> Trigger:
    """Emit a result after `delay` of processing time since the first record; `aligned`: at the next multiple of `delay`
    instead.
    """
    return AfterDelay(Duration.positive(delay, what="trigger delay"), aligned)


def every(interval: str | timedelta | Duration, *, aligned: bool = False) -> Trigger:
    """Emit a result at every interval of processing time, if there is new data.

    >>> str(every("1 minute", aligned=True))
    'every 1min, aligned'
    """
    return Repeatedly(after_delay(interval, aligned=aligned))


def after_fraction(fraction: float) -> Trigger:
    """Emit a result when this fraction of the window's data is expected to have arrived, based on the disorder observed
    so far.
    """
    value: object = fraction
    if not isinstance(value, int | float) or not 0 < value < 1:
        raise DefinitionError(
            f"after_fraction needs a number between 0 and 1, not {fraction!r}",
            hint="for all of the data, use on_close()",
            origin=here(),
        )
    return AfterFraction(float(fraction))


def any_of(*parts: Trigger) -> Trigger:
    """Emit a result once any of these is ready."""
    return AnyOf(_parts(parts, "any_of"))


def all_of(*parts: Trigger) -> Trigger:
    """Emit a result once all of these are ready."""
    return AllOf(_parts(parts, "all_of"))


def in_order(*parts: Trigger) -> Trigger:
    """Follow the first trigger until it is finished, then the second, and so on."""
    checked = _parts(parts, "in_order")
    for part, behind in pairwise(checked):
        if not finishes(part):
            raise DefinitionError(
                f"in_order can never reach `{behind}`, because `{part}` never finishes",
                hint="wrap it in ms.once(...) or ms.until(...)",
                origin=here(),
            )
    return InOrder(checked)


def repeatedly(part: Trigger) -> Trigger:
    """Emit a result whenever this is ready, then start over."""
    return Repeatedly(_trigger(part))


def once(part: Trigger) -> Trigger:
    """Emit one result, when this is ready."""
    return Once(_trigger(part))


def until(part: Trigger, stop: Trigger) -> Trigger:
    """Follow `part` until `stop` is ready, then emit a last result."""
    return Until(_trigger(part), _trigger(stop))


def parts(trigger: Trigger) -> tuple[Trigger, ...]:
    """The direct parts of a trigger."""
    match trigger:
        case AnyOf() | AllOf() | InOrder():
            return trigger.parts
        case Repeatedly() | Once():
            return (trigger.part,)
        case Until():
            return (trigger.part, trigger.stop)
        case AfterWatermark():
            return tuple(t for t in (trigger.early, trigger.late) if t is not None)
        case _:
            return ()


def walk(trigger: Trigger) -> Iterator[Trigger]:
    """A trigger and all its parts, recursively."""
    yield trigger
    for part in parts(trigger):
        yield from walk(part)


def finishes(trigger: Trigger) -> bool:
    """Whether a trigger can ever finish."""
    match trigger:
        case Repeatedly():
            return False
        case AfterWatermark():
            return trigger.late is None
        case InOrder():
            return all(finishes(p) for p in trigger.parts)
        case _:
            return True


def can_fire(trigger: Trigger, *, closes: bool) -> bool:
    """Whether a trigger can ever fire over windows that close, or (`closes` false) never close."""
    match trigger:
        case AfterFraction():
            return closes
        case AfterWatermark():
            return closes or (trigger.early is not None and can_fire(trigger.early, closes=closes))
        case AllOf():
            return all(can_fire(p, closes=closes) for p in trigger.parts)
        case InOrder():
            return can_fire(trigger.parts[0], closes=closes)
        case AnyOf() | Until():
            return any(can_fire(p, closes=closes) for p in parts(trigger))
        case Repeatedly() | Once():
            return can_fire(trigger.part, closes=closes)
        case _:
            return True


MOST_RECORDS = 10**15
"""The largest number of records that a window or trigger may count; larger numbers would overflow its arithmetic."""


def whole_and_positive(value: object) -> bool:
    """Whether a value is a positive integer within the range of record counts."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_RECORDS


def _parts(triggers: tuple[Trigger, ...], what: str) -> tuple[Trigger, ...]:
    if not triggers:
        raise DefinitionError(f"{what} needs at least one trigger", origin=here())
    return tuple(_trigger(t) for t in triggers)


def _trigger(value: object) -> Trigger:
    if not isinstance(value, Trigger):
        raise DefinitionError(f"{value!r} is not a trigger", hint="e.g. ms.on_close()", origin=here())
    return value
