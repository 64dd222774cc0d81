"""Window functions over the ordered rows of each key. The kernel is `kernels/relations/window_function.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from millstream.errors import SchemaError
from millstream.model.aggregates.aggregate import takes
from millstream.model.steps.aggregation import summed_type
from millstream.model.steps.relations.window_function import Windowed
from millstream.model.types.scalars import mean_type
from millstream.model.types.schema import ddl_type
from millstream.plan.operators.inputs import Sort
from millstream.plan.operators.operator import (
    ExplainNames,
    Facts,
    Operator,
    Types,
    as_before,
    lowers,
    view_of,
)
from millstream.plan.operators.relations.top_n import check_order, ordered_columns, shown_order, sorts

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, repr=False)
class WindowCall:
    """One window function: the name of its result, the function, its column, and its numbers.

    `frame` is how many rows, or how far in the order's value, before and after the row it covers; None: unbounded.
    """

    name: str
    function: str
    argument: str | None = None
    offset: int = 1
    default: Any = None
    frame: tuple[str, float | None, float | None] | None = None

    __repr__ = as_before("Call")

    def type_in(self, view: str, input_types: Mapping[str, pa.DataType]) -> pa.DataType:
        """The type of its result."""
        if self.function in ("row_number", "rank", "dense_rank", "ntile", "count"):
            return pa.int64()
        if self.function in ("percent_rank", "cume_dist"):
            return pa.float64()
        of = input_types[self.argument or ""]
        if self.function in ("sum", "avg"):
            name = str(self.function)
            if not takes(name, of):
                raise SchemaError(f"{name}(...) OVER of `{view}` needs numbers, but its argument is {ddl_type(of)}")
            return summed_type("sum", of) if name == "sum" else mean_type(of)
        return of


@dataclass(frozen=True, eq=False)
class WindowFunctions(Operator):
    """Window functions over the ordered rows of each key. `shown` are the columns of a row before them."""

    order: tuple[Sort, ...]
    calls: tuple[WindowCall, ...]
    shown: tuple[str, ...]

    title: ClassVar[str] = "window functions"
    format_name: ClassVar[str] = "Over"
    expires_by_ttl: ClassVar[bool] = True

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of a row, then the functions."""
        return (*self.shown, *(c.name for c in self.calls), *self.marks)

    def bind(self, input_types: Types) -> tuple[Self, Types]:
        """The types of the functions."""
        check_order(self.step, self.order, input_types)
        return self, {c.name: c.type_in(view_of(self.step), input_types) for c in self.calls}

    def facts(self, names: ExplainNames) -> Facts:
        """Order and functions."""
        calls = ", ".join(f"{c.name} = {c.function}(...)" for c in self.calls)
        return [("order", shown_order(self.order, names)), ("gives", calls)]

    def state_text(self, names: ExplainNames) -> str:
        """The rows of each key."""
        return self.kept_input()

    def content(self) -> object:
        """Order, functions and columns."""
        return self.described()


@lowers(Windowed)
def lower(lowering: StatefulLowering, name: str, step: Windowed) -> WindowFunctions:
    """The operator of the step."""
    return lowering.operator(
        WindowFunctions,
        name,
        (lowering.side(name, step.input, ordered_columns(step)),),
        tuple(n for n, _ in step.keys),
        ends=lowering.ends(step),
        order=sorts(step),
        calls=tuple(
            WindowCall(n, f.kind, None if f.argument is None else f"@{n}", f.offset, f.default, f.frame)
            for n, f in step.functions
        ),
        shown=step.input.schema.names,
    )
