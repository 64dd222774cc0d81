"""The progress of a flow: committed with every epoch, read on the next start, shown by `millstream views`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from millstream.connect.port import SourcePort
from millstream.plan.plan import Plan
from millstream.runtime.epoch.watermarks import Watermarks


@dataclass
class Progress:
    """Offsets, watermarks and counts of a flow after an epoch. Counts are since the flow's first epoch."""

    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    watermarks: Watermarks = field(default_factory=Watermarks)
    rows: dict[str, int] = field(default_factory=dict)
    """source -> rows read."""
    errors: dict[str, int] = field(default_factory=dict)
    """source -> rows quarantined as errors."""
    applied: dict[str, int] = field(default_factory=dict)
    """view -> rows that reached its stage in time."""
    late: dict[str, int] = field(default_factory=dict)
    """view -> rows that were late."""
    changed: dict[str, int] = field(default_factory=dict)
    """view -> the last epoch that changed it."""
    reached: dict[str, int] = field(default_factory=dict)
    """source -> the watermark after this epoch, which the next one uses."""
    skipped: dict[str, int] = field(default_factory=dict)
    """source -> offsets that a flow with ``at_most_once`` skipped after failures."""

    filtered: dict[str, int] = field(default_factory=dict)
    """view -> good rows that its condition filtered out."""
    first: dict[str, dict[int, int]] = field(default_factory=dict)
    """source -> partition -> where the flow began to read it, where an offset is a record."""
    feeds: dict[str, list[str]] = field(default_factory=dict)
    """view -> the sources that feed it, if it gets their rows one to one (not exploded or mapped)."""
    out: list[str] = field(default_factory=list, init=False)
    """Files of changes that were staged for sinks with this epoch, each with the generation of its sink."""
    reach: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    """sink -> how far it had written its topic before this epoch, and its generation."""
    joined: dict[str, dict[str, int]] = field(default_factory=dict)
    """view -> source -> good rows that had been read before the view was created."""

    def good(self, source: str) -> int:
        """The rows read that were not errors."""
        return self.rows.get(source, 0) - self.errors.get(source, 0)

    def begin(self, plan: Plan, ports: Mapping[str, SourcePort]) -> None:
        """Record where new sources of the flow begin, and what new views have missed."""
        for name, port in ports.items():
            if name not in self.offsets and port.describe().record_per_offset:
                self.first[name] = {p: s for p, (s, _) in port.admit({}, port.head(0), None).ranges.items()}
        plain = {scan.id for scan in plan.scans if not scan.ops}
        for view in (v for v in plan.views if not v.inner):
            fed = [feed.source for feed in view.operator.feeds]
            if view.name not in self.joined:
                if view.name in self.applied:
                    continue  # started by a version that did not count filtered rows
                self.joined[view.name] = {s: self.good(s) for s in fed}
            if all(feed.scan in plain for feed in view.operator.feeds):
                self.feeds[view.name] = fed

    def copy(self) -> Progress:
        """Return a copy, as the store would load it."""
        return Progress.from_json(orjson.loads(orjson.dumps(self.to_json(), option=orjson.OPT_NON_STR_KEYS)))

    def to_json(self) -> dict[str, Any]:
        """Convert to plain data for the store."""
        return {
            "offsets": self.offsets,
            "watermarks": self.watermarks.to_json(),
            "rows": self.rows,
            "errors": self.errors,
            "applied": self.applied,
            "late": self.late,
            "changed": self.changed,
            "reached": self.reached,
            "skipped": self.skipped,
            "filtered": self.filtered,
            "first": self.first,
            "feeds": self.feeds,
            "joined": self.joined,
            "out": self.out,
            "reach": self.reach,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Progress:
        """Read what `to_json` wrote."""
        offsets = {s: {int(p): o for p, o in by.items()} for s, by in data["offsets"].items()}
        names = ("rows", "errors", "applied", "late", "changed", "reached", "skipped", "filtered")
        found = cls(offsets, Watermarks.from_json(data["watermarks"]), *(dict(data.get(name, {})) for name in names))
        found.first = {s: {int(p): o for p, o in by.items()} for s, by in data.get("first", {}).items()}
        found.feeds, found.joined = dict(data.get("feeds", {})), dict(data.get("joined", {}))
        found.out, found.reach = list(data.get("out", ())), dict(data.get("reach", {}))
        return found


def count(into: dict[str, int], name: str, more: int) -> None:
    """Add to a counter."""
    into[name] = into.get(name, 0) + more
