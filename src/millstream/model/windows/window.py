"""Aligned windows: which ranges of event time a record belongs to.

Aligned windows are stored as **slices**: non-overlapping ranges of time, so that a record is counted once regardless of
how many windows contain it. A window is the union of whole slices; a slice expires when the last window that contains
it closes. All instants are microseconds (see `millstream.clock`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import timedelta

from millstream.clock import END_OF_TIME
from millstream.errors import DefinitionError
from millstream.model.origin import here
from millstream.model.types.duration import Duration

MOST_WINDOWS = 10_000
"""The most windows that one record may belong to. Each has its own result, so a record costs that many rows."""


def check_overlap(windows: int) -> None:
    """Reject windows that overlap so much that a record would belong to too many of them."""
    if windows > MOST_WINDOWS:
        raise DefinitionError(
            f"every record would belong to {windows:,} windows",
            detail=f"at most {MOST_WINDOWS:,} are allowed, because each of them has a result",
            hint="make the windows shorter, or the step from one window to the next longer",
            origin=here(),
        )


@dataclass(frozen=True)
class Window:
    """Aligned windows of `size`, one starting every `slide`; both None for the global window.

    Created by `tumbling`, `hopping` and `everything`.

    >>> w = hopping("10 seconds", "4 seconds")
    >>> w.slice.micros
    2000000
    """

    size: Duration | None = None
    slide: Duration | None = None
    offset: Duration = field(default=Duration(0))

    @property
    def is_global(self) -> bool:
        """Whether this is the one window over all of time, which never closes."""
        return self.size is None

    @property
    def is_tumbling(self) -> bool:
        """Whether windows do not overlap, so that a slice is a window."""
        return self.size is not None and self.size == self.slide

    @property
    def slice(self) -> Duration:
        """The length of a slice: the largest one whose grid contains every window bound."""
        if self.size is None or self.slide is None:
            return Duration(0)
        return Duration(math.gcd(self.size.micros, self.slide.micros))

    def slice_sql(self, time: str) -> str:
        """Spark SQL for the start of the slice that contains a time (micros)."""
        if self.is_global:
            return "0L"
        width, offset = self.slice.micros, self.offset.micros
        return f"({time} - pmod({time} - {offset}L, {width}L))"

    def first_end(self, start: int) -> int:
        """The end of the earliest window that contains the slice starting at `start`."""
        if self.size is None or self.slide is None:
            return END_OF_TIME
        slide = self.slide.micros
        after_slice = start + self.slice.micros - self.size.micros - self.offset.micros
        return -(-after_slice // slide) * slide + self.offset.micros + self.size.micros

    def expiry(self, start: int) -> int:
        """The end of the latest window that contains the slice starting at `start`."""
        if self.size is None or self.slide is None:
            return END_OF_TIME
        slide, offset = self.slide.micros, self.offset.micros
        return (start - offset) // slide * slide + offset + self.size.micros

    def __str__(self) -> str:
        if self.size is None:
            return "global"
        name = f"tumbling {self.size}" if self.is_tumbling else f"hopping {self.size} every {self.slide}"
        return name + (f" offset {self.offset}" if self.offset.micros else "")


def tumbling(size: str | timedelta | Duration, *, offset: str | timedelta | Duration = "0 seconds") -> Window:
    """Consecutive windows of one size that do not overlap.

    >>> str(tumbling("10 seconds"))
    'tumbling 10s'
    """
    length = Duration.positive(size, what="window size")
    return Window(length, length, Duration.of(offset, what="window offset"))


def hopping(
    size: str | timedelta | Duration,
    slide: str | timedelta | Duration,
    *,
    offset: str | timedelta | Duration = "0 seconds",
) -> Window:
    """Windows of `size`, one starting every `slide`; they overlap.

    >>> str(hopping("1 minute", "10 seconds"))
    'hopping 1min every 10s'
    """
    length, step = Duration.positive(size, what="window size"), Duration.positive(slide, what="window slide")
    if step > length:
        raise DefinitionError(
            f"a window slide of {step} is longer than its size of {length}",
            detail="records between two windows would belong to none",
            hint="make the slide at most as long as the size",
            origin=here(),
        )
    check_overlap(-(-length.micros // step.micros))
    return Window(length, step, Duration.of(offset, what="window offset"))


def everything() -> Window:
    """The global window: one result per key over all of time."""
    return Window()
