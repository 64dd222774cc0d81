"""Decides what follows the failure of a flow: a restart after a delay, a search for poison records, or the end.

It only decides; `run.py` acts. Randomness is an argument and waiting happens elsewhere, so a test needs neither.
"""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from millstream.errors import (
    DefinitionError,
    DiskFull,
    EngineFailed,
    EngineLost,
    EngineMissing,
    HomeDamaged,
    HomeInUse,
    HomeTooNew,
    LeaseLost,
    MemoryExceeded,
    MillstreamError,
    PlanError,
    RecoveryFailed,
    RunError,
    UserCodeFailed,
)
from millstream.model.origin import here
from millstream.model.types.duration import Duration

FINAL = (
    *(DefinitionError, PlanError, HomeDamaged, HomeTooNew),
    *(RecoveryFailed, LeaseLost, EngineMissing),
)
"""Errors that a restart cannot fix."""

SAME = 3
"""The number of identical failures after which an epoch is searched for poison records."""

GOOD_EPOCHS = 10
"""The number of consecutive epochs after which the delay starts again at its first value."""

SET_APART, STOP = "set apart", "stop"
POISON = (SET_APART, STOP)
"""How to treat a record that makes its epoch fail."""


@dataclass(frozen=True)
class Restarts:
    """The restart policy of a flow: after how many failures without a committed epoch in between it ends, and the delay
    before each restart: `first`, then doubled every time, up to `most`. A `limit` of 0 or 1 means no restarts.
    """

    limit: int = 5
    first: str | timedelta | Duration = "0.5 seconds"
    most: str | timedelta | Duration = "30 seconds"

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise DefinitionError(f"the limit of restarts must not be negative, not {self.limit}", origin=here())
        Duration.not_negative(self.first, what="first")
        Duration.not_negative(self.most, what="most")

    def seconds(self, failures: int, chance: float) -> float:
        """The delay after this many failures; `chance` (0 to 1) varies it by a quarter, so that flows do not restart in
        lockstep.
        """
        most = Duration.of(self.most).micros / 1e6
        wait = Duration.of(self.first).micros / 1e6 * float(2 ** min(failures - 1, 30))
        return min(most, wait * (0.75 + 0.5 * chance))


class Then(Enum):
    """What follows a failure."""

    AGAIN = "start again"
    SEARCH = "search the epoch for poison records, and continue"
    FAIL = "end"
    CRASH_LOOP = "end: it has failed too often"


@dataclass(frozen=True)
class Verdict:
    """What follows a failure, after how many seconds; `number` counts the failures since the last epoch."""

    then: Then
    wait: float = 0.0
    number: int = 0


class Supervisor:
    """Counts the failures of one flow, and the epochs between them."""

    def __init__(
        self, restarts: Restarts | None, poison: str = SET_APART, *, chance: Callable[[], float] = random.random
    ) -> None:
        if poison not in POISON:
            raise DefinitionError(
                f"unknown way to treat poison records: {poison!r}", hint="one of: " + ", ".join(POISON), origin=here()
            )
        self.restarts = restarts if restarts is not None else Restarts(limit=0)
        self._poison = poison
        self._chance = chance
        self._up = False
        self._failures = self._in_a_row = self._good = self._same = self._suspect = 0
        self._last: tuple[int, str, str] | None = None

    def came_up(self) -> None:
        """The flow has determined its position and starts its epochs."""
        self._up = True

    def good(self) -> None:
        """An epoch was committed."""
        self._failures = 0
        self._good += 1
        if self._good >= GOOD_EPOCHS:
            self._in_a_row = 0

    def failed(self, error: MillstreamError, epoch: int) -> Verdict:
        """Decide what follows a failure in this epoch, or before it."""
        self._failures, self._in_a_row, self._good = self._failures + 1, self._in_a_row + 1, 0
        number = self._failures
        known = self._up or isinstance(error, HomeInUse)  # a reader has the store open and will release it
        if isinstance(error, FINAL) or not known or not self.restarts.limit:  # the caller gets the error
            return Verdict(Then.FAIL, number=number)
        last = number >= self.restarts.limit
        if self._is_enough(error, epoch, last=last):
            return Verdict(Then.SEARCH if self._poison == SET_APART else Then.FAIL, number=number)
        if last:
            return Verdict(Then.CRASH_LOOP, number=number)
        return Verdict(Then.AGAIN, self.restarts.seconds(self._in_a_row, self._chance()), number)

    def _is_enough(self, error: MillstreamError, epoch: int, *, last: bool) -> bool:
        """Whether an epoch has failed often enough to be searched: in the same way (numbers in a message may differ,
        because another record may come first), or in any way that a record may cause, before the flow would end.
        """
        sign = (epoch, type(error).__name__, re.sub(r"\d+", "0", head(error)))
        suspect = is_suspect(error)
        self._same = self._same + 1 if sign == self._last and suspect else int(suspect)
        self._suspect = (
            self._suspect + 1 if suspect and self._last is not None and self._last[0] == epoch else int(suspect)
        )
        self._last = sign
        if self._same >= SAME or (last and suspect and self._suspect >= SAME):
            self._same = self._suspect = 0
            return True
        return False


def is_suspect(error: MillstreamError) -> bool:
    """Whether a record may be the cause: user code, or work on it, failed while the engine itself is healthy."""
    if isinstance(error, EngineLost):
        return False
    return isinstance(error, UserCodeFailed | EngineFailed | MemoryExceeded) or type(error) is RunError


def head(error: MillstreamError, most: int = 200) -> str:
    """The first line of the message of an error."""
    return (error.message.strip().splitlines() or [type(error).__name__])[0][:most]


def reason(error: MillstreamError, most: int = 300) -> str:
    """The message of an error and its cause, in one line."""
    why = (error.detail or "").strip().partition("\n")[0].partition("the full report is in ")[0].rstrip("; ")
    plain = re.sub(r"\s*(If necessary[, ].*?|SQLSTATE: \w+)(?=$| in )", "", why)
    return f"{head(error)}: {plain}"[:most] if plain and not isinstance(error, UserCodeFailed) else head(error)


def failure(flow: str, error: BaseException) -> MillstreamError:
    """Convert what stopped a flow to a Millstream error. A panic in Polars is not an Exception."""
    if isinstance(error, MillstreamError):
        return error
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        known: MillstreamError = DiskFull(
            "no space left on the disk", hint="free some space and start again; nothing is lost"
        )
    else:
        first = next(iter(str(error).strip().splitlines()), "") or "an unexpected fault"
        known = RunError(f"the flow `{flow}` stopped: {first}")
    known.__cause__ = error
    return known
