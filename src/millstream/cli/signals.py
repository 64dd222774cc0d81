"""Ctrl-C and SIGTERM as stop requests: the first takes effect after the current epoch, a second at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

AT_ONCE = 130


class Stop:
    """Whether a stop was requested. `wait` sleeps until then."""

    def __init__(self, on_ask: Callable[[], None] = lambda: None) -> None:
        self._event = threading.Event()
        self._on_ask = on_ask

    @property
    def requested(self) -> bool:
        """Whether to stop."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep for this long, or until a stop is requested."""
        return self._event.wait(seconds)

    def ask(self, *_: int | FrameType | None) -> None:
        """Request a stop; a second request ends the process at once, without loss: an
        epoch is committed whole or not.
        """
        if self._event.is_set():
            click.echo("\nstopped at once; the next start resumes from the last complete epoch", err=True)
            os._exit(AT_ONCE)
        self._event.set()
        self._on_ask()


@contextmanager
def stop_on_signals(on_ask: Callable[[], None] = lambda: None) -> Iterator[Stop]:
    """Treat SIGINT and SIGTERM as stop requests inside the block; only in the main thread."""
    stop = Stop(on_ask)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {s: signal.signal(s, stop.ask) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
