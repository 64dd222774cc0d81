"""A slow reference of windows, triggers, lateness, panes and accumulation: docs/decisions/0008-panes.md as a program.

It keeps every record and works every answer out anew. It shares no code with the kernels, and imports nothing of
Millstream. Where the page leaves a question open, a comment that begins with OPEN says what was decided here.

    reference = Reference(Tumbling(10), on_change(), RETRACTING, lateness=0, aggregates={"n": "count"})
    step = reference.epoch(now=0, watermark=BEGINNING, records=[{"key": "a", "t": 3, "part": 0, "pos": 0, "v": 1}])
    step.changes, step.panes, step.late
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.reference.triggers import Moment, Running, Trigger, finishes
from tests.reference.windows import ALL_READ, BEGINNING, Count, Everything, Span, Window

ACCUMULATING, RETRACTING, DISCARDING = "accumulating", "retracting", "discarding"
EARLY, ON_TIME, LATE = "early", "on time", "late"

BEHIND = "behind the watermark"
FINISHED = "the trigger of its window has finished"
NOWHERE = "it belongs to no window"

CLOCK, RECORDS = "clock", "records"
"""Why a window is looked at."""

Row = dict[str, Any]
Aggregates = Mapping[str, str | tuple[str, str]]


@dataclass(eq=False)
class Record:
    """A record and the processing time at which it came."""

    fields: Row
    came: int

    @property
    def order(self) -> tuple[int, int, int]:
        return (self.fields["t"], self.fields["part"], self.fields["pos"])


@dataclass
class Step:
    """What an epoch gives."""

    changes: list[tuple[str, Row]] = field(default_factory=list)
    panes: list[Row] = field(default_factory=list)
    late: list[tuple[Row, str]] = field(default_factory=list)


@dataclass(eq=False)
class Held:
    """A window of a key that has records and has not expired."""

    key: Any
    start: int
    end: int
    trigger: Running
    index: int | None = None
    """The number of a count window."""
    complete: bool = True
    """Whether a count window has all its records."""

    records: list[Record] = field(default_factory=list)
    unshown: list[Record] = field(default_factory=list)
    """Those that no pane of this window has shown."""

    panes: int = 0
    """How many panes it gave."""
    there_before_its_end: bool = False
    pane_since_its_end: bool = False
    row: Row | None = None
    """What the view shows of it."""

    def passed(self, watermark: int, lateness: int = 0) -> bool:
        """Whether a watermark has reached the end of the window, or that much after it."""
        if watermark >= ALL_READ:
            return True
        if self.index is not None:
            # The end of a count window is the time of a record that belongs to it, so W must be after it.
            return self.complete and watermark > self.end + lateness
        return watermark >= self.end + lateness

    def take(self, records: list[Record], now: int) -> None:
        self.records += records
        self.unshown += records
        self.trigger.see(len(records), now)


class Reference:
    """One windowed step over all its epochs."""

    def __init__(
        self,
        window: Window,
        trigger: Trigger,
        accumulation: str,
        lateness: int = 0,
        aggregates: Aggregates | None = None,
    ) -> None:
        assert accumulation in (ACCUMULATING, RETRACTING, DISCARDING)
        assert not (isinstance(window, Count) and (accumulation == DISCARDING or finishes(trigger))), "refused"
        self.window, self.trigger, self.accumulation, self.lateness = window, trigger, accumulation, lateness
        self.aggregates = {"n": "count"} if aggregates is None else dict(aggregates)
        self.held: list[Held] = []
        self.view: dict[tuple[Any, ...], Row] = {}
        """What the view shows after the last epoch, by key and window."""
        self.counted: dict[Any, Counted] = {}
        self.now, self.watermark = BEGINNING, BEGINNING
        self.fractions: Mapping[float, int] = {}
        self.step = Step()

    def epoch(
        self,
        *,
        now: int,
        watermark: int,
        records: Iterable[Row] = (),
        before: int | None = None,
        fractions: Mapping[float, int] | None = None,
    ) -> Step:
        """First the clock moves, then records come."""
        assert now >= self.now and watermark >= self.watermark, "time does not go back"
        assert before is None or before == self.watermark
        self.step = Step()
        self.now, self.watermark, self.fractions = now, watermark, fractions or {}

        for window in list(self.held):
            self.look(window, CLOCK)

        by_key: dict[Any, list[Record]] = {}
        for row in records:
            by_key.setdefault(row["key"], []).append(Record(row, now))
        for key, come in by_key.items():
            come.sort(key=lambda r: r.order)
            if isinstance(self.window, Count):
                touched = self.take_in_by_number(key, come)
            elif self.window.merges:
                touched = self.take_in_and_merge(key, come)
            else:
                touched = self.take_in(key, come)
            for window in touched:
                self.look(window, RECORDS)
        return self.step

    # ------------------------------------------------------------ a window is looked at

    def look(self, window: Held, why: str) -> None:
        """Fire a window if its trigger is ready; let it go if it has expired. One pane at the most."""
        ended = window.passed(self.watermark)
        expired = window.passed(self.watermark, self.lateness)
        # OPEN: the watermark for a fraction of the data is never behind the one for all of it.
        moment = Moment(
            self.now, ended, lambda p: window.passed(max(self.watermark, self.fractions.get(p, self.watermark)))
        )
        if not ended:
            timing = EARLY
        elif why == CLOCK and window.there_before_its_end and not window.pane_since_its_end:
            # OPEN: literally "the first pane at or after the end": with a trigger like every(...) that may be some time
            # after the end, as long as no late record brought a pane before.
            timing = ON_TIME
        else:
            timing = LATE

        # Without records to show it fires only to give its on-time pane, whichever trigger is ready: a trigger never
        # fires, and is never finished, without a pane. (So an expiring window with unshown records has not finished.)
        fires = (window.unshown or timing == ON_TIME) and not window.trigger.finished and window.trigger.ready(moment)
        if fires:
            window.trigger.fire(moment)
        if fires or (expired and window.unshown):
            self.give_pane(window, timing, is_last=expired or window.trigger.finished)
            window.pane_since_its_end = ended
        if expired:
            self.let_go(window)

    def give_pane(self, window: Held, timing: str, *, is_last: bool) -> None:
        over = window.unshown if self.accumulation == DISCARDING else window.records
        row = self.row(window, over)
        pane = {"pane": window.panes, "timing": timing, "is_first": window.panes == 0, "is_last": is_last}
        self.step.panes.append({**row, **pane, "watermark": self.watermark})
        window.panes += 1
        if window.unshown:  # an empty pane does not change the view
            self.show(window, row)
        window.unshown = []

    def show(self, window: Held, row: Row) -> None:
        if window.row is None:
            self.change("+I", window, row)
        elif self.accumulation == DISCARDING:
            self.change("+U", window, row)
        elif row != window.row:
            if self.accumulation == RETRACTING:
                self.change("-U", window, window.row)
            self.change("+U", window, row)
        window.row = row

    def change(self, op: str, window: Held, row: Row) -> None:
        self.step.changes.append((op, row))
        if op in ("+I", "+U"):
            self.view[self.identity(window)] = row
        else:
            del self.view[self.identity(window)]

    def identity(self, window: Held) -> tuple[Any, ...]:
        return (window.key, window.start, window.end) if window.index is None else (window.key, window.index)

    def row(self, window: Held, records: list[Record]) -> Row:
        borders: Row = {"window_start": window.start, "window_end": window.end}
        if isinstance(self.window, Everything):
            borders = {}
        if window.index is not None:
            borders = {"window_index": window.index, **borders}
        return {**borders, "key": window.key, **answers(self.aggregates, records)}

    # ------------------------------------------------------------ windows come and go

    def open(self, key: Any, span: Span, index: int | None = None, *, complete: bool = True) -> Held:
        window = Held(key, *span, trigger=self.trigger.begin(), index=index, complete=complete)
        window.there_before_its_end = not window.passed(self.watermark)
        self.held.append(window)
        return window

    def let_go(self, window: Held) -> None:
        """It has expired: nothing more can come of it. Its row stays in the view."""
        self.held.remove(window)
        if window.index is not None:
            counted = self.counted[window.key]
            counted.gone = max(counted.gone, window.index + 1)
            counted.last_gone = max(counted.last_gone, window.records[-1].order)

    def of_key(self, key: Any) -> list[Held]:
        return [w for w in self.held if w.key == key]

    # ------------------------------------------------------------ records come: windows with fixed borders

    def take_in(self, key: Any, records: list[Record]) -> list[Held]:
        """Put records into all their windows that take records; give the windows that got some."""
        held = {(w.start, w.end): w for w in self.of_key(key)}
        got: dict[Span, list[Record]] = {}
        for record in records:
            spans = self.window.of(record.fields)
            open_spans = [s for s in spans if not self.has_expired(s)]
            taken = [s for s in open_spans if s not in held or not held[s].trigger.finished]
            for span in taken:
                got.setdefault(span, []).append(record)
            self.set_apart(record, spans, open_spans, taken)
        touched = []
        for span, come in sorted(got.items()):
            window = held.get(span) or self.open(key, span)
            window.take(come, self.now)
            touched.append(window)
        return touched

    def has_expired(self, span: Span) -> bool:
        return self.watermark >= ALL_READ or self.watermark >= span[1] + self.lateness

    def set_apart(self, record: Record, windows: list[Any], not_expired: list[Any], taken: list[Any]) -> None:
        """List a record that no window took."""
        if taken:
            return
        if not windows:
            self.step.late.append((record.fields, NOWHERE))
        else:
            self.step.late.append((record.fields, FINISHED if not_expired else BEHIND))

    # ------------------------------------------------------------ records come: windows that merge

    def take_in_and_merge(self, key: Any, records: list[Record]) -> list[Held]:
        """Merge the windows of the records with those that are held, all at once."""
        held = self.of_key(key)
        spans = {record: self.window.of(record.fields) for record in records}
        together = {(w.start, w.end) for w in held} | {s for of_record in spans.values() for s in of_record}
        become = self.window.merged(sorted(together))
        # OPEN: a window becomes the first of those given back that it lies within.
        target = {s: next(b for b in become if b[0] <= s[0] and s[1] <= b[1]) for s in together}

        got: dict[Span, list[Record]] = {}
        same: dict[Span, Held] = {}
        for window in held:
            span = target[window.start, window.end]
            alone = sum(target[w.start, w.end] == span for w in held) == 1
            if alone and span == (window.start, window.end):
                same[span] = window
        for record in records:
            mine = [target[s] for s in spans[record]]  # one at the most
            not_expired = [s for s in mine if not self.has_expired(s)]
            # OPEN: a finished trigger keeps records out of its window only while that stays the same window. A record
            # that makes it grow, or merges it with another, begins a new window, whose trigger begins anew; records of
            # the same epoch that would not have made it grow are then taken too.
            taken = [s for s in not_expired if s not in same or not same[s].trigger.finished]
            for span in taken:
                got.setdefault(span, []).append(record)
            self.set_apart(record, mine, not_expired, taken)

        touched = []
        for span in sorted({target[s] for s in together}):
            if span in same:
                if span in got:
                    same[span].take(got[span], self.now)
                    touched.append(same[span])
                continue
            gone = [w for w in held if target[w.start, w.end] == span]
            if gone or span in got:
                touched.append(self.begin_anew(key, span, gone, got.get(span, [])))
        return touched

    def begin_anew(self, key: Any, span: Span, gone: list[Held], come: list[Record]) -> Held:
        """Windows that merge or grow are gone from the view, and a new one begins with what no pane has shown."""
        for window in gone:
            if window.row is not None:
                self.change("-D", window, window.row)
            self.held.remove(window)
        merged = self.open(key, span)
        merged.records = _once_each([*(r for w in gone for r in w.records), *come])
        merged.unshown = _once_each([*(r for w in gone for r in w.unshown), *come])
        # OPEN: a record that no pane has shown keeps the processing time at which it came, so after_delay counts from
        # the first of these, and a session that grows all the time still answers every so often.
        if merged.unshown:
            merged.trigger.see(len(merged.unshown), min(r.came for r in merged.unshown))
        return merged

    # ------------------------------------------------------------ records come: count windows

    def take_in_by_number(self, key: Any, records: list[Record]) -> list[Held]:
        """Number the records of the key anew, and see which windows hold others than before."""
        assert isinstance(self.window, Count)
        counted = self.counted.setdefault(key, Counted())
        come = []
        for record in records:
            # OPEN: at the end of time every record is late, also one that would come after the last window.
            if self.watermark >= ALL_READ or record.order < counted.last_gone:
                self.step.late.append((record.fields, BEHIND))
            else:
                come.append(record)
        counted.records = sorted([*counted.records, *come], key=lambda r: r.order)

        held = {w.index: w for w in self.of_key(key)}
        touched = []
        # A window is there as soon as one of its records is: of sliding windows several are incomplete at a time, and
        # at the end of time each of them gives a pane.
        for index in itertools.count(counted.gone):
            content = [counted.records[n] for n in self.window.numbers(index) if n < len(counted.records)]
            if not content:
                break
            span = (content[0].fields["t"], content[-1].fields["t"])
            complete = len(counted.records) >= (index + 1) * self.window.every
            window = held.get(index) or self.open(key, span, index, complete=complete)
            fresh = [r for r in content if r not in window.records]
            window.start, window.end, window.complete, window.records = *span, complete, content
            if fresh:
                window.unshown = [r for r in content if r in window.unshown or r in fresh]
                # A record that was pushed on from the window before came to this window now.
                window.trigger.see(len(fresh), self.now)
                touched.append(window)
        # OPEN: if these records are behind W, a window may have expired as soon as they complete it: its first pane
        # is then its last.
        return touched


@dataclass
class Counted:
    """All records of a key in order, how many of its windows have expired, and the last record of these."""

    records: list[Record] = field(default_factory=list)
    gone: int = 0
    last_gone: tuple[int, int, int] = (BEGINNING, 0, 0)


def identity(row: Row) -> tuple[Any, ...]:
    """Which row of the view it is."""
    if "window_index" in row:
        return (row["key"], row["window_index"])
    return (row["key"], row.get("window_start"), row.get("window_end"))


def bag(rows: Iterable[Any]) -> Counter[Any]:
    """Rows (or anything made of them) without their order."""
    return Counter(map(_frozen, rows))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted((k, _frozen(v)) for k, v in value.items()))
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _once_each(records: list[Record]) -> list[Record]:
    return list(dict.fromkeys(records))


# ---------------------------------------------------------------- answers


def answers(aggregates: Aggregates, records: list[Record]) -> Row:
    """The aggregates over some records."""
    ordered = [r.fields for r in sorted(records, key=lambda r: r.order)]
    result: Row = {}
    for name, how in aggregates.items():
        kind, column = (how, None) if isinstance(how, str) else how
        result[name] = KINDS[kind](ordered if column is None else [r[column] for r in ordered])
    return result


def _given(values: list[Any]) -> list[Any]:
    return [v for v in values if v is not None]


KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "count": lambda values: len(_given(values)),
    "sum": lambda values: sum(_given(values)) if _given(values) else None,
    "min": lambda values: min(_given(values), default=None),
    "max": lambda values: max(_given(values), default=None),
    "avg": lambda values: sum(_given(values)) / len(_given(values)) if _given(values) else None,
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "collect": _given,
    "count_distinct": lambda values: len(set(_given(values))),
    "squares": lambda values: sum(v * v for v in _given(values)),
}
"""Values in the order of event time, partition, offset. NULLs are left out, but for `first` and `last`. The last one
stands for an aggregate that a user wrote.
"""
