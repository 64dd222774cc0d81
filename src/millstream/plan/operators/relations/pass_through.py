"""Rows of scans, passed on as they arrive. The kernel is `kernels/relations/pass_through.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millstream.plan.operators.measures import same_type
from millstream.plan.operators.operator import Bound, ExplainNames, Fingerprints, Operator, ScanTypes, view_of


@dataclass(frozen=True, eq=False)
class PassThrough(Operator):
    """Emits rows as they arrive."""

    rows: tuple[str, ...]
    """The columns that it passes on."""
    lateness: int | None = None
    """How far behind the watermark, in micros, rows are still accepted; None: no row is too late."""
    beside: frozenset[str] = frozenset()
    """Further sources whose watermarks count, because its rows meet theirs downstream."""
    by_place: bool = False
    """Whether rows are emitted in the order of partition and offset, however they were read."""

    reads_scans: ClassVar[bool] = True
    appends: ClassVar[bool] = True
    stateful: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it passes on."""
        return self.rows

    @property
    def result(self) -> tuple[str, ...]:
        """The columns that it passes on."""
        return self.rows

    @property
    def append_only(self) -> bool:
        """Always true."""
        return True

    @property
    def takes_late_rows(self) -> bool:
        """Whether rows may be too late for it."""
        return self.lateness is not None

    @property
    def late_allowance(self) -> int:
        """Its lateness."""
        return self.lateness or 0

    @property
    def sources(self) -> frozenset[str]:
        """The sources whose watermarks hold it back."""
        return super().sources | self.beside

    @property
    def needs_positions(self) -> bool:
        """True if rows are emitted by position."""
        return self.by_place

    @property
    def orders_rows(self) -> tuple[str, ...]:
        """Partition and offset, if rows are emitted by position."""
        return ("$part", "$pos") if self.by_place else ()

    def bind_scans(self, types: ScanTypes, *, retract: bool) -> Bound:
        """The types of the columns that it hands on."""
        del retract
        kinds = [
            same_type(view_of(self.step), n, [types[f.scan][f.columns[i]] for f in self.feeds])
            for i, n in enumerate(self.rows)
        ]
        return Bound(self, pa.schema(list(zip(self.rows, kinds, strict=True))))

    @property
    def state_grows(self) -> bool:
        """At most, rows wait for the watermark."""
        return False

    def state_text(self, names: ExplainNames) -> str:
        """None."""
        return "none"

    def fingerprint_parts(self, parts: Fingerprints) -> list[Any]:
        """Its columns, and the contents of its feeds."""
        late = [] if self.lateness is None else [("lateness", self.lateness, sorted(self.beside))]
        return ["append", self.rows, [parts.feed(f) for f in self.feeds], *self._ordered(), *late]

    def _ordered(self) -> list[str]:
        return []
