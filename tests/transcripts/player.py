"""Plays a story on a script: does what its lines say, and holds what is seen against what they expect.

Besides what a story says itself, some laws hold at every look: the changes so far come to the view; a pane's index
counts from 0 within its window, none follows the last, and it carries the watermark of its epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from millstream.clock import BEGINNING
from millstream.errors import MillstreamError
from millstream.testing.script import STEPS, Crash
from tests.transcripts.story import (
    SOURCE,
    VIEW,
    Record,
    Step,
    Story,
    differences,
    failure,
    show_change,
    show_late,
    show_pane,
    show_row,
)

Rows = list[dict[str, Any]]

_COMMITTED = ("after commit", "before close", "after close")
LAST_INSTANT = 253402300799_000000
"""The latest instant that is shown: the end of the year 9999."""


@dataclass
class Player:
    """A story on a script, from its first line to its last."""

    story: Story
    script: Any
    run: str
    crashing: bool = False
    """Crash in every epoch, at one step of it after the other, and go on with another number of shards."""

    keeps_panes: bool = True

    shown: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    """The view as the changes have it."""
    known: bool = True
    """Whether all changes since the last look are known: an epoch that dies after its commit tells nobody of them."""
    panes: Rows = field(default_factory=list)
    given: dict[tuple[Any, ...], tuple[int, bool]] = field(default_factory=dict)
    """For every window how many panes it gave, and whether the last was said to be the last."""
    seen_late: int = 0
    seen_epoch: int = 0
    watermarks: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._points, self._shards = cycle(STEPS), cycle((2, 3, 1, 5))

    def play(self) -> None:
        """All lines, each with what is expected after it."""
        __tracebackhide__ = True
        for step in self.story.steps:
            if step.stops:
                self.stop(step)
            else:
                self.perform(step)
            if self.script._loop is not None:
                self.look(step)

    def stop(self, step: Step) -> None:
        """A step at which the flow stops with an error."""
        __tracebackhide__ = True
        try:
            self.perform(step)
        except MillstreamError as error:
            found = str(error)
            if step.stops in found:
                return
        else:
            found = "no error"
        raise failure(self.story, self.run, step, [f"  expected to stop with: {step.stops}", f"  found: {found}"])

    def end(self) -> list[str]:
        """Let time come to its end, if it has not yet; the view then."""
        if not any(s.end for s in self.story.steps):
            self.script.end(SOURCE)
            self.epochs(None)
        return sorted(show_row(self.story, r) for r in self.script.view())

    def send(self, records: tuple[Record, ...] | list[Record]) -> None:
        for record in records:
            self.script.send(SOURCE, record.row, partition=record.partition)

    def perform(self, step: Step) -> None:
        """What a line says."""
        if step.crash:
            self.script.crash(at=step.crash)
            return
        if step.resume:
            self.script.resume()
        if step.clock:
            self.script.clock.advance(round(step.clock * 1_000_000))
        self.send(step.records)
        if step.end:
            self.script.end(SOURCE)
        if self.script._loop is not None:
            self.epochs(step.epochs)

    def epochs(self, most: int | None) -> None:
        """Epochs one by one, as many as said or as there is a reason for; panes are looked at after each."""
        done = 0
        while (most is None or done < most) and self.epoch():
            self.look_at_panes()
            done += 1

    def epoch(self) -> bool:
        if self.crashing:
            at = next(self._points)
            self.script.crash(at=at)
            try:
                self.script.tick(1)
            except Crash:
                self.script.resume(shards=next(self._shards))
                if at in _COMMITTED:
                    self.known = False
                    return True
            else:
                self.script._crash_at = None
                return False
        try:
            reports = self.script.tick(1)
        except Crash as crash:
            self.known = self.known and str(crash) not in _COMMITTED
            return False
        self.watermarks |= {r.number: r.watermark for r in reports}
        return bool(reports)

    # ------------------------------------------------------------ looking

    def look(self, step: Step) -> None:
        """What there is to see since the last look must be what the step expects."""
        __tracebackhide__ = True
        story, wrong = self.story, []
        changes = self.script.changes(VIEW)
        view = self.script.view()
        late = self.script.late()
        if self.known:
            if story.shows_changes:
                wrong += differences("changes", step.changes, [show_change(story, *c) for c in changes])
            wrong += self.fold(changes)
            wrong += differences("what the changes come to, against the view", self.rows(self.shown), self.rows(view))
        if story.shows_panes and self.keeps_panes:
            wrong += differences("panes", step.panes, [show_pane(story, r) for r in self.panes])
        wrong += differences("late rows", step.late, [show_late(story, r) for r in late[self.seen_late :]])
        if step.view is not None:
            wrong += differences("view", step.view, self.rows(view))
        if wrong:
            raise failure(story, self.run, step, wrong)
        self.shown = {self.place(r): r for r in view}
        self.known, self.panes, self.seen_late = True, [], len(late)

    def look_at_panes(self) -> None:
        if self.script._loop is None:
            return
        new = [r for r in self.script.panes() if r["epoch"] > self.seen_epoch]
        new.sort(key=lambda r: (r["epoch"], r["pane"]))
        if not new:
            return
        self.seen_epoch = max(r["epoch"] for r in new)
        self.panes += new
        wrong = []
        for row in new:
            at = self.watermarks.get(row["epoch"])
            shown = None if at == BEGINNING else min(at or 0, LAST_INSTANT)
            if at is not None and row["watermark"] != shown:
                wrong.append(f"  the watermark of a pane is not that of its epoch: {row}")
            before, ended = self.given.get(self.place(row), (0, False))
            if row["pane"] != before or row["is_first"] != (before == 0) or ended:
                wrong.append(f"  a pane out of turn: {show_pane(self.story, row)}")
            self.given[self.place(row)] = (before + 1, row["is_last"])
        if wrong:
            raise failure(self.story, self.run, None, wrong)

    def fold(self, changes: list[tuple[str, dict[str, Any]]]) -> list[str]:
        """Apply changes to the view as it was; what does not fit is told."""
        wrong = []
        for op, row in changes:
            place = self.place(row)
            before = self.shown.get(place)
            fits = {"+I": before is None, "-U": before == row, "-D": before == row}
            if not fits.get(op, True):
                held = "nothing" if before is None else show_row(self.story, before)
                wrong.append(
                    f"  a change that does not fit: {show_change(self.story, op, row)}, where there was {held}"
                )
            if op in ("+I", "+U"):
                self.shown[place] = row
            else:
                self.shown.pop(place, None)
        return wrong

    def place(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        window = ("window_index",) if "window_index" in row else ("window_start", "window_end")
        return tuple(row.get(c) for c in (*window, "k"))

    def rows(self, rows: Any) -> list[str]:
        return [show_row(self.story, r) for r in (rows.values() if isinstance(rows, dict) else rows)]
