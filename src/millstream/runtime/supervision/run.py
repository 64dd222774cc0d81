"""A running flow: its thread, and the handle for users. `supervisor.py` decides what follows a failure."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import TracebackType

from millstream.errors import MillstreamError, RunError, UnknownName, Unsupported
from millstream.runtime.closing import closed
from millstream.runtime.epoch.loop import EpochReport, FlowLoop
from millstream.runtime.supervision import poison_search as poison
from millstream.runtime.supervision.supervisor import (
    SET_APART,
    Restarts,
    Supervisor,
    Then,
    Verdict,
    failure,
    head,
    is_suspect,
)

POLL_SECONDS = 0.05

STATES = {
    "starting": ("running", "failed", "stopped", "restarting", "crash loop"),
    "running": ("idle", "finished", "failed", "stopped", "restarting", "crash loop"),
    "idle": ("running", "finished", "failed", "stopped", "restarting", "crash loop"),
    "restarting": ("running", "failed", "stopped", "crash loop"),
    "finished": (),
    "failed": (),
    "crash loop": (),
    "stopped": (),
}
"""The states of a run and the transitions from each."""

ENDED = tuple(state for state, following in STATES.items() if not following)
BROKEN = ("failed", "crash loop")

Pause = Callable[[threading.Event, float], object]
"""Waits for this many seconds, or until the event is set."""

_SETTLED = 2
"""The epoch that reads the last record, and one more, in which the windows that it closed may emit."""


@dataclass
class _Target:
    """What a caller of `catch_up` waits for."""

    heads: Mapping[str, Mapping[int, int]] | None = None
    epochs_behind: int = 0


class Run:
    """A flow that runs in the background. Created by `Home.start`. As a context manager, it stops the flow on exit.

    `state` is starting, running, idle (nothing to do at the moment), restarting (it failed, and is started again),
    finished (all sources ended), failed, crash loop (it failed too often) or stopped. `status` has the details.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], FlowLoop],
        *,
        on_epoch: Callable[[EpochReport], None] | None = None,
        on_output: Callable[[EpochReport], None] | None = None,
        on_health: Callable[[Run], None] | None = None,
        restarts: Restarts | None = None,
        poison: str = SET_APART,
        pause: Pause = threading.Event.wait,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.flow = name
        self.state = "starting"
        self.error: Exception | None = None
        self.reports: deque[EpochReport] = deque(maxlen=1000)
        self.loop: FlowLoop | None = None
        self._make = make
        self._on_epoch = on_epoch
        self._on_output = on_output
        self._on_health = on_health
        """Notified when the flow is up, and when it has ended because it failed."""
        self._supervisor = Supervisor(restarts, poison, chance=chance)
        self._pause = pause
        self._suspected: MillstreamError | None = None
        """Why the next epoch is to be searched for poison records."""
        self._doing = ""
        self._again_at = 0.0
        self._changed = threading.Condition()
        self._targets: list[_Target] = []
        self._replays: deque[tuple[str, Future[int]]] = deque()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"millstream-{name}", daemon=True)
        self._thread.start()

    @property
    def status(self) -> str:
        """The state as text: how often the flow was restarted, when the next restart is, and why."""
        if self.state in BROKEN and isinstance(self.error, MillstreamError):
            often = f" ({self._supervisor.restarts.limit} failures)" if self.state == "crash loop" else ""
            return f"{self.state}{often}: {head(self.error)}"
        if self.state != "restarting":
            return self.state
        return self._doing.replace("{in}", f"in {max(0.0, self._again_at - time.monotonic()):.0f} s")

    def catch_up(self, timeout: float | None = None) -> Run:
        """Wait until everything that is available now is reflected in the views."""
        target = _Target()
        with self._changed:
            self._targets.append(target)
        self.wait(lambda _: target.epochs_behind >= _SETTLED, timeout)
        if target.epochs_behind < _SETTLED and self.state == "stopped":
            raise RunError(
                f"the flow `{self.flow}` was stopped before it had caught up", hint="start it again: home.start(flow)"
            )
        return self

    def wait(self, until: Callable[[Run], bool] | None = None, timeout: float | None = None) -> Run:
        """Wait until a condition on the run holds (checked after every epoch), or until it has ended.

        Raises the error that stopped the flow if it failed, and TimeoutError on timeout.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not (self._ended or (until is not None and until(self))):
                self._wake.set()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    msg = f"the flow `{self.flow}` did not reach that point within {timeout} seconds"
                    raise TimeoutError(msg)
                self._changed.wait(0.5 if left is None else min(left, 0.5))
        if self.error is not None:
            raise self.error
        return self

    def replay_late(self, view: str) -> int:
        """Replay the late records of a view into it; see `Home.replay_late`."""
        replayed: Future[int] = Future()
        with self._changed:
            if self._ended:
                raise RunError(f"the flow `{self.flow}` has ended", hint="start it again: home.start(flow)")
            self._replays.append((view, replayed))
        self._wake.set()
        return replayed.result()

    def stop(self, timeout: float | None = 60) -> None:
        """Stop after the current epoch; the next start resumes from there."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        epoch = f", epoch {self.loop.number:,}" if self.loop is not None else ""
        return f"<Run {self.flow}: {self.status}{epoch}>"

    @property
    def _ended(self) -> bool:
        return self.state in ENDED

    def _main(self) -> None:
        while True:
            try:
                self._live()
                return
            except BaseException as error:  # noqa: BLE001 - the thread's last line of defence; a panic in Polars is no Exception
                known = failure(self.flow, error)
            finally:
                if self.loop is not None:
                    closed(self.loop)
            if self._suspected is not None and is_suspect(known):
                verdict = Verdict(Then.FAIL)  # the outcome of the search
            else:
                verdict = self._supervisor.failed(known, self._epoch)
            if not self._goes_on(known, verdict):
                return

    @property
    def _epoch(self) -> int:
        """The number of the next epoch, where relevant."""
        return self.loop.number + 1 if self.loop is not None and self._supervisor.restarts.limit else 0

    def _live(self) -> None:
        """Create the loop and run epochs until everything is read or a stop is requested."""
        self.loop = self._make()
        self._supervisor.came_up()
        self._tell_health()
        if self._suspected is not None:
            poison.search(self.loop, self._suspected)
            self.loop.close()
            self.loop = self._make()  # without what the search has left
            self._suspected = None
        while not self._stopping.is_set():
            self._to("running")
            self._aim()
            report = self.loop.step()
            if report is None:
                self._replay()
            self._score(rested=report is None)
            if report is not None:
                self._report(report)
                continue
            if self.loop.finished:
                self._to("finished")
                return
            self._to("idle")
            self._wake.wait(POLL_SECONDS)
            self._wake.clear()
        self._to("stopped")

    def _goes_on(self, error: MillstreamError, verdict: Verdict) -> bool:
        """Act on the decision about a failure; False when the run has ended."""
        limit = self._supervisor.restarts.limit
        if verdict.then is Then.CRASH_LOOP:
            why = f"it failed {verdict.number} times without an epoch in between, and is not started again"
            error.detail = f"{error.detail}\n  {why}" if error.detail else why
            self._failed(error, "crash loop")
            return False
        if verdict.then is Then.FAIL:
            self._failed(error, "failed")
            return False
        if verdict.then is Then.SEARCH:
            self._suspected = error
            self._doing = f"restarting (searching for the record that fails): {head(error)}"
        else:
            self._doing = f"restarting ({verdict.number} of {limit}, {{in}}): {head(error)}"
        self._again_at = time.monotonic() + verdict.wait
        self._to("restarting")
        if verdict.wait:
            self._pause(self._stopping, verdict.wait)
        if self._stopping.is_set():
            self._to("stopped")
            return False
        return True

    def _replay(self) -> None:
        """Execute the requests of `replay_late`."""
        assert self.loop is not None
        while self._replays:
            view, replayed = self._replays.popleft()
            try:
                number, report = self.loop.replay_late(view)
            except BaseException as error:
                replayed.set_exception(failure(self.flow, error))
                if not isinstance(error, Unsupported | UnknownName):
                    raise
            else:
                replayed.set_result(number)
                if report is not None:
                    self._report(report)

    def _aim(self) -> None:
        """Fix what new callers of `catch_up` wait for: everything that is available at this moment."""
        assert self.loop is not None
        with self._changed:
            for target in self._targets:
                if target.heads is None:
                    target.heads = self.loop.heads()

    def _score(self, *, rested: bool) -> None:
        """Count the epochs since each target was reached; an idle flow completes them all."""
        assert self.loop is not None
        with self._changed:
            for target in self._targets:
                if target.heads is not None and (rested or self.loop.reached(target.heads)):
                    target.epochs_behind += _SETTLED if rested else 1
            self._targets = [t for t in self._targets if t.epochs_behind < _SETTLED]
            self._changed.notify_all()

    def _report(self, report: EpochReport) -> None:
        self._supervisor.good()
        if self._on_output is not None:
            self._on_output(report)
        report = replace(report, output=None)  # a long run must not hold the rows of its epochs
        self.reports.append(report)
        if self._on_epoch is not None:
            self._on_epoch(report)
        with self._changed:
            self._changed.notify_all()

    def _to(self, state: str) -> None:
        with self._changed:
            self._move(state)
            self._changed.notify_all()

    def _move(self, state: str) -> None:
        if state != self.state:
            assert state in STATES[self.state], f"{self.state} -> {state}"
            self.state = state
        if state in ENDED:
            ended = self.error or RunError(f"the flow `{self.flow}` has ended", hint="start it again: home.start(flow)")
            while self._replays:
                self._replays.popleft()[1].set_exception(ended)

    def _failed(self, error: Exception, state: str) -> None:
        with self._changed:
            self.error = error
            self._move(state)
        self._tell_health()
        with self._changed:
            self._changed.notify_all()

    def _tell_health(self) -> None:
        if self._on_health is not None:
            self._on_health(self)
