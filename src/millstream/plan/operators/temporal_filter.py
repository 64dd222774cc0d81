"""The stage of a temporal filter: what its kernel needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.plan.explain.node import plain
from millstream.plan.operators.chained import ROW

if TYPE_CHECKING:
    from millstream.plan.operators.chained import Chained

FROM = "$from"
"""The column with the first instant at which a row is there, in micros."""
LEAVES = "$leaves"
"""The column with the first instant at which a row is there no more, in micros."""


@dataclass(frozen=True)
class Present:
    """Rows that are there from an instant of the epoch's clock until another."""

    waits: bool
    """Whether rows come at an instant of their own; else at once."""
    leaves: bool
    """Whether rows go at an instant of their own."""
    only_inserts: bool
    """Whether a row that is there never goes."""
    condition: str
    """The condition in SQL, as it was written."""

    name = "temporal filter"

    @property
    def identity(self) -> tuple[Any, ...]:
        """What its state depends on; the condition itself is in the columns that it takes."""
        return (self.waits, self.leaves, self.only_inserts)

    def result(self, stage: Chained) -> tuple[str, ...]:
        """The columns of its results."""
        shown = tuple(c for c in stage.columns if c not in (FROM, LEAVES))
        return (*shown, *(() if self.only_inserts else ROW))

    def types(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """The types of columns that it adds: none."""
        return {}

    def facts(self, stage: Chained) -> list[tuple[str, str]]:
        """What EXPLAIN tells of it."""
        return [("where", plain(self.condition)), ("driven by", "the clock of each epoch, also when no rows come")]

    def state(self, stage: Chained) -> str:
        """What it keeps, and for how long."""
        if self.only_inserts:
            return "each row until its time comes"
        return "each row until its time is past" if self.leaves else "the rows of its input, until they are taken back"
