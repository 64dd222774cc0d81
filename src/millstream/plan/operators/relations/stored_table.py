"""The rows of a stored table, and the single row of a query without FROM. Kernel:
`kernels/relations/stored_table.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from millstream.model.steps.relations.stored_table import OneRow, TableRows
from millstream.model.types.schema import Schema
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.operator import ExplainNames, Operator, Types, lowers

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, eq=False)
class StoredTable(Operator):
    """The rows of a stored table: those added and removed since the previous epoch."""

    table: str
    schema: Schema

    title: ClassVar[str] = "stored table"
    format_name: ClassVar[str] = "Stored"
    shows_keys: ClassVar[bool] = False

    @property
    def follows(self) -> str | None:
        """Its table."""
        return self.table

    @property
    def append_only_input(self) -> bool:
        """False: a table may lose rows."""
        return False

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of the table."""
        return (*self.columns, *self.marks)

    def bind(self, input_types: Types) -> tuple[Self, Types]:
        """The types that the table has."""
        kinds = {f.name: f.type for f in self.schema}
        return replace(self, sides=(replace(self.sides[0], types=tuple(kinds.values())),)), kinds

    def takes(self, before: Sequence[Operator]) -> str:
        """The changes of the table."""
        return f"rows added to and removed from the table {self.table}"

    @property
    def state_grows(self) -> bool:
        """It is as large as the table."""
        return False

    def state_text(self, names: ExplainNames) -> str:
        """The rows it has emitted."""
        return "the rows of the table as it was last seen"

    def content(self) -> object:
        """The table and its columns."""
        return self.described()


@dataclass(frozen=True, eq=False)
class ConstantRow(StoredTable):
    """One row, TRUE in every column, from the first epoch on."""

    title: ClassVar[str] = "one row"
    format_name: ClassVar[str] = "Constant"
    constant: ClassVar[bool] = True

    @property
    def follows(self) -> str | None:
        """No table."""
        return None

    def takes(self, before: Sequence[Operator]) -> str:
        """Nothing."""
        return "nothing: the row exists from the first epoch on"

    def state_text(self, names: ExplainNames) -> str:
        """Its row."""
        return "one row"


@lowers(TableRows, OneRow)
def lower(lowering: StatefulLowering, name: str, step: TableRows) -> StoredTable:
    """The operator of the step."""
    names = step.schema.names
    kind = ConstantRow if isinstance(step, OneRow) else StoredTable
    return lowering.operator(kind, name, (Side((), names),), names, table=step.name, schema=step.schema)
