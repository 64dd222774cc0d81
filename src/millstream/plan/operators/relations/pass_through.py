"""Rows of scans, handed on as they come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from millstream.plan.operators.measures import same_type
from millstream.plan.operators.operator import Bound, ExplainNames, Fingerprints, Operator, ScanTypes, view_of


@dataclass(frozen=True, eq=False)
class PassThrough(Operator):
    """Rows go on as they come."""

    rows: tuple[str, ...]
    """The columns that it hands on."""
    lateness: int | None = None
    """How far behind the watermark, in micros, rows are still taken; None: none is too late."""
    beside: frozenset[str] = frozenset()
    """Sources whose watermarks count in addition, because its rows meet theirs."""
    by_place: bool = False
    """Whether rows go on in the order of partition and offset, however they were read."""

    reads_scans: ClassVar[bool] = True
    appends: ClassVar[bool] = True
    stateful: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it hands on."""
        return self.rows

    @property
    def result(self) -> tuple[str, ...]:
        """The same."""
        return self.rows

    @property
    def append_only(self) -> bool:
        """Always."""
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
        """The sources whose watermarks hold it."""
        return super().sources | self.beside

    @property
    def needs_positions(self) -> bool:
        """Where rows go on by their place."""
        return self.by_place

    def bind_scans(self, types: ScanTypes, *, retract: bool) -> Bound:
        """The types of the columns that it hands on."""
        del retract
        kinds = [
            same_type(view_of(self.step), n, [types[f.scan][f.columns[i]] for f in self.feeds])
            for i, n in enumerate(self.rows)
        ]
        return Bound(self, pa.schema(list(zip(self.rows, kinds, strict=True))))

    def state_text(self, names: ExplainNames) -> str:
        """It keeps nothing."""
        return "none"

    def fingerprint_parts(self, parts: Fingerprints) -> list[Any]:
        """Columns, and what its feeds take."""
        late = [] if self.lateness is None else [("lateness", self.lateness, sorted(self.beside))]
        return ["append", self.rows, [parts.feed(f) for f in self.feeds], *self._ordered(), *late]

    def _ordered(self) -> list[str]:
        return []
