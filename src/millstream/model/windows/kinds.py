"""Window kinds that are not aligned to one grid: cumulating, session, calendar, count and custom windows.

Aligned windows (tumbling, hopping, everything) are in `model/windows/window.py`. docs/decisions/0008-panes.md defines
each kind; `kernels/windows/assign.py` assigns rows to windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millstream.errors import DefinitionError
from millstream.model.expression import Expr, expr
from millstream.model.origin import here
from millstream.model.types.duration import Duration
from millstream.model.windows.trigger import whole_and_positive
from millstream.model.windows.window import Window, check_overlap

UNITS = ("day", "week", "month", "quarter", "year")

Span = tuple[datetime, datetime]
"""A window as user code sees it: start and end."""


@dataclass(frozen=True)
class Cumulating:
    """Windows that start together every `size` and each end one `step` later, the last one after `size`."""

    step: Duration
    size: Duration
    offset: Duration = field(default=Duration(0))

    is_global = False
    is_tumbling = False

    def slice_sql(self, time: str) -> str:
        """Spark SQL for the start of the step that contains a time (micros)."""
        return f"({time} - pmod({time} - {self.offset.micros}L, {self.step.micros}L))"

    def __str__(self) -> str:
        return f"cumulating {self.size} by {self.step}"


@dataclass(frozen=True)
class SessionWindow:
    """Windows of activity: a record keeps its session open for `gap` (or for the value of `gap_by`)."""

    gap: Duration | None = None
    gap_by: Expr | None = None

    is_global = False
    is_tumbling = False

    def slice_sql(self, time: str) -> str:
        """A session starts at its record's time."""
        return time

    def __str__(self) -> str:
        return f"session, gap {self.gap}" if self.gap is not None else f"session, gap {self.gap_by.spark()}"  # type: ignore[union-attr]


@dataclass(frozen=True)
class Calendar:
    """Days, weeks, months, quarters or years of a time zone."""

    unit: str
    zone: str = "UTC"

    is_global = False
    is_tumbling = True

    def slice_sql(self, time: str) -> str:
        """The kernels find the period: they know the full history of the time zone."""
        return time

    def __str__(self) -> str:
        return f"calendar {self.unit} in {self.zone}"


@dataclass(frozen=True)
class CountWindow:
    """Windows of `size` records of a key in event-time order; one ends every `slide` records."""

    size: int
    slide: int

    is_global = False
    is_tumbling = False

    def slice_sql(self, time: str) -> str:
        """The kernel numbers the records."""
        return time

    def __str__(self) -> str:
        return f"{self.size} records" + (f" every {self.slide}" if self.slide != self.size else "")


@dataclass(frozen=True, eq=False)
class Custom:
    """Windows that a Python function assigns to an event time; `merge` combines windows."""

    assign: Callable[[datetime], Sequence[Span]]
    merge: Callable[[list[Span]], Sequence[Span]] | None = None
    name: str = "custom"

    is_global = False
    is_tumbling = False

    def slice_sql(self, time: str) -> str:
        """The kernel calls the function."""
        return time

    def __str__(self) -> str:
        return f"custom {self.name}" + (", merging" if self.merge is not None else "")


AnyWindow = Window | Cumulating | SessionWindow | Calendar | CountWindow | Custom


def cumulating(
    step: str | timedelta | Duration,
    size: str | timedelta | Duration,
    *,
    offset: str | timedelta | Duration = "0 seconds",
) -> Cumulating:
    """Windows that grow by `step` until they reach `size`, then start over: the day so far, every hour.

    >>> str(cumulating("1 hour", "1 day"))
    'cumulating 1d by 1h'
    """
    by, most = Duration.positive(step, what="window step"), Duration.positive(size, what="window size")
    if most.micros % by.micros:
        raise DefinitionError(
            f"a window size of {most} is not a multiple of its step of {by}",
            detail="the last window would end in the middle of a step",
            hint="e.g. ms.cumulating(step='1 hour', size='1 day')",
            origin=here(),
        )
    check_overlap(most.micros // by.micros)
    return Cumulating(by, most, Duration.of(offset, what="window offset"))


def session(gap: str | timedelta | Duration | None = None, *, gap_by: str | Expr | None = None) -> SessionWindow:
    """Windows of activity that end after a pause of `gap`. Alternatively, `gap_by` is an INTERVAL expression over the
    record.

    >>> str(session("30 minutes"))
    'session, gap 30min'
    >>> str(session(gap_by="CASE WHEN vip THEN INTERVAL '1' HOUR ELSE INTERVAL '5' MINUTE END"))[:20]
    'session, gap CASE WH'
    """
    if (gap is None) == (gap_by is None):
        raise DefinitionError(
            "a session needs a gap: either a duration, or gap_by an expression",
            hint="e.g. ms.session('30 minutes')",
            origin=here(),
        )
    if gap_by is not None:
        return SessionWindow(gap_by=expr(gap_by))
    assert gap is not None
    return SessionWindow(Duration.positive(gap, what="session gap"))


def calendar(unit: str, *, zone: str = "UTC") -> Calendar:
    """Local days, weeks (from Monday), months, quarters or years. A day with a clock change has 23 or 25 hours.

    >>> str(calendar("day", zone="Europe/Berlin"))
    'calendar day in Europe/Berlin'
    """
    if unit not in UNITS:
        raise DefinitionError(f"unknown calendar unit {unit!r}", hint="one of: " + ", ".join(UNITS), origin=here())
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise DefinitionError(
            f"unknown time zone {zone!r}", hint="use a name like 'Europe/Berlin' or 'UTC'", origin=here()
        ) from None
    return Calendar(unit, zone)


def count_window(size: int, *, slide: int | None = None) -> CountWindow:
    """Windows of `size` records per key, in event-time order. With `slide`, one ends every `slide` records.

    >>> str(count_window(100, slide=10))
    '100 records every 10'
    """
    step = size if slide is None else slide
    for what, value in (("size", size), ("slide", step)):
        if not whole_and_positive(value):
            raise DefinitionError(
                f"the {what} of a count window must be a whole number from 1 to 10^15, not {value!r:.40}", origin=here()
            )
    if step > size:
        raise DefinitionError(
            f"a slide of {step} records is longer than the size of {size}",
            detail="records between two windows would belong to none",
            hint="make the slide at most as long as the size",
            origin=here(),
        )
    check_overlap(-(-size // step))
    return CountWindow(size, step)


def custom(
    assign: Callable[[datetime], Sequence[Span]],
    *,
    merge: Callable[[list[Span]], Sequence[Span]] | None = None,
    name: str | None = None,
) -> Custom:
    """Windows that a Python function assigns to an event time: ``assign(time) -> [(start, end), ...]``.

    `merge` receives the sorted windows of one key that contain records, and returns the windows after merging. Each
    input window must lie within one of the windows it returns. Both functions must be deterministic.
    """
    for what, function in (("assign", assign), ("merge", merge)):
        if function is not None and not callable(function):
            raise DefinitionError(f"{what}={function!r} is not a function", origin=here())
    return Custom(assign, merge, name or str(getattr(assign, "__name__", "function")))
