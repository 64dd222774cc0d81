"""A script of sends, ticks, crashes and expectations over one flow.

    script = Script(flow, tmp_path)
    script.send("bids", {"auction": 1, "price": 5, "ts": "2026-01-01T00:00:01Z"})
    script.tick()
    script.expect_changes("hot", ("+I", {"auction": 1, "bids": 1}))

Rows are sent to memory sources; other sources provide their own. The clock moves only with `advance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from millstream.clock import ManualClock
from millstream.errors import UnknownName
from millstream.home import Home
from millstream.model.connectors import Memory
from millstream.model.flow import Flow
from millstream.model.reserved import OP, SHOWN_OP, free_name
from millstream.model.types.duration import Duration
from millstream.model.types.values import python_rows
from millstream.plan.planner import plan
from millstream.result import plain, text_table
from millstream.runtime.epoch.loop import EpochReport, FlowLoop

STEPS = ("before open", "before work", "before sinks", "before commit", "after commit", "before close", "after close")
"""The steps of an epoch at which a crash can be injected."""


class Crash(Exception):
    """Raised inside an epoch when the script injects a crash."""


class Script:
    """One flow in one home, run step by step."""

    def __init__(
        self,
        flow: Flow,
        path: str | Path,
        *,
        start: str | datetime = "2026-01-01T00:00:00Z",
        placement: str = "inline",
        shards: int = 2,
    ) -> None:
        self.flow = flow
        self.path = Path(path)
        instant = datetime.fromisoformat(start) if isinstance(start, str) else start
        self.clock = ManualClock(round(instant.timestamp() * 1_000_000))
        self.placement, self.shards = placement, shards
        self.reports: list[EpochReport] = []
        self._changes: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self._crash_at: str | None = None
        self._plan = plan(flow)
        self._home: Home | None = None
        self._loop: FlowLoop | None = None
        self.resume()

    @property
    def home(self) -> Home:
        """The home, unless the flow has crashed."""
        assert self._home is not None, "crashed: resume first"
        return self._home

    def send(self, source: str, *rows: Mapping[str, Any], partition: int = 0) -> Script:
        """Send rows to a memory source. The next tick reads them."""
        self._memory(source).send(*(dict(r) for r in rows), partition=partition)
        return self

    def end(self, source: str) -> Script:
        """End a memory source: nothing more will be sent to it. Once it is read, its watermark advances to the end of
        time.
        """
        self._memory(source).end()
        return self

    def advance(self, by: str | timedelta | Duration) -> Script:
        """Advance the clock."""
        self.clock.advance(Duration.not_negative(by, what="advance").micros)
        return self

    def tick(self, epochs: int | None = None) -> list[EpochReport]:
        """Run epochs until there is nothing to do, or the specified number of epochs."""
        assert self._loop is not None, "crashed: resume first"
        done: list[EpochReport] = []
        while epochs is None or len(done) < epochs:
            try:
                report = self._loop.step()
            except Crash:
                self.crash()
                raise
            if report is None:
                break
            done.append(report)
            self._note(report)
        return done

    def replay_late(self, view: str) -> int:
        """Replay the late records of a view into it, as `Home.replay_late` does."""
        assert self._loop is not None, "crashed: resume first"
        try:
            number, report = self._loop.replay_late(view)
        except Crash:
            self.crash()
            raise
        if report is not None:
            self._note(report)
        return number

    def stop(self) -> Script:
        """Stop the flow between two epochs, as a user would. `resume` starts it again."""
        if self._loop is not None:
            self._loop.close()
        return self.crash()

    def crash(self, at: str | None = None) -> Script:
        """Drop everything that is not on disk, now or at a step of the next epoch (see STEPS)."""
        if at is not None:
            assert at in STEPS, at
            self._crash_at = at
            return self
        if self._loop is not None:
            self._loop.abandon()
        if self._home is not None:
            self._home.close()
        self._home = self._loop = None
        return self

    def resume(self, *, placement: str | None = None, shards: int | None = None) -> Script:
        """Restart from the files on disk, optionally with another placement or number of shards."""
        self.placement, self.shards = placement or self.placement, shards or self.shards
        self._crash_at = None
        self._home = Home(self.path, clock=self.clock)
        try:
            self._loop = self._loop_of(self._home)
        except BaseException:
            self.crash()
            raise
        return self

    def changes(self, view: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the changes of a view since the previous call."""
        return self._changes.pop(view, [])

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return all rows of a view, `<source>$errors` or `<view>$late`."""
        return self.home.query(f"SELECT * FROM `{table}`").to_dicts()

    def written(self, topic: str) -> list[dict[str, Any]]:
        """Return all records of a topic, ordered by partition and offset."""
        found = self.home.topic(topic)
        ends = found.end()
        tables = [found.read(p, start, ends[p]) for p, start in sorted(found.start().items())]
        return [{k: v for k, v in r.items() if not k.startswith("$")} for t in tables for r in python_rows(t)]

    def expect_changes(self, view: str, *expected: tuple[str, Mapping[str, Any]]) -> Script:
        """Assert the changes of a view since the previous call, in any order. Columns that are omitted are not
        compared.
        """
        found = self.changes(view)
        kind = free_name(SHOWN_OP, [n for _, row in (*found, *expected) for n in row])
        _compare(
            f"changes of `{view}`",
            [{kind: op, **r} for op, r in found],
            [{kind: op, **r} for op, r in expected],
        )
        return self

    def expect_rows(self, table: str, *expected: Mapping[str, Any]) -> Script:
        """Assert the rows of a table, in any order. Columns that are omitted are not compared."""
        _compare(f"rows of `{table}`", self.rows(table), expected)
        return self

    def close(self) -> None:
        """End the script."""
        self.crash()

    def __enter__(self) -> Script:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note(self, report: EpochReport) -> None:
        self.reports.append(report)
        for view, table in report.output.changes.items():
            rows = python_rows(table)
            changes = self._changes.setdefault(view, [])
            changes += [(r.pop(OP), {k: v for k, v in r.items() if not k.startswith("$")}) for r in rows]

    def _memory(self, source: str) -> Memory:
        for step in self.flow.sources:
            if step.name == source and isinstance(step.connector, Memory):
                return step.connector
        raise UnknownName(f"the flow has no memory source `{source}`")

    def _loop_of(self, home: Home) -> FlowLoop:
        return home.loop(
            self._plan, placement=self.placement, shards=self.shards, retract=True, failpoint=self._failpoint
        )

    def _failpoint(self, step: str) -> None:
        if step == self._crash_at:
            raise Crash(step)


def _compare(what: str, found: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> None:
    columns = list(dict.fromkeys(c for r in expected for c in r)) or [c for r in found[:1] for c in r]
    got = Counter(_row(r, columns) for r in found)
    want = Counter(_row(r, columns) for r in expected)
    if got != want:
        lines = [f"the {what} are not as expected"]
        for title, rows in (("missing", want - got), ("unexpected", got - want)):
            if rows:
                lines.append(f"{title}:\n{text_table(columns, [list(r) for r in rows.elements()])}")
        raise AssertionError("\n".join(lines))


def _row(row: Mapping[str, Any], columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_cell(row.get(c)) for c in columns)


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return value
    value = plain(value)
    return tuple(value) if isinstance(value, list) else value
