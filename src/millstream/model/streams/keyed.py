"""Keyed streams: streams with keys and optionally a window, on which aggregates, top-N and window functions are
defined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.errors import DefinitionError, SchemaError, Unsupported
from millstream.model.aggregates.aggregate import Aggregate
from millstream.model.connectors import check_name
from millstream.model.expression import Expr, expr
from millstream.model.origin import here
from millstream.model.reserved import PANES, folded
from millstream.model.steps.aggregation import Aggregated
from millstream.model.steps.columns import Named, Order, plain_column
from millstream.model.steps.relations.top_n import Top
from millstream.model.steps.relations.window_function import WindowFunction
from millstream.model.steps.step import FlatMap, MapBatches, Source, changes, upstream
from millstream.model.steps.window_functions import frame_of, function_of
from millstream.model.streams.patterns import KeyedMatches
from millstream.model.streams.python_operators import KeyedOperators
from millstream.model.types.duration import Duration
from millstream.model.windows import window_columns
from millstream.model.windows.accumulation import Accumulation
from millstream.model.windows.kinds import AnyWindow, CountWindow, SessionWindow
from millstream.model.windows.trigger import ON_CHANGE, Trigger, finishes, whole_and_positive
from millstream.model.windows.windowing import Windowing

if TYPE_CHECKING:
    from millstream.model.streams.stream import Stream


@dataclass(frozen=True, eq=False)
class Keyed(KeyedOperators, KeyedMatches):
    """A stream with keys and optionally a window. Add aggregates, a top-N, window functions or a process to it."""

    stream: Stream
    keys: Named
    windowing: Windowing = field(default_factory=Windowing)
    time: str | None = None
    """The time column for windows; None means the event time."""

    def __repr__(self) -> str:
        keys = ", ".join(f"{name}={e.spark()}" if plain_column(e) != name else name for name, e in self.keys)
        window = "" if self.windowing.window.is_global else f", {self.windowing.window}"
        return f"<Keyed by {keys or 'nothing'}{window}: {self.stream!r}>"

    def window(
        self,
        window: AnyWindow,
        *,
        trigger: Trigger = ON_CHANGE,
        accumulation: Accumulation = Accumulation.RETRACTING,
        lateness: str | timedelta | Duration = "0 seconds",
        panes: str | timedelta | Duration | None = None,
        time: str | None = None,
    ) -> Keyed:
        """Divide event time into windows.

        `trigger` defines when a window emits a result, and `accumulation` how that result relates to earlier results.
        `lateness` is how long after the watermark a window still accepts records and emits revised results. With
        `panes`, every emitted result is kept in ``<view>$panes`` for that long.

        `time` names the time column for windows. It is needed if that is not the event time, or if there are several
        (after a join, for example). Watermarks only cover event times: windows over other columns emit on change, never
        close, and no record is late for them.
        """
        for value, kind, what, example in (
            (window, AnyWindow, "a window", 'ms.tumbling("10 seconds")'),
            (trigger, Trigger, "a trigger", "ms.on_close()"),
            (accumulation, Accumulation, "an accumulation", "ms.discarding()"),
        ):
            if not isinstance(value, kind):
                raise DefinitionError(f"{value!r} is not {what}", hint=f"e.g. {example}", origin=here())
        if isinstance(window, SessionWindow) and window.gap_by is not None:
            bound = window.gap_by.bind(self.stream.schema)
            gap_type = bound.type_in(self.stream.schema)
            if gap_type is not None and not (pa.types.is_duration(gap_type) or pa.types.is_interval(gap_type)):
                raise SchemaError(
                    f"the gap of a session must be an INTERVAL, but `{bound.spark()}` is {gap_type}",
                    hint="e.g. gap_by='make_dt_interval(0, 0, minutes)'",
                    origin=here(),
                )
            window = SessionWindow(gap_by=bound)
        allowed = Duration.not_negative(lateness, what="lateness")
        kept = None if panes is None else Duration.positive(panes, what="panes")
        return Keyed(self.stream, self.keys, Windowing(window, trigger, accumulation, allowed, kept).check(), time)

    def aggregate(self, /, **aggregates: Aggregate) -> Stream:
        """Compute aggregates per key and window: ``.aggregate(bids=ms.count(), top=ms.max("price"))``.

        After another aggregate, a `top` or a `distinct`, they are computed over the current rows:

        >>> import millstream as ms
        >>> bids = ms.Flow("shop").source("bids", ms.memory(), schema="auction BIGINT, price BIGINT")
        >>> per_auction = bids.key_by("auction").aggregate(n=ms.count())
        >>> per_auction.key_by("n").aggregate(auctions=ms.count()).schema.names
        ('n', 'auctions')
        """
        if not aggregates:
            raise DefinitionError("aggregate needs at least one name=aggregate", hint="n=ms.count()", origin=here())
        checked = []
        for name, aggregate in aggregates.items():
            check_name(name, "column")
            if not isinstance(aggregate, Aggregate):
                raise DefinitionError(
                    f"{name}={aggregate!r} is not an aggregate", hint=f"e.g. {name}=ms.count()", origin=here()
                )
            checked.append((name, aggregate.check(name, self.stream.schema)))
        if changes(self.stream.step):
            self.stream._refuse_panes("an aggregate")
            if not self.windowing.window.is_global:
                return window_columns.aggregated(self, dict(aggregates))
        else:
            if self._by_column():
                return window_columns.aggregated(self, dict(aggregates))
            self._check_corrections()
        step = Aggregated(self.stream.step, self.keys, self.windowing, tuple(checked), here())
        names = step.schema.names  # raises on a duplicate name
        clash = None if self.windowing.panes is None else next((n for n in names if folded(n) in PANES), None)
        if clash is not None:
            raise SchemaError(
                f"the history of panes has a column `{clash.lower()}` of its own",
                hint=f"give the column `{clash}` of the aggregate another name, or leave `panes` out",
                origin=here(),
            )
        return self.stream._with(step)

    def top(self, n: int, by: str | Expr, *more: str | Expr, rank: str | None = None) -> Stream:
        """Keep the first `n` rows of each key in the order specified: ``.key_by("auction").top(3, "price DESC")``.

        An order is a column or an expression, optionally followed by ASC or DESC and NULLS FIRST or NULLS LAST. By
        default NULL sorts below every value. Ties are broken by the other columns. The result has all columns of the
        row, then the computed keys, then `rank`: the row number from 1 to `n`. Use ``top(1, ...)`` to keep the first or
        the last row of each key.

        >>> import millstream as ms
        >>> bids = ms.Flow("shop").source("bids", ms.memory(), schema="auction BIGINT, price BIGINT")
        >>> bids.key_by("auction", dear="price > 100").top(3, "price DESC", rank="place").schema.names
        ('auction', 'price', 'dear', 'place')
        """
        if not whole_and_positive(n):
            raise DefinitionError(
                f"top({n!r:.40}) is not a number of rows", hint="e.g. top(3, 'price DESC')", origin=here()
            )
        if not self.windowing.window.is_global:
            raise Unsupported(
                "top within a window is not supported",
                hint="aggregate per window first, and key by its `window_end`",
                origin=here(),
            )
        self.stream._refuse_panes("top")
        schema = self.stream.schema
        orders = []
        for sort in (by, *more):
            order = Order.parse(sort)
            orders.append(Order(order.by.bind(schema), order.descending, order.nulls_first))
        if rank is not None:
            check_name(rank, "column")
        step = Top(self.stream.step, self.keys, n, tuple(orders), rank, here())
        assert step.schema.names  # raises on a duplicate name
        return self.stream._with(step)

    def over(
        self,
        /,
        *order: str | Expr,
        rows: tuple[int | None, int | None] | None = None,
        spread: tuple[str | float | None, str | float | None] | None = None,
        **functions: WindowFunction | Aggregate,
    ) -> Stream:
        """Add window functions over the ordered rows of each key: ``.over("ts", previous=ms.lag("price"))``.

        The functions are `ms.row_number`, `ms.rank`, `ms.dense_rank`, `ms.percent_rank`, `ms.cume_dist`, `ms.ntile`,
        `ms.lag` and `ms.lead`, and the aggregates count, sum, avg, min, max, first and last. By default an aggregate
        covers the rows up to the current row and its peers in the order. `rows` is a frame of rows before and after the
        current row: ``(9, 0)``. `spread` is a frame by distance in the order value: ``("10 minutes", 0)``. None means
        unbounded.

        >>> import millstream as ms
        >>> bids = ms.Flow("shop").source("bids", ms.memory(), schema="auction BIGINT, price BIGINT, at TIMESTAMP")
        >>> bids.key_by("auction").over("at", rows=(9, 0), mean=ms.avg("price"), n=ms.row_number()).schema.names
        ('auction', 'price', 'at', 'mean', 'n')
        """
        self.stream._refuse_panes("window functions")
        named = {n: function_of(n, f, frame_of(rows, spread)) for n, f in functions.items()}
        if not named:
            raise DefinitionError("over needs at least one name=function", hint="n=ms.row_number()", origin=here())
        keys = tuple((n if plain_column(e) == n else f"$p{i}", e) for i, (n, e) in enumerate(self.keys))
        return self.stream._windowed(keys, [Order.parse(o) for o in order], named)

    def _by_column(self) -> bool:
        """Whether windows over records use a column other than their event time."""
        if self.time is None or self.windowing.window.is_global:
            return False
        self.stream.schema.field(self.time, origin=here())
        return not window_columns.has_watermark(self.stream, self.time)

    def _check_corrections(self) -> None:
        """Reject operations that are not defined over records that revise others."""
        steps = list(upstream(self.stream.step))
        source = next((s for s in steps if isinstance(s, Source) and s.options.corrections is not None), None)
        if source is None:
            return
        how = self.windowing
        why = None
        if how.merges or isinstance(how.window, CountWindow):
            why = f"windows that move with their records ({how.window})"
        elif how.accumulation is Accumulation.DISCARDING:
            why = "discarding panes"
        elif finishes(how.trigger):
            why = f"a trigger that finishes ({how.trigger})"
        elif any(isinstance(s, FlatMap | MapBatches) for s in steps):
            why = "flat_map and map_batches before the window"
        if why is not None:
            raise Unsupported(
                f"{why} cannot be combined with the corrections of the source `{source.name}` yet",
                hint="docs/limits.md lists what can",
                origin=here(),
            )


def named_columns(columns: tuple[str | Expr, ...], named: Mapping[str, str | Expr], what: str) -> Named:
    """Named columns, from plain columns and named expressions."""
    pairs: list[tuple[str, Expr]] = []
    for column in columns:
        expression = expr(column)
        name = plain_column(expression)
        if name is None:
            raise DefinitionError(
                f"`{expression.spark()}` in {what} needs a name",
                hint=f"write it as {what}(some_name={expression.spark()!r})",
                origin=here(),
            )
        pairs.append((name, expression))
    pairs += [(name, expr(value)) for name, value in named.items()]
    for name, _ in pairs:
        check_name(name, "column")
    if not pairs:
        raise DefinitionError(f"{what} needs at least one column", origin=here())
    if len({n for n, _ in pairs}) != len(pairs):
        raise SchemaError(f"{what} names a column twice", origin=here())
    return tuple(pairs)
