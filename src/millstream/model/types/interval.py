"""Day-time intervals as text, in Spark's syntax: ``INTERVAL '1 02:03:04.5' DAY TO SECOND``.

An interval is a number of microseconds: an Arrow duration in memory, a timedelta in Python, an INTERVAL in the store.
Intervals of years and months have no fixed length; they are a different type, which columns cannot have.
"""

from __future__ import annotations

import re
from datetime import timedelta

MOST = 2**63 - 1
"""The largest number of microseconds of an interval, in either direction."""
_DAY = 86_400_000_000
_MICRO = timedelta(microseconds=1)
_TEXT = re.compile(
    r"(?:INTERVAL\s+(?P<minus>[+-])?\s*')?\s*(?P<sign>[+-])?(?P<days>\d{1,9}) (?P<hours>\d{1,2}):(?P<minutes>\d{1,2}):"
    r"(?P<seconds>\d{1,2})(?:\.(?P<part>\d{1,9}))?\s*(?P<end>'\s*DAY\s+TO\s+SECOND)?",
    re.IGNORECASE,
)


def micros_of(value: timedelta) -> int:
    """The microseconds of a timedelta, exactly."""
    return value // _MICRO


def interval_text(value: timedelta | int) -> str:
    """An interval in Spark's syntax; a number is in microseconds.

    >>> interval_text(timedelta(hours=25, milliseconds=500))
    "INTERVAL '1 01:00:00.5' DAY TO SECOND"
    >>> interval_text(-1)
    "INTERVAL '-0 00:00:00.000001' DAY TO SECOND"
    """
    micros = value if isinstance(value, int) else micros_of(value)
    days, rest = divmod(abs(micros), _DAY)
    seconds, part = divmod(rest, 1_000_000)
    fraction = f".{part:06d}".rstrip("0") if part else ""
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
    return f"INTERVAL '{'-' if micros < 0 else ''}{days} {clock}' DAY TO SECOND"


def interval_micros_of(text: str) -> int | None:
    """The microseconds of an interval in Spark's syntax, complete or only the quoted part; None if it is not an
    interval.

    >>> interval_micros_of("INTERVAL '1 00:00:01' DAY TO SECOND") == interval_micros_of("1 00:00:01") == 86401000000
    True
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None or text.strip().upper().startswith("INTERVAL") != (match["end"] is not None):
        return None
    days, hours, minutes, seconds = (int(match[n]) for n in ("days", "hours", "minutes", "seconds"))
    if hours > 23 or minutes > 59 or seconds > 59 or (match["part"] or "")[6:].strip("0"):
        return None
    part = int((match["part"] or "").ljust(6, "0")[:6])
    micros = days * _DAY + ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + part
    negative = (match["sign"] == "-") != (match["minus"] == "-")
    return None if micros > MOST else -micros if negative else micros
