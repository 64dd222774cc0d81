"""Calls a Python operator for the keys of one epoch, one after the other: rows, timers, time to live, failures.

For each key, timers due by processing time come first, then its rows, then timers due by the watermark. If rows come in
event-time order, event timers fire between them instead: a timer for an instant fires before the rows at that instant,
because no earlier row can arrive then. What a key does therefore depends on its rows and not on the boundaries of
epochs. `kernels/python/process.py` prepares the keys and collects the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from millstream.clock import ALL_READ, END_OF_TIME
from millstream.kernels.outcome import Failure, OperatorClock
from millstream.kernels.python.failures import checked, failed, failure, written
from millstream.model.python.process import FAIL, NO_TIMERS, QUARANTINE, Context, Hooks, Timer, instant, rows_of
from millstream.plan.operators.python.process import ProcessOperator

BEFORE, BETWEEN, BEHIND = 0, 1, 2
"""When a call by the clock happens: before the rows of the epoch, among them by its time, or after them."""


class Held(NamedTuple):
    """What is kept for a key in addition to its state: its timers, and when it was last touched."""

    events: Mapping[str, int]
    clocks: Mapping[str, int]
    touched: int


@dataclass(frozen=True, eq=False)
class Groups:
    """The keys of an epoch: the range of each key's rows, and what was kept for it (None: the key is new)."""

    keys: Sequence[Any]
    starts: Sequence[int]
    ends: Sequence[int]
    values: Sequence[tuple[Any, ...] | None]
    events: Sequence[Mapping[str, int]] | None = None
    clocks: Sequence[Mapping[str, int]] | None = None
    touched: Sequence[int] | None = None


@dataclass(frozen=True, eq=False)
class ProcessRows:
    """The rows of an epoch, grouped by key, in each key's order."""

    names: Sequence[str]
    columns: Sequence[Sequence[Any]]
    times: Sequence[int] | None
    """Their event times in micros, if they count."""
    retracted: Sequence[bool] | None
    """Which of them are retractions; None if there are none."""
    time_at: int | None
    """The position of the event time in a row."""

    @cached_property
    def rows(self) -> list[Any]:
        """The rows as user code receives them."""
        return list(rows_of(self.names, self.columns))

    def record(self, at: int) -> dict[str, Any]:
        """A row as a mapping by column."""
        return {n: c[at] for n, c in zip(self.names, self.columns, strict=True)}


class ProcessKeys:
    """Calls a process for all keys of an epoch, and collects what to keep, what to delete, and what failed."""

    def __init__(
        self, operator: ProcessOperator, clock: OperatorClock, rows: ProcessRows, *, strict: bool = False
    ) -> None:
        self.operator, self.clock, self.rows, self.strict = operator, clock, rows, strict
        self.hooks = Hooks.of(operator.function)
        self.ctx = Context(operator.outputs, now=clock.now, timed=self.hooks.on_timer is not None)
        self.kept: list[int] = []
        """The keys, by number, that keep something: their state and, if there is any, the rest."""
        self.values: list[tuple[Any, ...]] = []
        self.held: list[Held] = []
        self.gone: list[int] = []
        self.moments: list[tuple[int, int]] = []
        """Calls by the clock: when each happens, and its time. A result of the n-th call has the position -n - 1."""
        self.failures: list[Failure] = []
        self.skipped = 0
        state = operator.held
        self._new: Callable[[], Any] = (lambda: None) if state is None else state.kind
        self._make: Callable[..., Any] = (lambda: None) if state is None else state.maker()
        self._get: Callable[[Any], tuple[Any, ...]] = (lambda _: ()) if state is None else state.getter()
        self._safe: Callable[[Any], tuple[Any, ...]] = (lambda _: ()) if state is None else state.snapshot()
        self._careful = operator.errors != FAIL or strict
        self._moves = self.hooks.on_timer is not None or operator.idle_ttl is not None
        self._state: Any = None
        self._known = False
        self._touched = 0
        self._over: set[str] = set()
        self._doing, self._given = "on_row", range(0)

    def run(self, groups: Groups) -> None:
        """Call the process for every key."""
        try:
            if self._careful or self._moves or self.hooks.on_row is None or self.rows.retracted is not None:
                self._all(groups)
            else:
                self._plainly(groups, self.hooks.on_row)
        except Exception as error:
            if self.operator.errors != FAIL:
                raise  # failures of user code were quarantined before
            raise failed(self._where(), error, self._record(), redact=self.operator.redact) from error

    def _plainly(self, groups: Groups, on_row: Callable[[Any, Any, Context], Any]) -> None:
        """Call all keys on the fast path: only rows can be due, and the first failure stops the flow."""
        ctx, time_at, times = self.ctx, self.rows.time_at, self.rows.times
        rows = rows_of(self.rows.names, self.rows.columns)
        new, make, get, width = self._new, self._make, self._get, len(self.operator.outputs[0].schema.names)
        kept, keep, give, place = self.kept.append, self.values.append, ctx._rows[0].append, ctx._places[0].append
        ctx._watermark = self.clock.before
        moves = self.operator.ordered and times is not None
        spans = zip(groups.keys, groups.starts, groups.ends, groups.values, strict=True)
        for group, (key, start, end, values) in enumerate(spans):
            ctx._key, state, known = key, new() if values is None else make(*values), False
            for at in range(start, end):
                row = next(rows)
                ctx._at, known = at, True
                if time_at is not None:
                    ctx._time = row[time_at]
                    if moves:
                        ctx._watermark = times[at]  # type: ignore[index]
                given = on_row(row, state, ctx)
                if type(given) is tuple and len(given) == width:
                    give(given)
                    place(at)
                elif given is not None:
                    ctx.take(given)
                if ctx._forget:
                    ctx._forget, known, state = False, False, new()
            if known:
                kept(group)
                keep(get(state))
            elif values is not None:
                self.gone.append(group)

    def _all(self, groups: Groups) -> None:
        ctx, clock, timed = self.ctx, self.clock, self.hooks.on_timer is not None
        for group, (key, start, end, values) in enumerate(
            zip(groups.keys, groups.starts, groups.ends, groups.values, strict=True)
        ):
            ctx._key, self._known, self._over = key, values is not None, set()
            self._state = self._new() if values is None else self._make(*values)
            ctx._events = ctx._clocks = NO_TIMERS
            if timed and values is not None:
                ctx._events, ctx._clocks = groups.events[group], groups.clocks[group]  # type: ignore[index]
            self._touched = 0 if groups.touched is None or values is None else groups.touched[group]
            ctx._watermark = clock.before
            if self._moves:
                self._by_clock()
            self._take_rows(start, end)
            if not self.operator.ordered:
                ctx._watermark = clock.watermark
            if self._moves:
                self._until(clock.watermark, BETWEEN if self.operator.ordered else BEHIND)
            if self._known:
                self.kept.append(group)
                self.values.append(self._get(self._state))
                self.held.append(Held(ctx._events, ctx._clocks, self._touched))
            elif values is not None:
                self.gone.append(group)

    def _take_rows(self, start: int, end: int) -> None:
        """Process the rows of a key in batches between which no timer is due."""
        times, undone = self.rows.times, self.rows.retracted
        whole = self.hooks.on_rows is not None and not (self.operator.ordered and self._moves)
        at = start
        while at < end:
            if self.operator.ordered and times is not None:
                self._until(times[at], BETWEEN)
                self.ctx._watermark = times[at]
            retract = undone is not None and undone[at]
            upto = at + 1
            while whole and not retract and upto < end and not (undone is not None and undone[upto]):
                upto += 1
            self._rows_call(at, upto, retract=retract)
            at = upto

    def _rows_call(self, start: int, end: int, *, retract: bool) -> None:
        hooks, ctx, rows = self.hooks, self.ctx, self.rows
        ctx._at, self._given = start, range(start, end)
        if rows.time_at is not None:
            ctx._time = rows.rows[end - 1][rows.time_at]
        if retract:
            assert hooks.on_retract is not None, "the model refuses changing input without it"
            done = self._call("on_retract", hooks.on_retract, rows.rows[start])
        elif hooks.on_rows is not None:
            done = self._call("on_rows", hooks.on_rows, rows.rows[start:end])
        else:
            assert hooks.on_row is not None
            done = self._call("on_row", hooks.on_row, rows.rows[start])
        if done and rows.times is not None:
            self._touch(max(rows.times[end - 1], self.clock.before))
        elif done:
            self._touch(0)

    def _touch(self, time: int) -> None:
        self._touched = self.clock.now if self.operator.idle_by_clock else max(self._touched, time)

    def _by_clock(self) -> None:
        """Fire what processing time has reached."""
        ctx, now = self.ctx, self.clock.now
        while ctx._clocks:
            at, name = min((at, name) for name, at in ctx._clocks.items())
            if at > now:
                return
            self._fire(at, name, BEFORE, by_clock=True)
        if self.operator.idle_by_clock and self._deadline() <= now:
            self._idle(self._deadline(), BEFORE)

    def _until(self, upto: int, phase: int) -> None:
        """Fire what event time has reached."""
        ctx = self.ctx
        while ctx._events:
            due = [(at, name) for name, at in ctx._events.items() if at <= upto and name not in self._over]
            if not due:
                break
            at, name = min(due)
            if upto >= ALL_READ:
                self._over.add(name)  # at the end of time, a timer that sets itself again would never stop
            self._fire(at, name, phase, by_clock=False)
        if self.operator.idle_ttl is not None and not self.operator.idle_by_clock and self._deadline() <= upto:
            self._idle(self._deadline(), phase)

    def _deadline(self) -> int:
        """When the key expires if nothing arrives. Timers that are set keep it alive."""
        if self.operator.idle_ttl is None or not self._known or self.ctx._events or self.ctx._clocks:
            return END_OF_TIME
        return self._touched + self.operator.idle_ttl

    def _fire(self, at: int, name: str, phase: int, *, by_clock: bool) -> None:
        ctx = self.ctx
        assert self.hooks.on_timer is not None, "no timer without it"
        if by_clock:
            ctx.cancel_processing_timer(name)
        else:
            ctx.cancel_timer(name)
        self._moment(at, phase)
        ctx._firing = None if by_clock else at
        self._call("on_timer", self.hooks.on_timer, Timer(instant(at), name, by_clock))
        ctx._firing = None
        self._touch(at if not by_clock else self.clock.before)

    def _idle(self, at: int, phase: int) -> None:
        if self.hooks.on_idle is not None:
            self._moment(at, phase)
            self._call("on_idle", self.hooks.on_idle)
        self._forgotten()

    def _moment(self, at: int, phase: int) -> None:
        ctx = self.ctx
        self.moments.append((phase, at))
        ctx._at, ctx._time, self._given = -len(self.moments), instant(at), range(0)
        if phase == BETWEEN:
            ctx._watermark = at

    def _forgotten(self) -> None:
        self.ctx._forget, self._known, self._touched = False, False, 0
        self.ctx._events = self.ctx._clocks = NO_TIMERS
        self._state = self._new()

    def _call(self, hook: str, method: Callable[..., Any], *arguments: Any) -> bool:
        """Call a method. Returns whether it succeeded; a failed call leaves everything unchanged."""
        self._doing = hook
        ctx, state = self.ctx, self._state
        if not self._careful:
            ctx.take(method(*arguments, state, ctx))
        else:
            values, marks = self._safe(state), (ctx._events, ctx._clocks)
            lengths = [len(rows) for rows in ctx._rows]
            try:
                ctx.take(method(*arguments, state, ctx))
                if self.strict:
                    self._check(lengths)
            except Exception as error:
                if self.operator.errors == FAIL:
                    raise
                self._state = self._make(*values)
                ctx._events, ctx._clocks = marks
                ctx._forget = False
                for length, rows, places in zip(lengths, ctx._rows, ctx._places, strict=True):
                    del rows[length:], places[length:]
                self._set_apart(error)
                return False
        if ctx._forget:
            self._forgotten()
        else:
            self._known = True
        return True

    def _check(self, lengths: list[int]) -> None:
        """Refuse results and state that do not fit their columns."""
        for length, rows, output in zip(lengths, self.ctx._rows, self.operator.outputs, strict=True):
            schema = output.schema
            for row in rows[length:]:
                checked(row, schema.names, [f.type for f in schema], "the column")
        if self.operator.held is not None:
            cells = self.operator.held.cells
            values = written(self._get(self._state), [c.write for c in cells])
            checked(values, [c.name for c in cells], [c.type for c in cells], "the state")

    def _set_apart(self, error: Exception) -> None:
        if self.operator.errors != QUARANTINE:
            self.skipped += max(1, len(self._given))
            return
        for at in self._given or [None]:
            self.failures.append(failure(self._where(), error, self._record(at), redact=self.operator.redact))

    def _where(self) -> str:
        return (
            f"{self.operator.function_name}.{self._doing}"
            if hasattr(self.operator.function, self._doing)
            else self.operator.function_name
        )

    def _record(self, at: int | None = None) -> dict[str, Any]:
        """The input of a call: its row, or the key and the time of a timer."""
        if self.ctx._at >= 0:
            return self.rows.record(self.ctx._at if at is None else at)
        return {"key": self.ctx._key, "time": self.ctx._time}
