"""Waiting that Ctrl-C can end: work runs in a separate thread, and the main thread only waits for it."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from millstream.live.answer import Changes

T = TypeVar("T")
PATIENCE = 1.0
"""Seconds after which the user is shown what the shell waits for."""

_TICK = 0.1
_MOST = 64
_GRACE = 2.0


def patiently(work: Callable[[], T], notice: Callable[[], str] = lambda: "") -> T:
    """Run a function and wait for it. After a while `notice`, if it has a message, is shown until the end."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)

    threading.Thread(target=run, name="millstream-statement", daemon=True).start()
    said = _Notice(notice)
    try:
        while True:
            try:
                return future.result(_TICK)
            except TimeoutError:
                if future.done():
                    raise
                said.look()
    finally:
        said.clear()


class _Notice:
    """One line on standard error that is erased on a terminal."""

    def __init__(self, notice: Callable[[], str]) -> None:
        self._notice = notice
        self._since = time.monotonic()
        self._said = ""

    def look(self) -> None:
        if time.monotonic() - self._since < PATIENCE:
            return
        text = self._notice()
        if text == self._said:
            return
        self.clear()
        self._said = text
        if text:
            click.echo(click.style(text, dim=True), err=True, nl=not sys.stderr.isatty())

    def clear(self) -> None:
        if self._said and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._said = ""


class Listening:
    """The changes of a subscription; leaving the block ends the subscription."""

    def __init__(self, changes: Iterator[Changes]) -> None:
        self._changes = changes
        self._box: queue.Queue[Changes | BaseException | None] = queue.Queue(_MOST)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="millstream-subscription", daemon=True)
        self.ended = True
        """Whether the subscription has ended; otherwise the producer of the changes still uses its session."""

    def __enter__(self) -> Listening:
        self.ended = False
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(_GRACE)
        self.ended = not self._thread.is_alive()

    def __iter__(self) -> Iterator[Changes]:
        while True:
            item = self._box.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item

    def _listen(self) -> None:
        try:
            for found in self._changes:
                self._put(found)
                if self._stop.is_set():
                    break
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            self._put(error)
        finally:
            close = getattr(self._changes, "close", None)
            if close is not None:
                close()
            self._put(None)

    def _put(self, item: Changes | BaseException | None) -> None:
        while not self._stop.is_set():
            try:
                self._box.put(item, timeout=_TICK)
            except queue.Full:
                continue
            return
