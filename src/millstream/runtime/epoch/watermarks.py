"""Watermarks: up to which event time a source is taken to be complete. They never go back.

A partition has come as far as the newest event time it has shown, less the source's lateness; with punctuation, as far
as it has promised. A source has come as far as the least of its live partitions. A partition is silent while its
offsets do not move; one that is silent for the idle timeout is no longer live. When all are, event time is taken to
flow with the clock, from the newest event time on. A source that never showed any goes with the fastest of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.clock import ALL_READ, BEGINNING
from millstream.connect.port import Offsets, SourcePort, SourceSlice
from millstream.kernels.disorder import within
from millstream.plan.plan import Plan, PlannedSource


@dataclass(frozen=True)
class SourceStanding:
    """A source as the loop finds it when it fixes the clock of an epoch."""

    name: str
    partitions: int
    lateness: int | None = 0
    """None: the records themselves say how far their partition has come (punctuation)."""
    idle: int | None = None
    timed: bool = True
    """Whether records carry an event time; else processing time is theirs."""
    waiting: frozenset[int] = frozenset()
    """Partitions with records for this epoch: they speak, however long they were silent."""
    finished: bool = False

    @property
    def rules(self) -> dict[str, Any]:
        """What stays the same from epoch to epoch, as plain data."""
        return {"lateness": self.lateness, "idle": self.idle, "timed": self.timed}


def standings(
    sources: Iterable[PlannedSource],
    ports: Mapping[str, SourcePort],
    offsets: Mapping[str, Offsets],
    slices: Mapping[str, SourceSlice],
) -> list[SourceStanding]:
    """How sources stand that were read up to `offsets`, with `slices` to be read next."""
    found = []
    for source in sources:
        options, start = source.options, offsets.get(source.name, {})
        found.append(
            SourceStanding(
                source.name,
                len(start) or 1,
                options.lateness.micros if options.punctuation is None else None,
                None if options.idle_timeout is None else options.idle_timeout.micros,
                options.event_time is not None,
                moved(slices[source.name]) if source.name in slices else frozenset(),
                ports[source.name].finished(start),
            )
        )
    return found


def moved(part: SourceSlice) -> frozenset[int]:
    """The partitions of which a slice has something."""
    return frozenset(p for p, (start, end) in part.ranges.items() if end > start)


@dataclass
class Watermarks:
    """What every partition has shown so far. Plain data in and out, so that it is committed with the epoch."""

    newest: dict[str, dict[int, int]] = field(default_factory=dict)
    """source -> partition -> newest event time; with punctuation, the newest that it promised."""
    active: dict[str, dict[int, int]] = field(default_factory=dict)
    """source -> partition -> processing time of the last epoch that had something of it."""
    last: dict[str, int] = field(default_factory=dict)
    """source -> the watermark that was given last."""
    since: dict[str, int] = field(default_factory=dict)
    """source -> processing time of the first epoch that looked at it; a silent partition is as old as that."""
    disorder: dict[str, dict[int, int]] = field(default_factory=dict)
    """source -> bucket of `kernels/disorder.py` -> records that came so far behind; only where a trigger asks."""
    shares: dict[str, dict[str, int]] = field(default_factory=dict)
    """source -> fraction of its records -> the watermark for it that was given last."""
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    """source -> its lateness and so on in the last epoch, for people who ask without the flow at hand."""
    held: dict[str, Any] = field(default_factory=dict)
    """Which partition held the flow back after the last epoch, where, and since when."""

    def seen(
        self,
        source: str,
        newest: Mapping[int, int],
        now: int,
        *,
        heard: Iterable[int] = (),
        disorder: Mapping[int, int] | None = None,
    ) -> None:
        """Take in what an epoch saw of a source; `heard` are partitions that spoke, if only to say nothing of time."""
        times, active = self.newest.setdefault(source, {}), self.active.setdefault(source, {})
        self.since.setdefault(source, now)
        for partition, time in newest.items():
            times[partition] = max(time, times.get(partition, time))
        active.update(dict.fromkeys((*newest, *heard), now))
        for bucket, count in (disorder or {}).items():
            counts = self.disorder.setdefault(source, {})
            counts[bucket] = counts.get(bucket, 0) + count

    def rested(self, source: str, now: int) -> None:
        """A source that stands still while the flow does (a generator) was not silent in the meantime."""
        self.active[source] = dict.fromkeys(self.active.get(source, {}), now)

    def of(self, sources: Sequence[SourceStanding], now: int) -> dict[str, int]:
        """The watermark of every source now."""
        return self._all(sources, now, {s.name: s.lateness or 0 for s in sources}, self.last)

    def of_shares(
        self, sources: Sequence[SourceStanding], now: int, fractions: Iterable[float]
    ) -> dict[str, dict[str, int]]:
        """Per source and fraction the event time up to which so much of the records is taken to be there.

        As the watermark, but only so far behind the newest record as this share of the records was so far.
        """
        whole = self.of(sources, now)
        found: dict[str, dict[str, int]] = {}
        for fraction in fractions:
            behind = {s.name: min(s.lateness or 0, within(self.disorder.get(s.name, {}), fraction)) for s in sources}
            before = {s: by.get(repr(fraction), BEGINNING) for s, by in self.shares.items()}
            for name, at in self._all(sources, now, behind, before).items():
                found.setdefault(name, {})[repr(fraction)] = max(at, whole[name])
        return found

    def newest_counted(self, plan: Plan) -> dict[str, Mapping[int, int]]:
        """The newest event times of the sources whose disorder is counted: if some trigger of the plan waits for a
        fraction of the records.
        """
        counted = [s.name for s in plan.sources if s.options.punctuation is None] if plan.fractions else []
        return {name: self.newest.get(name, {}) for name in counted}

    def reach(self, sources: Sequence[SourceStanding], now: int) -> dict[str, int]:
        """The watermarks after an epoch at `now`; also notes who holds them, and since when."""
        for source in sources:
            self.since.setdefault(source.name, now)
            self.rules[source.name] = source.rules
        holder = self.holder(sources, now)
        if holder is None:
            self.held = {}
        else:
            source_name, partition = holder
            at = self.newest.get(source_name, {}).get(partition)
            held = {"source": source_name, "partition": partition, "newest": at}
            if {**self.held, "since": None} != {**held, "since": None}:
                self.held = {**held, "since": now}
        return self.of(sources, now)

    def holder(self, sources: Sequence[SourceStanding], now: int) -> tuple[str, int] | None:
        """Source and partition that hold the flow back; None when time itself does, or all sources have ended."""
        marks = self.of(sources, now)
        known = [s for s in sources if not self._unknown(s, now)]
        if not known:
            return None
        slowest = min(known, key=lambda s: marks[s.name])
        live = self._live(slowest, now)
        if slowest.finished or not slowest.timed or not live:
            return None
        times = self.newest.get(slowest.name, {})
        return slowest.name, min(live, key=lambda p: (times.get(p, BEGINNING), p))

    def is_idle(self, source: SourceStanding, partition: int, now: int) -> bool:
        """Whether a partition has been silent for the idle timeout, and so holds nothing back."""
        if source.idle is None or partition in source.waiting:
            return False
        heard = self.active.get(source.name, {}).get(partition, self.since.get(source.name, now))
        return now - heard >= source.idle

    def _live(self, source: SourceStanding, now: int) -> list[int]:
        return [p for p in range(source.partitions) if not self.is_idle(source, p, now)]

    def _unknown(self, source: SourceStanding, now: int) -> bool:
        """Whether nobody knows where the source is in event time, and it has been silent for the idle timeout."""
        known = source.finished or not source.timed or bool(self.newest.get(source.name))
        return not known and not self._live(source, now)

    def _all(
        self, sources: Sequence[SourceStanding], now: int, behind: Mapping[str, int], last: Mapping[str, int]
    ) -> dict[str, int]:
        found = {s.name: max(self._at(s, now, behind[s.name]), last.get(s.name, BEGINNING)) for s in sources}
        unknown = {s.name for s in sources if self._unknown(s, now)}
        # that another source has ended does not mean that nothing comes of this one
        others = [
            self._at(replace(s, finished=False), now, behind[s.name]) if s.finished else found[s.name]
            for s in sources
            if s.name not in unknown
        ]
        return found | {name: max([found[name], *others]) for name in unknown}

    def _at(self, source: SourceStanding, now: int, behind: int) -> int:
        if source.finished:
            return ALL_READ
        if not source.timed:
            return now
        times = self.newest.get(source.name, {})
        live = self._live(source, now)
        if not times or any(p not in times for p in live):
            return BEGINNING
        if live:
            return min(times[p] for p in live) - behind
        return max(times.values()) - behind + now - max(self.active[source.name].values())

    def to_json(self) -> dict[str, Any]:
        """Plain data for the store."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Watermarks:
        """Read what `to_json` wrote."""

        def numbered(name: str) -> dict[str, dict[int, int]]:
            return {s: {int(p): t for p, t in by.items()} for s, by in data.get(name, {}).items()}

        return cls(
            numbered("newest"),
            numbered("active"),
            dict(data["last"]),
            dict(data["since"]),
            numbered("disorder"),
            *({**data.get(name, {})} for name in ("shares", "rules", "held")),
        )
