"""Gap filling: rows for empty windows between the first and the last window of a key.

It is composed of existing steps: each row looks up the next row of its key (a window function), produces one additional
row for each window in between, and the columns of those are computed from both. So filled rows are revised like all
others when the rows around them change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from millstream.errors import DefinitionError, SchemaError, Unsupported
from millstream.model.expression import Expr, col, expr, literal
from millstream.model.origin import here
from millstream.model.reserved import free_name
from millstream.model.steps.aggregation import Aggregated
from millstream.model.steps.columns import Order
from millstream.model.steps.relations.window_function import Windowed, WindowFunction
from millstream.model.steps.step import Select
from millstream.model.types.duration import Duration
from millstream.model.types.schema import ddl_type
from millstream.model.windows.kinds import AnyWindow
from millstream.model.windows.window import Window

if TYPE_CHECKING:
    from millstream.model.streams.stream import Stream

PREVIOUS, LINEAR, CONSTANT = "previous", "linear", "constant"
MOST = 100_000
"""The most windows that are filled in one gap; a longer gap is left open."""
_BORDERS = ("window_start", "window_end")


@dataclass(frozen=True, eq=False)
class Fill:
    """The value of a column in filled rows: the previous value, an interpolated value, or a constant."""

    kind: str
    value: Expr | None = None

    @classmethod
    def of(cls, fill: object) -> Fill:
        """Parse the user's argument: "previous", "linear", None, a number, a truth value, or an expression."""
        if isinstance(fill, Fill):
            return fill
        if isinstance(fill, str) and fill in (PREVIOUS, LINEAR):
            return cls(fill)
        if fill is None or isinstance(fill, bool | int | float | Expr):
            return cls(CONSTANT, literal(fill))
        raise DefinitionError(
            f"{fill!r:.60} is not a value to fill with",
            hint='"previous", "linear", None, a number, or an expression without columns: ms.expr("\'none\'")',
            origin=here(),
        )


@dataclass(frozen=True, eq=False)
class Filling:
    """How gaps are filled: all columns alike or per column, and how far."""

    every: Fill | None
    columns: tuple[tuple[str, Fill], ...] = ()
    longest: Duration | None = None
    """The maximum time after a row for which windows are filled; None means up to the next row."""

    def by_name(self, names: Sequence[str]) -> dict[str, Fill]:
        """The fill of each of these columns; NULL by default."""
        known = {n.lower(): n for n in names}
        for name, _ in self.columns:
            if name.lower() not in known:
                raise SchemaError(
                    f"`{name}` is not a column that can be filled",
                    detail="there are: " + ", ".join(names),
                    hint="keys and window borders are filled automatically",
                    origin=here(),
                )
        fills = {known[n.lower()]: f for n, f in self.columns}
        nothing = self.every or Fill.of(None)
        return {n: fills.get(n, nothing) for n in names}


def filled_aggregate(stream: Stream, how: object, longest: object) -> Stream:
    """The rows of a windowed aggregate, with its gaps filled."""
    step = stream.step
    if not isinstance(step, Aggregated) or step.windowing.window.is_global:
        raise DefinitionError(
            "fill needs the windows of the aggregate before it",
            hint='.window(ms.tumbling("1 hour")).aggregate(n=ms.count()).fill("previous")',
            origin=here(),
        )
    bound = None if longest is None else Duration.positive(longest, what="longest")  # type: ignore[arg-type]
    if isinstance(how, Mapping):
        filling = Filling(None, tuple((str(n), Fill.of(f)) for n, f in how.items()), bound)
    else:
        filling = Filling(Fill.of(how), (), bound)
    keys = [n for n, _ in step.keys]
    values = [n for n, _ in step.aggregates]
    return filled(stream, keys, step.windowing.window, filling.by_name(values), bound)


def filled(
    stream: Stream, keys: Sequence[str], window: AnyWindow, fills: Mapping[str, Fill], longest: Duration | None
) -> Stream:
    """Rows with bounds, keys and the columns of `fills`, and additional rows for the empty windows in between."""
    if not isinstance(window, Window) or window.slide is None:
        raise Unsupported(
            f"gaps between windows of the kind `{window}` cannot be filled",
            hint="tumbling and hopping windows can",
            origin=here(),
        )
    _check(stream, fills)
    slide = window.slide.micros
    names = stream.schema.names
    following, place = free_name("next_window", names), free_name("windows_on", names)
    ahead = {n: free_name(f"next_{n}", (*names, following, place)) for n, f in fills.items() if f.kind == LINEAR}
    functions = {following: WindowFunction("lead", col("window_start"))}
    functions |= {new: WindowFunction("lead", col(n)) for n, new in ahead.items()}
    looking = stream._windowed(tuple((k, col(k)) for k in keys), [Order(col("window_start"))], functions)
    assert isinstance(looking.step, Windowed)
    looking = looking._with(replace(looking.step, keeps_times=True))
    apart = f"((unix_micros(`{following}`) - unix_micros(window_start)) div {slide})"
    most = f"least({apart} - 1, {longest.micros // slide})" if longest is not None else f"({apart} - 1)"
    missing = f"(CASE WHEN {apart} - 1 <= {MOST} THEN {most} ELSE 0 END)"
    spread = looking._flattened(place, expr(f"sequence(CAST(0 AS BIGINT), coalesce({missing}, CAST(0 AS BIGINT)))"))
    columns: dict[str, Expr] = {n: col(n) for n in names}
    for border in _BORDERS:
        columns[border] = expr(f"timestamp_micros(unix_micros({border}) + `{place}` * {slide})")
    for name, fill in fills.items():
        columns[name] = _value(name, fill, ahead.get(name, ""), place, apart)
    projected = spread._project(tuple(columns.items()))
    assert isinstance(projected.step, Select)
    return projected._with(replace(projected.step, after=(("window_end", "window_end"),)))


def _value(name: str, fill: Fill, ahead: str, place: str, apart: str) -> Expr:
    own = col(name)
    if fill.kind == PREVIOUS:
        return own
    real = exp.column(place).eq(0)
    if fill.kind == CONSTANT:
        assert fill.value is not None
        return Expr(exp.case().when(real, own.node).else_(fill.value.node.copy()))
    first = exp.cast(own.node, "double")
    line = expr(
        f"CAST(`{name}` AS DOUBLE) + (CAST(`{ahead}` AS DOUBLE) - CAST(`{name}` AS DOUBLE)) * `{place}` / {apart}"
    )
    return Expr(exp.case().when(real, first).else_(line.node))


def _check(stream: Stream, fills: Mapping[str, Fill]) -> None:
    for name, fill in fills.items():
        kind = stream.schema.field(name, origin=here()).type
        number = kind is None or pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        if fill.kind == LINEAR and not number:
            raise SchemaError(
                f"`{name}` is {ddl_type(kind)}, and LINEAR needs numbers",
                hint="fill it with PREVIOUS, NULL or a constant",
                origin=here(),
            )
        if fill.value is not None and fill.value.columns():
            raise DefinitionError(f"the value that `{name}` is filled with refers to columns", origin=here())
