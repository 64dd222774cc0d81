"""A memory limit for flows: an epoch that makes this process too large ends with MemoryExceeded.

The operating system kills a process that uses all memory, without a message. Therefore a thread monitors the memory of
the process while an epoch is computed. Above the limit, it raises an error in the thread of the flow. The error takes
effect between two operations: a single operation of a library is not interrupted. The memory of Spark's Java process
has a separate limit.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from traceback import clear_frames

from millstream.errors import MemoryExceeded
from millstream.settings import FLOW_MEMORY, find
from millstream.units import format_bytes

_TICK = 0.1


class _Stop(BaseException):
    """Raised in the thread of a flow."""


def usual_limit(home: Path | None = None) -> int:
    """The bytes that the process may hold while an epoch is computed: the setting `flow_memory`; 0 means no limit."""
    return find(FLOW_MEMORY, home=home).value


def private_bytes() -> int:
    """The private memory of this process in bytes: state that is mapped from files does not count."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


@contextmanager
def bounded(flow: str, limit: int | None = None, measure: Callable[[], int] = private_bytes) -> Iterator[None]:
    """Run a computation for a flow. Raises MemoryExceeded when the process holds more than `limit` bytes in the
    meantime.
    """
    most = usual_limit() if limit is None else limit
    if not most:
        yield
        return
    watch = _Watch(most, measure)
    stopped = False
    watch.start()
    try:
        try:
            yield
        except _Stop:
            watch.raised = False  # it has arrived
            raise
        finally:
            watch.end()
    except _Stop as stop:
        stopped = True
        clear_frames(stop.__traceback__)  # they would keep everything that the epoch has allocated
    if stopped:
        raise _exceeded(flow, most)


class _Watch:
    """Monitors the memory from a separate thread, and stops the thread that created it."""

    def __init__(self, limit: int, measure: Callable[[], int]) -> None:
        self._limit, self._measure = limit, measure
        self._target = ctypes.c_ulong(threading.get_ident())
        self._done = threading.Event()
        self.raised = False
        """Whether an error is on its way to the thread."""
        self._thread = threading.Thread(target=self._look, name="millstream-memory", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Ensure that no error is raised in the thread after this.

        If one is on its way, wait for it. Cancelling it would leave Python's pending-exception flag set permanently:
        all code would run slower, and would hang under a debugger or a profiler.
        """
        try:
            self._done.set()
            self._thread.join()
            while self.raised:
                sleep(0)
        except _Stop:
            self.raised = False

    def _look(self) -> None:
        while not self._done.wait(_TICK):
            if self._measure() > self._limit:
                self.raised = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(self._target, ctypes.py_object(_Stop))
                return


def _exceeded(flow: str, limit: int) -> MemoryExceeded:
    return MemoryExceeded(
        f"an epoch of the flow `{flow}` needs more than {format_bytes(limit)} of memory",
        detail="it was not committed, and nothing is lost",
        hint="let views produce fewer rows per record, or set a smaller max_rows on sources; "
        f"{FLOW_MEMORY.variable}=8GB sets the limit",
    )
