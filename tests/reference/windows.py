"""Windows of the reference: to which stretches of time a record belongs (docs/decisions/0008-panes.md, Windows).

All times are whole microseconds. Sessions and custom windows with `merge` say here what a record's window is before
merging; count windows have no borders before their records are numbered (see model.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

BEGINNING = -(2**62)
ALL_READ = 2**62 - 1

Span = tuple[int, int]
"""Start and end; the start belongs to the window, the end does not."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Window:
    merges = False

    def of(self, record: dict[str, Any]) -> list[Span]:
        """The windows a record belongs to."""
        raise NotImplementedError

    def merged(self, spans: list[Span]) -> list[Span]:
        """The windows that these (of one key, sorted, all different) become."""
        raise NotImplementedError


@dataclass(frozen=True)
class Tumbling(Window):
    size: int
    offset: int = 0

    def of(self, record: dict[str, Any]) -> list[Span]:
        start = (record["t"] - self.offset) // self.size * self.size + self.offset
        return [(start, start + self.size)]


@dataclass(frozen=True)
class Hopping(Window):
    size: int
    slide: int
    offset: int = 0

    def of(self, record: dict[str, Any]) -> list[Span]:
        spans = []
        start = (record["t"] - self.offset) // self.slide * self.slide + self.offset
        while start + self.size > record["t"]:
            spans.append((start, start + self.size))
            start -= self.slide
        return sorted(spans)


@dataclass(frozen=True)
class Cumulating(Window):
    step: int
    size: int
    offset: int = 0

    def of(self, record: dict[str, Any]) -> list[Span]:
        start = (record["t"] - self.offset) // self.size * self.size + self.offset
        ends = range(start + self.step, start + self.size + 1, self.step)
        return [(start, end) for end in ends if record["t"] < end]


@dataclass(frozen=True)
class Session(Window):
    """`gap` None: each record brings its own, in the field "gap"."""

    gap: int | None = None

    merges = True

    def of(self, record: dict[str, Any]) -> list[Span]:
        gap = record["gap"] if self.gap is None else self.gap
        if gap is None or gap <= 0:
            return []
        return [(record["t"], record["t"] + gap)]

    def merged(self, spans: list[Span]) -> list[Span]:
        become: list[Span] = []
        for start, end in sorted(spans):
            if become and start <= become[-1][1]:
                become[-1] = (become[-1][0], max(become[-1][1], end))
            else:
                become.append((start, end))
        return become


@dataclass(frozen=True)
class Calendar(Window):
    unit: str
    zone: str = "UTC"

    def of(self, record: dict[str, Any]) -> list[Span]:
        local = (EPOCH + timedelta(microseconds=record["t"])).astimezone(ZoneInfo(self.zone))
        first = self.first_day(local.date())
        after = self.next_period(first)
        start, end = self.first_instant(first), self.first_instant(after)
        # OPEN: where clocks are set back across midnight (St. John's, 2011: from 00:01 to 23:01) a local day is not one
        # stretch. Days are then cut at the first instant of each, so that windows stay stretches without gaps.
        if record["t"] >= end:
            start, end = end, self.first_instant(self.next_period(after))
        assert start <= record["t"] < end
        return [(start, end)]

    def first_day(self, day: date) -> date:
        match self.unit:
            case "day":
                return day
            case "week":
                return day - timedelta(days=day.weekday())
            case "month":
                return day.replace(day=1)
            case "quarter":
                return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
            case "year":
                return day.replace(month=1, day=1)
        raise ValueError(self.unit)

    def next_period(self, first: date) -> date:
        """The first day of the next period: a few days after the last day of this one lies in it."""
        longest = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}[self.unit]
        return self.first_day(first + timedelta(days=longest))

    def first_instant(self, day: date) -> int:
        """Local midnight; the earlier one of two; where there is none, the instant at which clocks jump over it."""
        zone = ZoneInfo(self.zone)
        midnight = datetime(day.year, day.month, day.day, tzinfo=zone)
        instant = _micros(midnight)
        if _local(instant, zone) == midnight.replace(tzinfo=None):
            return instant
        # In the gap: read with the offset after the jump (fold=1) it lies before the jump, with the one before, at or
        # after it. Halve down to the first instant with the new offset.
        before, at = _micros(midnight.replace(fold=1)) - 1, instant
        while at - before > 1:
            middle = (before + at) // 2
            if _local(middle, zone) < midnight.replace(tzinfo=None):
                before = middle
            else:
                at = middle
        return at


def _micros(instant: datetime) -> int:
    return (instant.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)


def _local(instant: int, zone: ZoneInfo) -> datetime:
    return (EPOCH + timedelta(microseconds=instant)).astimezone(zone).replace(tzinfo=None)


@dataclass(frozen=True)
class Count(Window):
    size: int
    slide: int | None = None

    @property
    def every(self) -> int:
        return self.size if self.slide is None else self.slide

    def numbers(self, index: int) -> range:
        """The numbers of the records that window `index` holds when it is complete."""
        return range(max(0, (index + 1) * self.every - self.size), (index + 1) * self.every)


@dataclass(frozen=True, eq=False)
class Custom(Window):
    assign: Callable[[int], list[Span]]
    merge: Callable[[list[Span]], list[Span]] | None = None

    def of(self, record: dict[str, Any]) -> list[Span]:
        spans = sorted(set(self.assign(record["t"])))
        # A record in two windows that become one would be in it twice, or would have to be kept to tell.
        assert self.merge is None or len(spans) <= 1, "refused"
        return spans

    @property
    def merges(self) -> bool:  # type: ignore[override]
        return self.merge is not None

    def merged(self, spans: list[Span]) -> list[Span]:
        assert self.merge is not None
        return list(self.merge(spans))


@dataclass(frozen=True)
class Everything(Window):
    """From the beginning to the end of time, which has come when all sources are read."""

    def of(self, record: dict[str, Any]) -> list[Span]:
        return [(BEGINNING, ALL_READ)]
