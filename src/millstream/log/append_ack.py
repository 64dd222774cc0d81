"""The acknowledgement of an append, and its entries in the groups of its partitions."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

import pyarrow as pa


class Ack(NamedTuple):
    """The acknowledgement that records are durable, with their offsets."""

    offsets: dict[int, tuple[int, int]]
    """By partition, the first offset and the one after the last."""
    repeated: bool = False
    """Whether they existed before: a retry of a producer's sequence."""


class Sent(Future[Ack]):
    """The future of one row. All rows of a partition share one condition.

    A Future creates its own condition, with a dozen small objects that the garbage collector then tracks; for tens of
    thousands of rows per second that is most of the work. `__init__` sets what Future's own does, except for the
    condition, and in the running state: what was sent cannot be cancelled.
    """

    def __init__(self, condition: threading.Condition) -> None:
        self._condition = condition
        self._state = "RUNNING"
        self._result: Ack | None = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []

    def set_result(self, result: Ack) -> None:
        """Set the result; takes a fast path when there are no callbacks."""
        with self._condition:
            if not self._waiters and not self._done_callbacks:
                self._result, self._state = result, "FINISHED"
                self._condition.notify_all()
                return
        super().set_result(result)

    def result(self, timeout: float | None = None) -> Ack:
        """Wait for the result. A wake-up for another row's result does not end the wait."""
        if self._state != "FINISHED":
            with self._condition:
                self._condition.wait_for(self.done, timeout)
        return super().result(0) if self._result is None else self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the exception."""
        with self._condition:
            self._condition.wait_for(self.done, timeout)
        return super().exception(0)


class Gather:
    """An append to several partitions; completes when each of them has completed."""

    def __init__(self, future: Future[Ack], partitions: int) -> None:
        self._future = future
        self._waiting = partitions
        self._offsets: dict[int, tuple[int, int]] = {}
        self._known = True
        self._error: BaseException | None = None
        self._mutex = threading.Lock()

    def settle(self, partition: int, offsets: tuple[int, int] | None, *, repeated: bool) -> None:
        """One partition has written its records."""
        with self._mutex:
            self._known = self._known and repeated
            if offsets is not None:
                self._offsets[partition] = offsets
            self._answered()

    def fail(self, error: BaseException) -> None:
        """One partition has refused its records."""
        with self._mutex:
            self._error = self._error or error
            self._answered()

    def _answered(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        if self._error is not None:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(Ack(dict(sorted(self._offsets.items())), self._known))


class Entry:
    """The part of an append for one partition: a batch, or one row in its original form."""

    __slots__ = ("_answer", "_gather", "answered", "digest", "future", "producer", "rows", "sequence", "weight")

    def __init__(
        self,
        rows: pa.RecordBatch | Mapping[str, Any],
        weight: int,
        future: Future[Ack],
        gather: Gather | None = None,
        producer: str | None = None,
        sequence: int = 0,
        digest: str | None = None,
    ) -> None:
        self.rows = rows
        self.weight = weight
        self.future = future
        self.producer = producer
        self.sequence = sequence
        self.digest = digest
        self.answered = False
        self._gather = gather
        self._answer: tuple[int, int] | BaseException | None = None

    def settle(self, partition: int, offsets: tuple[int, int] | None, *, repeated: bool) -> None:
        """Its records are durable."""
        self._answer, self.answered = offsets, True
        if self._gather is None:
            self.future.set_result(Ack({} if offsets is None else {partition: offsets}, repeated))
        else:
            self._gather.settle(partition, offsets, repeated=repeated)

    def fail(self, error: BaseException) -> None:
        """Its records are refused."""
        if self.answered:
            return
        self._answer, self.answered = error, True
        if self._gather is None:
            self.future.set_exception(error)
        else:
            self._gather.fail(error)

    def follow(self, first: Entry, partition: int) -> None:
        """Complete with the result of the same sequence that was earlier in the group."""
        if isinstance(first._answer, BaseException):
            self.fail(first._answer)
        else:
            self.settle(partition, first._answer, repeated=True)
