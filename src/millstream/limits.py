"""Limits on ad-hoc questions: how long one may take, how much memory, and whether anybody still waits for the answer.

`Limits` is what is allowed. `interruptible` says, for all work of this thread inside it, how to find out that nobody
waits for the answer any more. `Watch` checks both from its own thread while a question runs, and stops the question.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from millstream.errors import Cancelled, LimitExceeded, QueryError
from millstream.settings import QUERY_MEMORY, QUERY_TIMEOUT, find
from millstream.units import checked_seconds, spoken_bytes

_TICK = 0.05


def _never() -> bool:
    return False


_GONE: ContextVar[Callable[[], bool]] = ContextVar("gone", default=_never)


@dataclass(frozen=True)
class Limits:
    """What one question may use. A limit of 0 is none."""

    seconds: float = 60.0
    bytes: int = 1 << 30

    @staticmethod
    def of(seconds: float | None = None, memory: str | None = None, *, home: Path | None = None) -> Limits:
        """Limits as given, or those of the settings `query_timeout` and `query_memory`."""
        timeout = find(QUERY_TIMEOUT, home=home).value if seconds is None else checked_seconds(seconds)
        return Limits(timeout, find(QUERY_MEMORY, memory, home=home).value)


@contextmanager
def interruptible(gone: Callable[[], bool]) -> Iterator[None]:
    """Stop the questions of this thread as soon as `gone` says that nobody waits for the answer."""
    token = _GONE.set(gone)
    try:
        yield
    finally:
        _GONE.reset(token)


class Watch:
    """Watches one question from a thread of its own; calls `stop` when it is to end, until it has. A context manager.

    `used` tells how many bytes all questions hold together now. What came since this one began counts as its own, so a
    short question is not ended for the sake of a large one beside it. `shared` says why to stop this one when all
    together use too much.
    """

    def __init__(
        self,
        limits: Limits,
        stop: Callable[[], None],
        *,
        used: Callable[[], int] | None = None,
        shared: Callable[[int, int], QueryError | None] | None = None,
    ) -> None:
        self._limits, self._stop, self._used, self._shared = limits, stop, used, shared
        self._gone = _GONE.get()
        self._before: int | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="millstream-watch", daemon=True)
        self.reason: QueryError | None = None
        """Why the question was stopped."""

    def __enter__(self) -> Watch:
        self._since = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self.reason = None  # the error knows its frames, and one of them this watch: a cycle would keep the store open

    def stop_with(self, stop: Callable[[], None]) -> None:
        """Another part of the work begins, which `stop` ends."""
        self._stop = stop

    def check(self) -> None:
        """Raise the reason if the question was stopped, or is to be."""
        reason = self.reason or self._unwanted()
        if reason is not None:
            raise reason

    def _watch(self) -> None:
        while not self._done.wait(_TICK):
            self.reason = self.reason or self._unwanted() or self._too_large()
            if self.reason is not None:
                self._stop()  # again and again: what has not begun yet does not hear it

    def _unwanted(self) -> QueryError | None:
        if self._limits.seconds and time.monotonic() - self._since > self._limits.seconds:
            return too_long(self._limits)
        if self._gone():
            return Cancelled("the question was cancelled: nobody waits for its answer")
        return None

    def _too_large(self) -> QueryError | None:
        if self._used is None:
            return None
        now = self._used()
        if self._before is None:
            self._before = now
        own = now - self._before
        if self._limits.bytes and own > self._limits.bytes:
            return too_large(self._limits)
        return None if self._shared is None else self._shared(now, own)


def too_long(limits: Limits) -> LimitExceeded:
    """The error for a question that takes too long."""
    return LimitExceeded(
        f"the question was stopped after {limits.seconds:g} seconds",
        hint="ask for less, or SET query_timeout = 300 (seconds; 0: no limit)",
    )


def too_large(limits: Limits) -> LimitExceeded:
    """The error for a question that needs too much memory."""
    return LimitExceeded(
        f"the question was stopped: it needs more than {spoken_bytes(limits.bytes)} of memory",
        hint="ask for less, or SET query_memory = '4GB'",
    )
