"""Durations as users write them: ``"4 seconds"``, ``"1 hour 30 minutes"``, a timedelta."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from millstream.errors import DefinitionError
from millstream.model.origin import here

UNITS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "sec": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "m": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
    "w": 604_800_000_000,
}
LONGEST = 3_652_500 * 86_400_000_000
"""The longest duration in micros, 10,000 years: no sum of durations and event times overflows (`millstream.clock`)."""

_DIGITS = 40
"""Longer numbers are out of range in every unit."""

_PART = re.compile(r"\s*(?P<number>[+-]?\d+(?:\.\d+)?)\s*(?P<unit>[a-zA-Z]+)\s*,?")


@dataclass(frozen=True, order=True)
class Duration:
    """A length of time in whole microseconds.

    >>> Duration.of("1 minute 30 seconds")
    Duration(micros=90000000)
    >>> str(Duration.of("250 ms"))
    '250ms'
    """

    micros: int

    def __post_init__(self) -> None:
        if abs(self.micros) > LONGEST:
            raise DefinitionError(
                f"a duration of {self.micros:,} microseconds is out of range",
                hint="a duration has at most 10,000 years (3652500 days)",
                origin=here(),
            )

    @classmethod
    def of(cls, value: str | timedelta | Duration, *, what: str = "duration") -> Duration:
        """Parse a duration; `what` names it in the error."""
        if isinstance(value, Duration):
            return value
        micros = value // timedelta(microseconds=1) if isinstance(value, timedelta) else None
        if isinstance(value, str):
            micros = _parse(value)
        if micros is not None and abs(micros) > LONGEST:
            raise DefinitionError(
                f"{what} {str(value)[:60]!r} is out of range",
                hint="a duration has at most 10,000 years (3652500 days)",
                origin=here(),
            )
        if micros is not None:
            return cls(micros)
        raise DefinitionError(
            f"{what} {str(value)[:60]!r} is not a duration",
            hint='write it like "10 seconds", "500 ms" or "1 hour 30 minutes"',
            origin=here(),
        )

    @classmethod
    def positive(cls, value: str | timedelta | Duration, *, what: str) -> Duration:
        """Parse a duration that must be longer than zero."""
        duration = cls.of(value, what=what)
        if duration.micros <= 0:
            raise DefinitionError(
                f"{what} must be longer than zero, not {str(value)[:60]!r}", hint='e.g. "10 seconds"', origin=here()
            )
        return duration

    @classmethod
    def not_negative(cls, value: str | timedelta | Duration, *, what: str) -> Duration:
        """Parse a duration that may be zero."""
        duration = cls.of(value, what=what)
        if duration.micros < 0:
            raise DefinitionError(f"{what} must not be negative, not {value!r}", origin=here())
        return duration

    def __str__(self) -> str:
        for unit, name in (
            (86_400_000_000, "d"),
            (3_600_000_000, "h"),
            (60_000_000, "min"),
            (1_000_000, "s"),
            (1_000, "ms"),
        ):
            if self.micros and self.micros % unit == 0:
                return f"{self.micros // unit}{name}"
        return f"{self.micros}us" if self.micros else "0s"


def _parse(text: str) -> int | None:
    position, total, parts = 0, Fraction(0), 0
    while position < len(text.rstrip()):
        match = _PART.match(text, position)
        if match is None:
            return None
        unit = match["unit"].lower()
        factor = UNITS.get(unit) or UNITS.get(unit.removesuffix("s"))
        if factor is None:
            return None
        if len(match["number"]) > _DIGITS:
            return LONGEST + 1
        total += Fraction(match["number"]) * factor
        position, parts = match.end(), parts + 1
    return round(total) if parts else None
