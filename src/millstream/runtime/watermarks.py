"""Watermarks: per source the least over its live partitions of (newest event time - lateness). They never go back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.clock import ALL_READ, BEGINNING
from millstream.plan.stages import SourceStage


@dataclass
class Watermarks:
    """What every partition has shown so far. Plain data in and out, so that it is committed with the epoch."""

    newest: dict[str, dict[int, int]] = field(default_factory=dict)
    """source -> partition -> newest event time."""
    active: dict[str, dict[int, int]] = field(default_factory=dict)
    """source -> partition -> processing time of the last epoch that had rows of it."""
    last: dict[str, int] = field(default_factory=dict)
    """source -> the watermark that was given last."""
    since: dict[str, int] = field(default_factory=dict)
    """source -> processing time of the first epoch that saw it; a silent partition is as old as that."""

    def seen(self, source: str, newest: Mapping[int, int], now: int) -> None:
        """Take in what an epoch saw of a source."""
        times = self.newest.setdefault(source, {})
        self.active.setdefault(source, {})
        self.since.setdefault(source, now)
        for partition, time in newest.items():
            times[partition] = max(time, times.get(partition, time))
            self.active[source][partition] = now

    def at(self, source: SourceStage, partitions: int, now: int, *, finished: bool) -> int:
        """The watermark of a source now. A partition silent for the idle timeout is left out; while some live
        partition has shown nothing yet, time has not begun.
        """
        if finished:
            return max(ALL_READ, self.last.get(source.name, BEGINNING))
        if source.options.event_time is None:
            return max(now, self.last.get(source.name, BEGINNING))
        times = self.newest.get(source.name, {})
        last = self.last.get(source.name, BEGINNING)
        if not times:
            return last
        live = [p for p in range(partitions) if self._live(source, p, now)] or list(times)
        if any(p not in times for p in live):
            return last
        return max(min(times[p] for p in live) - source.options.lateness.micros, last)

    def _live(self, source: SourceStage, partition: int, now: int) -> bool:
        """Whether a partition holds the watermark: always without an idle timeout, else while it was heard of
        lately.
        """
        idle = source.options.idle_timeout
        heard = self.active[source.name].get(partition, self.since[source.name])
        return idle is None or now - heard < idle.micros

    def to_json(self) -> dict[str, Any]:
        """Plain data for the store."""
        return {"newest": self.newest, "active": self.active, "last": self.last, "since": self.since}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Watermarks:
        """Read what `to_json` wrote."""

        def numbered(tree: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
            return {s: {int(p): t for p, t in by.items()} for s, by in tree.items()}

        return cls(numbered(data["newest"]), numbered(data["active"]), dict(data["last"]), dict(data["since"]))
