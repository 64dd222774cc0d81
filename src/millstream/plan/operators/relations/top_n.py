"""The first rows of each key, in an order. The kernel is `kernels/relations/top_n.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow as pa

from millstream.errors import SchemaError
from millstream.model.expression import col
from millstream.model.steps.columns import Named, plain_column
from millstream.model.steps.relations.top_n import Top
from millstream.model.steps.relations.window_function import Windowed
from millstream.model.types.schema import ddl_type
from millstream.plan.operators.inputs import FirstRows, Sort
from millstream.plan.operators.operator import ROW, ExplainNames, Facts, Operator, Types, lowers, view_of

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, eq=False)
class TopN(Operator):
    """The first rows of each key. `rank` names the column with their number, `shown` are the columns of a row."""

    count: int
    order: tuple[Sort, ...]
    rank: str | None
    shown: tuple[str, ...]

    format_name: ClassVar[str] = "First"
    expires_by_ttl: ClassVar[bool] = True

    @property
    def identity(self) -> tuple[str, ...]:
        """The key, with the rank if it is shown."""
        if self.count == 1:
            return self.keys
        return ROW if self.rank is None else (*self.keys, self.rank)

    @property
    def shrinks_input(self) -> bool:
        """Over append-only input: a row outside the first N of a part is outside the first N of all. Nested columns
        have no order to decide ties by.
        """
        kinds = dict(zip(self.columns, self.types, strict=True))
        return self.append_only_input and not any(pa.types.is_nested(kinds[c]) for c in self.shown)

    @property
    def reads_first(self) -> FirstRows | None:
        """Over append-only input, a row outside the first N of an epoch is outside the first N of all."""
        return FirstRows(self.keys, self.order, self.count) if self.append_only_input else None

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of a row, and its rank."""
        return (*self.shown, *(() if self.rank is None else (self.rank,)), *self.marks)

    def bind(self, input_types: Types) -> tuple[Self, Types]:
        """The type of the rank."""
        check_order(self.step, self.order, input_types)
        return self, {} if self.rank is None else {self.rank: pa.int64()}

    def name(self) -> str:
        """Includes the number of rows."""
        return f"top {self.count:,}"

    def facts(self, names: ExplainNames) -> Facts:
        """Order and rank."""
        rank = [] if self.rank is None else [("rank", self.rank)]
        return [("order", shown_order(self.order, names)), *rank]

    def shown_rows(self) -> str | None:
        """How many, where their identity is hidden."""
        return f"up to {self.count:,} per {', '.join(self.keys) or 'view'}" if self.identity == ROW else None

    @property
    def state_grows(self) -> bool:
        """Unless it keeps only the rows that it shows, without keys."""
        return super().state_grows and (bool(self.keys) or not self.append_only_input)

    def state_text(self, names: ExplainNames) -> str:
        """Over append-only input, only the rows that it shows."""
        if not self.append_only_input:
            return self.kept_input()
        return self.kept_rows(f"rows of {self.count:,} per key" if self.keys else f"{self.count:,} rows")

    def content(self) -> object:
        """What it shows. Over append-only input, rows have numbers."""
        text = self.described()
        return (text, "rows have numbers") if self.append_only_input else text


@lowers(Top)
def lower(lowering: StatefulLowering, name: str, step: Top) -> TopN:
    """The operator of the step."""
    columns = ordered_columns(step)
    return lowering.operator(
        TopN,
        name,
        (lowering.side(name, step.input, columns),),
        tuple(n for n, _ in step.keys),
        ends=lowering.ends(step),
        count=step.count,
        order=sorts(step),
        rank=step.rank,
        shown=tuple(n for n, _ in columns if not n.startswith("$")),
    )


def ordered_columns(step: Top | Windowed) -> Named:
    """The columns that an ordering operator reads. (Names that it generates begin with ``$``.)"""
    row = tuple((n, col(n)) for n in step.input.schema.names)
    computed = tuple((f"$by{i}", o.by) for i, o in enumerate(step.order) if plain_column(o.by) is None)
    if isinstance(step, Windowed):
        row = (*row, *((n, e) for n, e in step.keys if plain_column(e) != n))
    return (*row, *step.added, *computed)


def sorts(step: Top | Windowed) -> tuple[Sort, ...]:
    """The sort order of its rows."""
    return tuple(Sort(plain_column(o.by) or f"$by{i}", o.descending, o.nulls_first) for i, o in enumerate(step.order))


def shown_order(order: tuple[Sort, ...], names: ExplainNames) -> str:
    """An order, for users."""
    return ", ".join(s.shown(names.sql(s.column)) for s in order)


def check_order(step: str, order: tuple[Sort, ...], input_types: Types) -> None:
    """Refuse values that have no order."""
    for sort in order:
        if pa.types.is_nested(input_types[sort.column]):
            raise SchemaError(
                f"`{view_of(step)}` cannot be ordered by {ddl_type(input_types[sort.column])}",
                hint="use a field of it, or to_json(...)",
            )
