"""Clocks, which provide processing time as an explicit input.

Millstream reads the current time only through a Clock, so a test can set the time and a replay can repeat it. Instants
are whole microseconds since 1970 in UTC (`Micros`).
"""

from __future__ import annotations

import time
from typing import Protocol, TypeAlias

Micros: TypeAlias = int
"""An instant, in microseconds since 1970-01-01T00:00:00Z."""

BEGINNING: Micros = -(2**62)
"""Before every event: the watermark of a source that has not delivered any record yet."""

END_OF_TIME: Micros = 2**62
"""After every event: the end of the global window."""

ALL_READ: Micros = 2**62 - 1
"""The watermark of a bounded source that was read to its end. Every window that has an end is closed."""


EARLIEST: Micros = -62_135_596_800_000_000
"""The earliest valid event time: the beginning of the year 1."""

LATEST: Micros = 253_402_300_799_999_999
"""The latest valid event time: the end of the year 9999.

With event times between these two and durations of at most 10,000 years (`model/types/duration.py`), no sum of an event
time, window sizes, offsets and lateness overflows a 64-bit number or passes BEGINNING or ALL_READ.
"""


class Clock(Protocol):
    """Provides processing time. It never goes backwards."""

    def now(self) -> Micros:
        """Return the current processing time."""
        ...


class SystemClock:
    """The system clock, prevented from going backwards."""

    def __init__(self) -> None:
        self._last = 0

    def now(self) -> Micros:
        """Return wall-clock time, or the previous value if the wall clock was set back."""
        self._last = max(self._last, time.time_ns() // 1000)
        return self._last


class ManualClock:
    """A clock that changes only when it is advanced or set.

    >>> clock = ManualClock(0)
    >>> clock.advance(5_000_000)
    >>> clock.now()
    5000000
    """

    def __init__(self, start: int = 1_767_225_600_000_000) -> None:
        self._now = start

    def now(self) -> Micros:
        """Return the time that was last set."""
        return self._now

    def advance(self, micros: int) -> None:
        """Move the clock forward by this many microseconds."""
        if micros < 0:
            msg = "a clock cannot go backwards"
            raise ValueError(msg)
        self._now += micros

    def set(self, instant: int) -> None:
        """Move the clock to an instant that is not before the current one."""
        self.advance(instant - self._now)
