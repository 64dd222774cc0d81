"""Limits of ad-hoc queries: run time, memory, and cancellation when no client waits for the result.

`Limits` holds the limits. `interruptible` sets, for all work of the current thread inside it, the check for whether the
client is gone. `Watch` checks both from a separate thread while a query runs, and stops the query.
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
from millstream.units import checked_seconds, format_bytes

_TICK = 0.05


def _never() -> bool:
    return False


_GONE: ContextVar[Callable[[], bool]] = ContextVar("gone", default=_never)


@dataclass(frozen=True)
class Limits:
    """What one query may use. 0 means no limit."""

    seconds: float = 60.0
    bytes: int = 1 << 30

    @staticmethod
    def of(seconds: float | None = None, memory: str | None = None, *, home: Path | None = None) -> Limits:
        """Return the limits from the arguments, or from the settings `query_timeout` and `query_memory`."""
        timeout = find(QUERY_TIMEOUT, home=home).value if seconds is None else checked_seconds(seconds)
        return Limits(timeout, find(QUERY_MEMORY, memory, home=home).value)


@contextmanager
def interruptible(gone: Callable[[], bool]) -> Iterator[None]:
    """Stop the queries of this thread as soon as `gone` reports that no client waits for the result."""
    token = _GONE.set(gone)
    try:
        yield
    finally:
        _GONE.reset(token)


class Watch:
    """Watches one query from a separate thread. Calls `stop` when the query must end, repeatedly until it has ended. A
    context manager.

    `used` returns the bytes that all queries currently hold. Bytes allocated since this query began count as its own,
    so a short query is not stopped because of a large concurrent one. `shared` returns the error to stop this query
    with when all queries together use too much.
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
        """The reason the query was stopped."""

    def __enter__(self) -> Watch:
        self._since = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self.reason = None  # its frames reference this watch: the cycle would keep the store open

    def stop_with(self, stop: Callable[[], None]) -> None:
        """Set a new `stop` callback for the next part of the work."""
        self._stop = stop

    def check(self) -> None:
        """Raise the reason if the query was stopped or must stop now."""
        reason = self.reason or self._unwanted()
        if reason is not None:
            raise reason

    def _watch(self) -> None:
        while not self._done.wait(_TICK):
            self.reason = self.reason or self._unwanted() or self._too_large()
            if self.reason is not None:
                self._stop()  # repeatedly: work that has not started yet ignores it

    def _unwanted(self) -> QueryError | None:
        if self._limits.seconds and time.monotonic() - self._since > self._limits.seconds:
            return too_long(self._limits)
        if self._gone():
            return Cancelled("the query was cancelled: no client waits for its result")
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
    """Return the error for a query that exceeds its time limit."""
    return LimitExceeded(
        f"the query was stopped after {limits.seconds:g} seconds",
        hint="query less, or SET query_timeout = 300 (seconds; 0: no limit)",
    )


def too_large(limits: Limits) -> LimitExceeded:
    """Return the error for a query that exceeds its memory limit."""
    return LimitExceeded(
        f"the query was stopped: it needs more than {format_bytes(limits.bytes)} of memory",
        hint="query less, or SET query_memory = '4GB'",
    )
