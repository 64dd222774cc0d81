"""How far a flow has come: committed with every epoch, read back on the next start, shown by `millstream views`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.runtime.watermarks import Watermarks


@dataclass
class Progress:
    """Offsets, watermarks and counts of a flow after an epoch. Counts are since the flow's first epoch."""

    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    watermarks: Watermarks = field(default_factory=Watermarks)
    rows: dict[str, int] = field(default_factory=dict)
    """source -> rows read."""
    errors: dict[str, int] = field(default_factory=dict)
    """source -> rows set apart as errors."""
    applied: dict[str, int] = field(default_factory=dict)
    """view -> rows that reached its stage in time."""
    late: dict[str, int] = field(default_factory=dict)
    """view -> rows that came too late."""
    changed: dict[str, int] = field(default_factory=dict)
    """view -> the last epoch that changed it."""
    reached: dict[str, int] = field(default_factory=dict)
    """source -> the watermark after this epoch, which the next one will work by."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for the store."""
        return {
            "offsets": self.offsets,
            "watermarks": self.watermarks.to_json(),
            "rows": self.rows,
            "errors": self.errors,
            "applied": self.applied,
            "late": self.late,
            "changed": self.changed,
            "reached": self.reached,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Progress:
        """Read what `to_json` wrote."""
        offsets = {s: {int(p): o for p, o in by.items()} for s, by in data["offsets"].items()}
        counts = (dict(data.get(k, {})) for k in ("rows", "errors", "applied", "late", "changed", "reached"))
        return cls(offsets, Watermarks.from_json(data["watermarks"]), *counts)


def count(into: dict[str, int], name: str, more: int) -> None:
    """Add to a counter."""
    into[name] = into.get(name, 0) + more
