"""The stage value of a changelog: each change of its input as a row that is only ever added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.model.types.schema import TIMESTAMP

if TYPE_CHECKING:
    from millstream.plan.operators.chained import Chained


@dataclass(frozen=True)
class Logged:
    """The changes of rows as rows: `names` are the columns with the kind of change, the epoch and its time."""

    names: tuple[str, str, str]

    name = "changelog"
    only_inserts = True

    def result(self, stage: Chained) -> tuple[str, ...]:
        """What happened, and to which row."""
        return (*self.names, *stage.columns)

    def types(self, known: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """The types of the columns that it adds."""
        return dict(zip(self.names, (pa.string(), pa.int64(), TIMESTAMP), strict=True))

    def facts(self, stage: Chained) -> list[tuple[str, str]]:
        """What it does, for a person."""
        op, epoch, time = self.names
        return [("gives", f"each change as a row: {op} says which, {epoch} and {time} when")]

    def state(self, stage: Chained) -> str:
        """What is kept."""
        return "none"
