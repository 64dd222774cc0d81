"""Watermarks: the event time up to which a source is assumed to be complete. A watermark never decreases.

A partition's watermark is its newest event time minus the lateness; with punctuation, the newest punctuation. A
source's watermark is the minimum over its live partitions. A partition whose offsets have not moved for the idle
timeout is idle: it is not live. When all partitions of a source are idle, its watermark advances with the clock, from
its newest event time on. An idle source that has never had an event time takes the largest watermark of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.clock import ALL_READ, BEGINNING, Micros
from millstream.connect.port import Offsets, SourcePort, SourceSlice
from millstream.kernels.disorder import within
from millstream.plan.plan import Plan, PlannedSource


@dataclass(frozen=True)
class SourceStanding:
    """The state of a source at the time when the loop fixes the clock of an epoch."""

    name: str
    partitions: tuple[int, ...] = (0,)
    """The ids of its partitions, in order. They need not be 0 to n-1."""
    lateness: int | None = 0
    """None: the watermark comes from punctuation."""
    idle: int | None = None
    timed: bool = True
    """Whether records have an event time; otherwise processing time is used."""
    waiting: frozenset[int] = frozenset()
    """Partitions with records for this epoch. They are live, even after the idle timeout."""
    finished: bool = False

    @property
    def rules(self) -> dict[str, Any]:
        """The settings that do not change between epochs, as plain data."""
        return {"lateness": self.lateness, "idle": self.idle, "timed": self.timed}


def standings(
    sources: Iterable[PlannedSource],
    ports: Mapping[str, SourcePort],
    offsets: Mapping[str, Offsets],
    slices: Mapping[str, SourceSlice],
) -> list[SourceStanding]:
    """The state of sources that were read up to `offsets`, with `slices` to be read next."""
    rows = []
    for source in sources:
        options, start = source.options, offsets.get(source.name, {})
        rows.append(
            SourceStanding(
                source.name,
                tuple(sorted(start)) or (0,),
                options.lateness.micros if options.punctuation is None else None,
                None if options.idle_timeout is None else options.idle_timeout.micros,
                options.event_time is not None,
                moved(slices[source.name]) if source.name in slices else frozenset(),
                ports[source.name].finished(start),
            )
        )
    return rows


def moved(part: SourceSlice) -> frozenset[int]:
    """The partitions of which a slice has records."""
    return frozenset(p for p, (start, end) in part.ranges.items() if end > start)


@dataclass
class Watermarks:
    """The event times of every partition so far. They are committed with the epoch, as plain data."""

    newest: dict[str, dict[int, int]] = field(default_factory=dict)
    """source -> partition -> newest event time; with punctuation, the newest punctuation."""
    active: dict[str, dict[int, int]] = field(default_factory=dict)
    """source -> partition -> processing time of the last epoch in which its offset moved."""
    last: dict[str, int] = field(default_factory=dict)
    """source -> its last watermark."""
    since: dict[str, int] = field(default_factory=dict)
    """source -> processing time of its first epoch, where the idle timeout of a partition without records begins."""
    disorder: dict[str, dict[int, int]] = field(default_factory=dict)
    """source -> bucket of `kernels/disorder.py` -> number of records this late; only if a trigger needs it."""
    shares: dict[str, dict[str, int]] = field(default_factory=dict)
    """source -> fraction of its records -> the last watermark for that fraction."""
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    """source -> its lateness, idle timeout and so on in the last epoch, for status commands, which have no flow."""
    held: dict[str, Any] = field(default_factory=dict)
    """The partition that held the flow back after the last epoch, its newest event time, and since when."""

    def seen(
        self,
        source: str,
        newest: Mapping[int, int],
        now: Micros,
        *,
        heard: Iterable[int] = (),
        disorder: Mapping[int, int] | None = None,
    ) -> None:
        """Add the event times of an epoch; `heard` are partitions whose offsets moved, with or without event times."""
        times, active = self.newest.setdefault(source, {}), self.active.setdefault(source, {})
        self.since.setdefault(source, now)
        for partition, time in newest.items():
            times[partition] = max(time, times.get(partition, time))
        active.update(dict.fromkeys((*newest, *heard), now))
        for bucket, count in (disorder or {}).items():
            counts = self.disorder.setdefault(source, {})
            counts[bucket] = counts.get(bucket, 0) + count

    def rested(self, source: str, now: Micros) -> None:
        """Restart the idle timeouts of a source that stops together with its flow (a generator)."""
        self.active[source] = dict.fromkeys(self.active.get(source, {}), now)

    def of(self, sources: Sequence[SourceStanding], now: Micros) -> dict[str, int]:
        """The current watermark of every source."""
        return self._all(sources, now, {s.name: s.lateness or 0 for s in sources}, self.last)

    def of_shares(
        self, sources: Sequence[SourceStanding], now: Micros, fractions: Iterable[float]
    ) -> dict[str, dict[str, int]]:
        """For each source and fraction, the event time up to which this fraction of the records has probably arrived.

        It is computed like the watermark; the lateness is replaced by that of this fraction of the records so far.
        """
        whole = self.of(sources, now)
        shares: dict[str, dict[str, int]] = {}
        for fraction in fractions:
            behind = {s.name: min(s.lateness or 0, within(self.disorder.get(s.name, {}), fraction)) for s in sources}
            before = {s: by.get(repr(fraction), BEGINNING) for s, by in self.shares.items()}
            for name, at in self._all(sources, now, behind, before).items():
                shares.setdefault(name, {})[repr(fraction)] = max(at, whole[name])
        return shares

    def newest_counted(self, plan: Plan) -> dict[str, Mapping[int, int]]:
        """The newest event times of the sources whose disorder is counted: if some trigger of the plan waits for a
        fraction of the records.
        """
        counted = [s.name for s in plan.sources if s.options.punctuation is None] if plan.fractions else []
        return {name: self.newest.get(name, {}) for name in counted}

    def reach(self, sources: Sequence[SourceStanding], now: Micros) -> dict[str, int]:
        """The watermarks after an epoch at `now`; also records which partition holds them back, and since when."""
        for source in sources:
            self.since.setdefault(source.name, now)
            self.rules[source.name] = source.rules
        holder = self.holder(sources, now)
        if holder is None:
            self.held = {}
        else:
            source_name, partition = holder
            at = self.newest.get(source_name, {}).get(partition)
            hold = {"source": source_name, "partition": partition, "newest": at}
            if {**self.held, "since": None} != {**hold, "since": None}:
                self.held = {**hold, "since": now}
        return self.of(sources, now)

    def holder(self, sources: Sequence[SourceStanding], now: Micros) -> tuple[str, int] | None:
        """The source and partition that hold the flow back; None when only the clock does, or all sources ended."""
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

    def is_idle(self, source: SourceStanding, partition: int, now: Micros) -> bool:
        """Whether the offset of a partition has not moved for the idle timeout; it then holds nothing back."""
        if source.idle is None or partition in source.waiting:
            return False
        heard = self.active.get(source.name, {}).get(partition, self.since.get(source.name, now))
        return now - heard >= source.idle

    def _live(self, source: SourceStanding, now: Micros) -> list[int]:
        return [p for p in source.partitions if not self.is_idle(source, p, now)]

    def _unknown(self, source: SourceStanding, now: Micros) -> bool:
        """Whether the source has never had an event time, and all its partitions are idle."""
        known = source.finished or not source.timed or bool(self.newest.get(source.name))
        return not known and not self._live(source, now)

    def _all(
        self, sources: Sequence[SourceStanding], now: Micros, behind: Mapping[str, int], last: Mapping[str, int]
    ) -> dict[str, int]:
        watermarks = {s.name: max(self._at(s, now, behind[s.name]), last.get(s.name, BEGINNING)) for s in sources}
        unknown = {s.name for s in sources if self._unknown(s, now)}
        # the end of one source says nothing about the records of another
        others = [
            self._at(replace(s, finished=False), now, behind[s.name]) if s.finished else watermarks[s.name]
            for s in sources
            if s.name not in unknown
        ]
        return watermarks | {name: max([watermarks[name], *others]) for name in unknown}

    def _at(self, source: SourceStanding, now: Micros, behind: int) -> int:
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
