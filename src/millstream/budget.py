"""The memory budget that all queries of a home share. `Limits` bounds one query; a `Budget` bounds their sum.

Each query holds a `Claim` on the budget. A query that runs in the process of the home increases its claim as its rows
arrive, and fails when the total would become too large. A query that runs in a subprocess reserves the most memory it
may use, and waits in a queue for it. A result counts until it has been sent: a slow reader keeps its claim.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from millstream.errors import LimitExceeded
from millstream.limits import Limits, Watch
from millstream.settings import QUERY_MEMORY_TOTAL, find
from millstream.units import format_bytes

FREE = 1 << 20
"""Bytes per query that do not count, so a small query is always answered, whatever the others use."""
_TICK = 0.05

_SENT: ContextVar[bool] = ContextVar("sent", default=False)


@contextmanager
def counted_until_sent() -> Iterator[None]:
    """Count each result of this thread until nothing references its table any more, because it is being sent to a
    reader.
    """
    token = _SENT.set(True)
    try:
        yield
    finally:
        _SENT.reset(token)


class Budget:
    """The bytes that all queries may use together. Thread-safe."""

    def __init__(self, total: int | None = None) -> None:
        self.total = total if total is not None else usual_total()
        """The total in bytes; 0 means no limit."""
        self._changed = threading.Condition()
        self._waiting: dict[Claim, None] = {}
        self._held = 0
        self._active = 0

    @property
    def held(self) -> int:
        """The bytes that are currently claimed."""
        with self._changed:
            return self._held

    def claim(self) -> Claim:
        """Create an empty claim for one query."""
        return Claim(self)

    def at_most(self, limits: Limits) -> Limits:
        """Return the limits of a query with its memory capped at the total budget."""
        if not self.total or 0 < limits.bytes <= self.total:
            return limits
        return Limits(limits.seconds, self.total)

    def exceeded(self, used: int, own: int) -> LimitExceeded | None:
        """Return the error if a query must be stopped: all queries together use `used` bytes in addition to their
        claims, and this one `own` of those. Only queries that use more than their share are stopped, so a small one
        never is.
        """
        with self._changed:
            over = self.total and used + self._held > self.total and own > FREE and own * self._active >= used
        return self.crowded() if over else None

    def crowded(self) -> LimitExceeded:
        """Return the error for a query when no memory is left for it."""
        return LimitExceeded(
            f"the queries of all readers together would use more than {format_bytes(self.total)} of memory",
            detail=f"{format_bytes(self.held)} are in use by other queries and by results that are being read",
            hint="try again in a moment, or query less; the process that owns the home takes "
            f"{QUERY_MEMORY_TOTAL.variable}=8GB",
        )


class Claim:
    """The share of the budget that one query holds. A context manager."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._size = 0
        self._passed_on = False

    def __enter__(self) -> Claim:
        with self._budget._changed:
            self._budget._active += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._budget._changed:
            self._budget._active -= 1
        if not self._passed_on:
            self._resize(0)

    def grow_to(self, size: int) -> None:
        """Hold `size` bytes. Raises LimitExceeded when that exceeds the budget of all queries together."""
        budget, counted = self._budget, max(0, size - FREE)
        with budget._changed:
            if budget.total and budget._held - self._size + counted > budget.total:
                raise budget.crowded()
            self._resize(counted)

    def reserve(self, size: int, watch: Watch) -> None:
        """Hold `size` bytes. Waits in first-come, first-served order until they are free or the query times out."""
        budget = self._budget
        with budget._changed:
            budget._waiting[self] = None
            try:
                while budget.total and (next(iter(budget._waiting)) is not self or budget._held + size > budget.total):
                    budget._changed.wait(_TICK)
                    try:
                        watch.check()
                    except LimitExceeded:
                        raise budget.crowded() from None
                self._size, budget._held = size, budget._held + size
            finally:
                del budget._waiting[self]
                budget._changed.notify_all()

    def pass_on(self, table: pa.Table) -> None:
        """Finish the query. If its result goes to a reader, it counts for as long as its table is referenced."""
        if _SENT.get():
            self._resize(max(0, table.nbytes - FREE))
            self._passed_on = True
            weakref.finalize(table, self._resize, 0).atexit = False

    def _resize(self, size: int) -> None:
        with self._budget._changed:
            self._budget._held += size - self._size
            self._size = size
            self._budget._changed.notify_all()


def usual_total(home: Path | None = None) -> int:
    """The bytes that all queries of a home may use together: the setting `query_memory_total`."""
    return find(QUERY_MEMORY_TOTAL, home=home).value
