"""The memory that all questions of a home share. `Limits` bounds one question; a `Budget` bounds their sum.

A question holds a `Claim` on the budget. One that is answered in the process of the home adds to its claim as its rows
come, and is refused when the sum would be too large. One that is answered in a process of its own reserves all that it
may use, and waits its turn. An answer counts until it is sent: a slow reader keeps its claim.
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
from millstream.units import spoken_bytes

FREE = 1 << 20
"""Bytes of every question that do not count: a small one is answered, whatever others use."""
_TICK = 0.05

_SENT: ContextVar[bool] = ContextVar("sent", default=False)


@contextmanager
def counted_until_sent() -> Iterator[None]:
    """The answers of this thread go to a reader: each counts until nothing refers to its table any more."""
    token = _SENT.set(True)
    try:
        yield
    finally:
        _SENT.reset(token)


class Budget:
    """Bytes that questions may use together. Its methods may be called from any thread."""

    def __init__(self, total: int | None = None) -> None:
        self.total = total if total is not None else usual_total()
        """Bytes; 0 is no limit."""
        self._changed = threading.Condition()
        self._waiting: dict[Claim, None] = {}
        self._held = 0
        self._active = 0

    @property
    def held(self) -> int:
        """Bytes that are claimed now."""
        with self._changed:
            return self._held

    def claim(self) -> Claim:
        """A claim of one question: nothing yet."""
        return Claim(self)

    def at_most(self, limits: Limits) -> Limits:
        """Limits of a question, with a bound on its memory that is not above the whole budget."""
        if not self.total or 0 < limits.bytes <= self.total:
            return limits
        return Limits(limits.seconds, self.total)

    def exceeded(self, used: int, own: int) -> LimitExceeded | None:
        """Why a question is to be stopped: all together use `used` bytes besides their claims, and this one `own` of
        them. Those that use more than their part are stopped, so a small one never is.
        """
        with self._changed:
            over = self.total and used + self._held > self.total and own > FREE and own * self._active >= used
        return self.crowded() if over else None

    def crowded(self) -> LimitExceeded:
        """The error for a question that there is no memory left for."""
        return LimitExceeded(
            f"the questions of all readers together would use more than {spoken_bytes(self.total)} of memory",
            detail=f"{spoken_bytes(self.held)} are in use by other questions and by answers that are being read",
            hint="try again in a moment, or query less; the process that owns the home takes "
            f"{QUERY_MEMORY_TOTAL.variable}=8GB",
        )


class Claim:
    """What one question holds of the budget. A context manager."""

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
        """Hold `size` bytes. Raises LimitExceeded when that is too much for all questions together."""
        budget, counted = self._budget, max(0, size - FREE)
        with budget._changed:
            if budget.total and budget._held - self._size + counted > budget.total:
                raise budget.crowded()
            self._resize(counted)

    def reserve(self, size: int, watch: Watch) -> None:
        """Hold `size` bytes. Waits until they are free, in the order of asking, while the question has time."""
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
        """The question is answered. If a reader gets the answer, it counts for as long as the table is kept."""
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
    """Bytes that all queries of a home may use together: the setting `query_memory_total`."""
    return find(QUERY_MEMORY_TOTAL, home=home).value
