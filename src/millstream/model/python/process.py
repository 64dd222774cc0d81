"""The public API of Python operators: `Process`, its `Context` and `Timer`, and the rows it emits.

A kernel (`kernels/python/process.py`) fills in a context and calls the methods of a process; nothing here runs on its
own.
"""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import repeat
from operator import itemgetter
from types import TracebackType
from typing import Any, NamedTuple

from millstream.clock import BEGINNING
from millstream.errors import DefinitionError, Origin
from millstream.model.origin import _shorten, here, is_users
from millstream.model.types.duration import Duration
from millstream.model.types.schema import Schema

FAIL, SKIP, QUARANTINE = "fail", "skip", "quarantine"
POLICIES = (FAIL, SKIP, QUARANTINE)
"""What happens to a row on which user code fails: the flow stops, the row is skipped and counted, or it is quarantined.
"""

NO_TIMERS: Mapping[str, int] = {}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_LAST = 253402300799_000000


class Process:
    """A keyed operator written in Python. Subclass it, and pass it to ``.key_by(...).process(...)``.

    The methods may return nothing, one row (a dict, or a tuple in schema order), or several rows (a list, or
    ``yield``). They must be deterministic and keep data only in `state`: data kept in ``self`` is lost.
    """

    state: type | str | Schema | None = None
    """A dataclass or a schema: the state of each key."""

    def on_row(self, row: Any, state: Any, ctx: Context) -> Any:
        """Called for each row."""
        raise NotImplementedError

    # A process may also define these methods:
    #   on_rows(rows, state, ctx)       instead of on_row: all rows of a key in an epoch at once
    #   on_retract(row, state, ctx)     a row of a changing input is retracted
    #   on_timer(timer, state, ctx)     a timer is due
    #   on_idle(state, ctx)             the time to live has elapsed without a row; the key is deleted after this call


class Timer(NamedTuple):
    """A timer that is due."""

    time: datetime
    name: str
    by_clock: bool
    """Whether it is a processing-time timer."""


class Hooks(NamedTuple):
    """The methods of a process, where it defines them."""

    on_row: Callable[[Any, Any, Context], Any] | None
    on_rows: Callable[[Sequence[Any], Any, Context], Any] | None
    on_retract: Callable[[Any, Any, Context], Any] | None
    on_timer: Callable[[Timer, Any, Context], Any] | None
    on_idle: Callable[[Any, Context], Any] | None

    @classmethod
    def of(cls, function: object) -> Hooks:
        """The methods of an object, or a plain function as its `on_row`."""
        if isinstance(function, type):
            raise DefinitionError(
                f"{function.__name__} is a class",
                hint=f"pass an object: process({function.__name__}(), ...)",
                origin=here(),
            )
        methods = [getattr(function, name, None) for name in cls._fields]
        if methods[1] is not None and isinstance(function, Process) and type(function).on_row is Process.on_row:
            methods[0] = None
        if methods[0] is None and methods[1] is None and callable(function):
            return cls(function, None, None, None, None)
        if (methods[0] is None) == (methods[1] is None) or getattr(methods[0], "__func__", None) is Process.on_row:
            raise DefinitionError(
                f"{type(function).__name__} is not a process: "
                "it needs on_row(row, state, ctx) or on_rows(rows, state, ctx)",
                origin=here(),
            )
        return cls(*methods)


def name_of(function: object) -> str:
    """The name of a process or function in messages."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__


@dataclass(frozen=True)
class Output:
    """A destination for the rows of a process: its main output (without a name), or a side output."""

    name: str
    schema: Schema

    def picker(self) -> Callable[[Any], tuple[Any, ...]]:
        """A function that converts a row from user code to a tuple in column order."""
        names = self.schema.names
        pick: Callable[[Any], Any] = itemgetter(*names)
        known, single, listed = frozenset(names), len(names) == 1, ", ".join(names)

        def picked(row: Any) -> tuple[Any, ...]:
            if isinstance(row, tuple):
                if len(row) != len(names):
                    msg = f"a row of {len(row)} values was emitted for the columns {listed}"
                    raise TypeError(msg)
                return row
            if not isinstance(row, Mapping):
                msg = f"{type(row).__name__} is not a row: pass a dict, or a tuple of {listed}"
                raise TypeError(msg)
            if len(row) != len(names) or row.keys() != known:
                unknown = sorted(map(str, row.keys() - known))
                if unknown:
                    msg = f"a row has no column `{unknown[0]}`; it has {listed}"
                    raise TypeError(msg)
                return tuple(map(row.get, names))  # a missing key is NULL
            return (pick(row),) if single else pick(row)

        return picked


class Context:
    """What a process can read in addition to its row and state, and what it can do in addition to returning rows."""

    __slots__ = (
        "_at",
        "_clocks",
        "_events",
        "_firing",
        "_forget",
        "_key",
        "_now",
        "_outputs",
        "_pickers",
        "_places",
        "_rows",
        "_time",
        "_timed",
        "_watermark",
    )

    def __init__(self, outputs: Sequence[Output], *, now: int = 0, timed: bool = True) -> None:
        self._outputs = {o.name: i for i, o in enumerate(outputs)}
        self._pickers = [o.picker() for o in outputs]
        self._rows: list[list[tuple[Any, ...]]] = [[] for _ in outputs]
        self._places: list[list[int]] = [[] for _ in outputs]
        self._now, self._timed = now, timed
        self._watermark: int = BEGINNING
        self._at = 0
        self._key: Any = None
        self._time: datetime | None = None
        self._events = self._clocks = NO_TIMERS
        self._firing: int | None = None
        self._forget = False

    @property
    def key(self) -> Any:
        """The key: its value, or a named tuple if it has several columns."""
        return self._key

    @property
    def time(self) -> datetime:
        """The event time of the row, or the time of the timer."""
        if self._time is None:
            msg = "there is no event time here; name its column with process(..., time=...)"
            raise TypeError(msg)
        return self._time

    @property
    def watermark(self) -> datetime | None:
        """The current watermark; None before there is one."""
        return None if self._watermark <= BEGINNING else instant(self._watermark)

    @property
    def now(self) -> datetime:
        """The processing time of the epoch. It has the same value if the epoch runs again."""
        return instant(self._now)

    def emit(self, row: Any, to: str = "") -> None:
        """Emit a row, to a side output if one is named."""
        output = self._outputs.get(to)
        if output is None:
            sides = ", ".join(n for n in self._outputs if n) or "none"
            msg = f"there is no side output `{to}`; there are: {sides}"
            raise TypeError(msg)
        self._rows[output].append(self._pickers[output](row))
        self._places[output].append(self._at)

    def set_timer(self, at: datetime | timedelta | str, name: str = "") -> None:
        """Schedule a call of `on_timer` for when the watermark reaches a time (or a delay after `time`). A key has one
        timer per name: setting it again moves it.
        """
        self._refuse_untimed()
        due = _micros(at) if isinstance(at, datetime) else _micros(self.time) + _length(at)
        if self._firing is not None and due <= self._firing:
            msg = "a timer cannot set another one that is due before itself"
            raise ValueError(msg)
        self._events = {**self._events, name: due}

    def set_processing_timer(self, at: datetime | timedelta | str, name: str = "") -> None:
        """Schedule a call of `on_timer` for when the clock reaches a time (or a delay after `now`), in the next epoch
        at the earliest.
        """
        self._refuse_untimed()
        due = _micros(at) if isinstance(at, datetime) else self._now + _length(at)
        self._clocks = {**self._clocks, name: max(due, self._now + 1)}

    def cancel_timer(self, name: str = "") -> None:
        """Cancel an event-time timer; does nothing if there is none."""
        self._events = {n: at for n, at in self._events.items() if n != name}

    def cancel_processing_timer(self, name: str = "") -> None:
        """Cancel a processing-time timer; does nothing if there is none."""
        self._clocks = {n: at for n, at in self._clocks.items() if n != name}

    def drop(self) -> None:
        """Delete the key, its state and its timers after this call."""
        self._forget = True

    def take(self, result: Any) -> None:
        """Emit what a method returned; the kernel calls this."""
        if isinstance(result, tuple | Mapping):
            self._rows[0].append(self._pickers[0](result))
            self._places[0].append(self._at)
        elif isinstance(result, Iterable) and not isinstance(result, str | bytes):
            for row in result:
                self.emit(row)
        elif result is not None:
            self._pickers[0](result)  # raises an error that explains why it is not a row

    def _refuse_untimed(self) -> None:
        if not self._timed:
            msg = "a timer needs a method on_timer(timer, state, ctx)"
            raise TypeError(msg)


def instant(micros: int) -> datetime:
    """An instant as a datetime; the end of time as the end of the year 9999."""
    return EPOCH + timedelta(microseconds=min(micros, _LAST))


def is_attribute(name: str) -> bool:
    """Whether a column of this name is an attribute of the rows that user code receives.

    >>> is_attribute("price"), is_attribute("class"), is_attribute("_price"), is_attribute("first name")
    (True, False, False, False)
    """
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


def rows_of(names: Sequence[str], columns: Sequence[Sequence[Any]]) -> Iterator[Any]:
    """Columns as the rows that user code receives. A column whose name cannot be an attribute is accessed by index."""
    plain = [n if is_attribute(n) else "" for n in names]
    kind = namedtuple("Row", plain, rename=True)  # type: ignore[misc]
    return map(tuple.__new__, repeat(kind), zip(*columns, strict=True))  # what `_make` does, without the extra call


def user_line(trace: TracebackType | None) -> Origin | None:
    """The line of user code that raised an error; None if the error did not come from user code."""
    place: tuple[str, int] | None = None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_users(file) and (place is None or place[0] == file):
            place = (file, trace.tb_lineno)
        trace = trace.tb_next
    return None if place is None else Origin(_shorten(place[0]), place[1])


def _micros(at: datetime) -> int:
    if at.tzinfo is None:
        msg = "the time of a timer needs a time zone, like the times of rows"
        raise TypeError(msg)
    return (at - EPOCH) // _MICRO


@lru_cache(maxsize=256)
def _length(duration: timedelta | str) -> int:
    return Duration.of(duration, what="timer").micros
