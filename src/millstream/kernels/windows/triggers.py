"""Triggers over columns: the state of one trigger for many windows at once, one integer per part and window.

The integer of a part is its count or phase, or FINISHED if it will not fire again. docs/decisions/0008-panes.md defines
each trigger; this module implements those definitions with arrays. The pane kernel evaluates it and stores its columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.clock import END_OF_TIME, Micros
from millstream.model.windows.trigger import (
    AfterCount,
    AfterDelay,
    AfterFraction,
    AfterWatermark,
    AllOf,
    AnyOf,
    InOrder,
    Once,
    Repeatedly,
    Trigger,
    Until,
    parts,
)

FINISHED = -1
NO_RECORD = -2
"""A delay that has seen no record yet."""
BEFORE_END, AFTER_END = 0, 1

Mask = Any
Column = Any
"""Columns of booleans and of integers (NumPy arrays)."""


@dataclass(frozen=True)
class Moment:
    """The input of a trigger evaluation: the clock, and the end of every window."""

    end: Column
    watermark: Micros
    now: Micros
    fractions: Mapping[float, int]


@dataclass(frozen=True)
class _Part:
    """A part of a trigger and the number of its column."""

    at: int
    trigger: Trigger
    parts: tuple[_Part, ...]

    @property
    def early(self) -> _Part | None:
        return self.parts[0] if isinstance(self.trigger, AfterWatermark) and self.trigger.early is not None else None

    @property
    def late(self) -> _Part | None:
        return self.parts[-1] if isinstance(self.trigger, AfterWatermark) and self.trigger.late is not None else None


class Machine:
    """The trigger of an operator, for a number of windows. `columns` is its state, which is stored with the windows."""

    def __init__(self, trigger: Trigger, columns: list[Column] | None = None, windows: int = 0) -> None:
        self._root, self.width = _number(trigger, 0)
        self.columns = columns if columns is not None else [np.zeros(windows, np.int64) for _ in range(self.width)]
        if columns is None:
            self.reset(np.ones(windows, dtype=bool))

    def reset(self, where: Mask) -> None:
        """Reset the trigger of these windows."""
        self._reset(self._root, where)

    @property
    def finished(self) -> Mask:
        """Which windows will not fire again."""
        return self._finished(self._root)

    def records(self, counts: Column, times: Column) -> None:
        """Record how many records arrived for each window, and when the first of them did."""
        self._records(self._root, counts > 0, counts, times)

    def ready(self, moment: Moment) -> Mask:
        """Which windows are ready to fire."""
        return self._ready(self._root, moment)

    def fire(self, where: Mask, moment: Moment) -> None:
        """Record that these windows, which were ready, have fired."""
        self._fire(self._root, where, moment)

    def deadline(self, now: Micros) -> Column:
        """The next processing time at which some part becomes ready; END_OF_TIME if there is none."""
        deadlines = np.full(len(self.columns[0]), END_OF_TIME, dtype=np.int64)
        for part in _all(self._root):
            if isinstance(part.trigger, AfterDelay):
                state = self.columns[part.at]
                due = _due(part.trigger, state)
                deadlines = np.where((state >= 0) & (due > now), np.minimum(deadlines, due), deadlines)
        return deadlines

    def fraction(self, ends: Column, earliest: int) -> Column:
        """The watermark for a fraction of the data at which some part becomes ready, unless all have reached it."""
        if not any(isinstance(p.trigger, AfterFraction) for p in _all(self._root)):
            return np.full(len(ends), END_OF_TIME, dtype=np.int64)
        return np.where(ends > earliest, ends, END_OF_TIME)

    def _finished(self, part: _Part) -> Mask:
        return self.columns[part.at] == FINISHED

    def _reset(self, part: _Part, where: Mask) -> None:
        for each in _all(part):
            self.columns[each.at][where] = NO_RECORD if isinstance(each.trigger, AfterDelay) else 0

    def _records(self, part: _Part, where: Mask, counts: Column, times: Column) -> None:
        state = self.columns[part.at]
        where = where & (state != FINISHED)
        match part.trigger:
            case AfterCount():
                state[where] += counts[where]
            case AfterDelay():
                first = where & (state == NO_RECORD)
                state[first] = times[first]
            case AfterWatermark():
                if part.early is not None:
                    self._records(part.early, where & (state == BEFORE_END), counts, times)
                if part.late is not None:
                    self._records(part.late, where & (state == AFTER_END), counts, times)
            case InOrder():
                for child, at_it in self._present(part):
                    self._records(child, where & at_it, counts, times)
            case _:
                for child in part.parts:
                    self._records(child, where, counts, times)

    def _ready(self, part: _Part, moment: Moment) -> Mask:
        state = self.columns[part.at]
        going = state != FINISHED
        match part.trigger:
            case AfterCount(n):
                return going & (state >= n)
            case AfterDelay():
                return (state >= 0) & (_due(part.trigger, state) <= moment.now)
            case AfterFraction(fraction):
                return going & (moment.end <= max(moment.watermark, moment.fractions.get(fraction, moment.watermark)))
            case AfterWatermark():
                ready = (state == BEFORE_END) & (moment.end <= moment.watermark)
                if part.early is not None:
                    ready |= (state == BEFORE_END) & self._ready(part.early, moment)
                if part.late is not None:
                    ready |= (state == AFTER_END) & self._ready(part.late, moment)
                return ready
            case AllOf():
                return going & np.logical_and.reduce([self._ready(p, moment) for p in part.parts])
            case InOrder():
                ready = np.zeros(len(state), dtype=bool)
                for child, at_it in self._present(part):
                    ready |= at_it & self._ready(child, moment)
                return going & ready
            case _:
                return going & np.logical_or.reduce([self._ready(p, moment) for p in part.parts])

    def _fire(self, part: _Part, where: Mask, moment: Moment) -> None:
        state = self.columns[part.at]
        match part.trigger:
            case AfterCount() | AfterDelay() | AfterFraction():
                state[where] = FINISHED
            case AfterWatermark():
                self._fire_watermark(part, where, moment)
            case AnyOf() | AllOf():
                for child in part.parts:
                    self._fire(child, where & self._ready(child, moment), moment)
                state[where] = FINISHED
            case InOrder():
                for child, at_it in list(self._present(part)):
                    self._fire(child, where & at_it, moment)
                state[where & self._finished(part.parts[-1])] = FINISHED
            case Repeatedly():
                self._again(part.parts[0], where, moment)
            case Once():
                self._fire(part.parts[0], where, moment)
                state[where] = FINISHED
            case Until():
                child, stop = part.parts
                stopping = where & self._ready(stop, moment)
                self._fire(stop, stopping, moment)
                self._fire(child, where & ~stopping, moment)
                state[stopping | (where & self._finished(child))] = FINISHED

    def _fire_watermark(self, part: _Part, where: Mask, moment: Moment) -> None:
        state = self.columns[part.at]
        early, late = where & (state == BEFORE_END), where & (state == AFTER_END)
        on_time = early & (moment.end <= moment.watermark)
        if part.early is not None:
            self._again(part.early, early & ~on_time, moment)
            self._reset(part.early, on_time)
        if part.late is not None:
            self._again(part.late, late, moment)
        state[on_time] = FINISHED if part.late is None else AFTER_END

    def _again(self, part: _Part, where: Mask, moment: Moment) -> None:
        """Fire a repeated part."""
        self._fire(part, where, moment)
        self._reset(part, where & self._finished(part))

    def _present(self, part: _Part) -> list[tuple[_Part, Mask]]:
        """The parts of an in_order, each with the windows that are currently at it."""
        before = np.ones(len(self.columns[part.at]), dtype=bool)
        presents = []
        for child in part.parts:
            done = self._finished(child)
            presents.append((child, before & ~done))
            before = before & done
        return presents


def _number(trigger: Trigger, at: int) -> tuple[_Part, int]:
    """Number the parts of a trigger from `at`. Also returns the next free number."""
    after, children = at + 1, []
    for child in parts(trigger):
        part, after = _number(child, after)
        children.append(part)
    return _Part(at, trigger, tuple(children)), after


def _all(part: _Part) -> list[_Part]:
    return [part, *(p for child in part.parts for p in _all(child))]


def _due(trigger: AfterDelay, first: Column) -> Column:
    delay = trigger.delay.micros
    return (first // delay + 1) * delay if trigger.aligned else first + delay
