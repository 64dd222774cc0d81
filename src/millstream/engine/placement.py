"""Placement: decides where the work of a scan is done. It never changes a result, only how long it takes.

- **inline**: the scan's columns come to the driver; kernels combine and merge there. For small slices.
- **combined**: Spark combines natively; kernels merge in the driver. For large slices that shrink to few keys.
- **gathered**: executors combine in Python; kernels merge in the driver. For few keys that Spark cannot combine itself.
- **spread**: executors combine and exchange by key group; kernels run there next to the state. For other large slices.

Slices that are read without Spark's readers (`engine/input/native_slices.py`) are placed inline, gathered or spread.

`engine/epoch.py` follows the decision and reports how far the rows shrank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

INLINE_ROWS = 60_000
SPREAD_PARTIALS = 2_000_000
POOR_REDUCTION = 0.5

INLINE, COMBINED, GATHERED, SPREAD = "inline", "combined", "gathered", "spread"


@dataclass
class Placement:
    """Decides per scan and epoch, and learns from the reduction in earlier epochs."""

    choice: str = "auto"
    shards: int | None = None
    """The fixed number of shards; None: as many tasks as the executors run at once, in each epoch."""
    native: bool = True
    """Whether scans may be read without Spark's readers where their expressions allow it."""
    _reduction: dict[int, float] = field(default_factory=dict)

    def spreads(self, scans: Sequence[tuple[int, int, bool]]) -> bool:
        """Whether an epoch runs on the executors as a whole: from the number of each scan, its rows, and whether they
        are only combined.
        """
        if self.choice != "auto":
            return self.choice == SPREAD
        if sum(rows for _, rows, _ in scans) <= INLINE_ROWS:
            return False
        return any(not only or self.of(scan, rows, native=False) == SPREAD for scan, rows, only in scans)

    def of(self, scan: int, rows: int, *, native: bool) -> str:
        """The placement of a scan with about this many rows."""
        if self.choice != "auto":
            return GATHERED if self.choice == COMBINED and not native else self.choice
        if rows <= INLINE_ROWS:
            return INLINE
        reduction = self._reduction.get(scan, 0.0)
        if rows * reduction > SPREAD_PARTIALS:
            return SPREAD
        return COMBINED if native and reduction < POOR_REDUCTION else GATHERED

    def reads_natively(self) -> bool:
        """Whether scans may be read without Spark's readers. Only these combine natively in Spark."""
        return self.native and self.choice != COMBINED

    def of_native(self, rows: int, *, small: bool) -> str:
        """The placement of a slice that is read without Spark's readers and not spread."""
        if self.choice == "auto":
            return INLINE if small and rows <= INLINE_ROWS else GATHERED
        return INLINE if self.choice == INLINE else GATHERED

    def learn(self, scan: int, rows: int, partials: int) -> None:
        """Record how far a scan's rows shrank."""
        if rows:
            self._reduction[scan] = partials / rows
