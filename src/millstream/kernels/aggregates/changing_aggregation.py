"""The kernel of aggregates over changing rows: recomputes the groups that an epoch touches.

Over append-only rows, partials replace the rows (`kernels/aggregates/append_only.py`).
"""

from __future__ import annotations

import polars as pl

from millstream.clock import END_OF_TIME
from millstream.kernels.aggregates import append_only
from millstream.kernels.aggregates.combine import combine, over_nothing, results
from millstream.kernels.changes import (
    CONTENT,
    GROUP,
    arrived,
    expiry,
    hashes_of,
    lookup_rows,
    pair,
    repeated,
    types_of,
    whole,
    written,
)
from millstream.kernels.kernel import COMBINED, Inputs, Kernel, Services, States
from millstream.kernels.multiset import PLACE, difference, identified, recompute
from millstream.kernels.outcome import OperatorClock, Outcome, State, keeping
from millstream.plan.operators.aggregates.aggregation import over_all
from millstream.plan.operators.aggregates.changing_aggregation import BY_ORDER, ChangingAggregation


def advance(
    operator: ChangingAggregation, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Run one epoch."""
    del services
    changes, combined = inputs["rows"], inputs.get(COMBINED)
    if not clock.begins and not any(rows is not None and len(rows) for rows in (changes, combined)):
        return Outcome()
    if operator.uses_partials:
        return append_only.advance(operator, changes, combined, states, clock)
    if operator.is_never_empty:
        return _never_empty(operator, changes, states["rows"], clock)
    return recompute(operator, changes, states["rows"], clock, _answers)


def _answers(operator: ChangingAggregation, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """The aggregates of every group over its rows."""
    there = rows.filter(pl.col(count) > 0)
    view = over_all(operator.step, operator.keys, operator.measures)
    copies = _numbered(operator, repeated(there, there[count].to_numpy()))
    partials = combine(view, copies, [*GROUP, *operator.keys]).sort(GROUP)
    result_rows = partials.select(*operator.keys, *results(view, partials))
    return identified(
        operator, result_rows.with_columns(pair(CONTENT, result_rows, [m.name for m in operator.measures]))
    )


def _numbered(operator: ChangingAggregation, rows: pl.DataFrame) -> pl.DataFrame:
    """Number rows in the order that first, last and similar aggregates use: by time, if there is one, then by
    content.
    """
    if not any(m.kind in BY_ORDER for m in operator.measures):
        return rows
    at = pl.col(operator.order[0]).cast(pl.Int64) if operator.order else pl.lit(0, pl.Int64)
    marked = rows.with_columns(at.alias("$ts"), pl.lit(0, pl.Int32).alias("$part"))
    ordered = marked.sort("$ts", *CONTENT, nulls_last=False)
    return ordered.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("$pos"))


def _never_empty(
    operator: ChangingAggregation, changes: pl.DataFrame | None, state: State, clock: OperatorClock
) -> Outcome:
    """Groups that have a result even over no rows: the group of all rows, or those of grouping sets without keys. State
    then has a row that represents such a result.
    """
    side = operator.sides[0]
    arrivals = arrived(side, operator.keys, changes, clock)
    totals = append_only.totals_of(operator, clock)
    rows = whole(side, lookup_rows(state, hashes_of(totals, arrivals), clock), arrivals)
    stands = (pl.col("$a") == 0) & (pl.col("$b") == 0)
    answered = rows.filter(stands)
    rows = rows.filter(~stands)
    before, after = _answers(operator, rows, "$was"), _answers(operator, rows, "$n")
    empty = _over_nothing(operator, totals)
    was = empty.join(answered, left_on=PLACE, right_on=GROUP, how="semi", maintain_order="left")
    before, after = _completed(before, was), _completed(after, empty)
    new_state = written(rows.filter(pl.col("$n") != pl.col("$was")), expiry(operator, clock), side.columns)
    new = totals.join(answered, on=GROUP, how="anti", maintain_order="left")
    if len(new):
        missing = (pl.lit(None, t).alias(c) for c, t in types_of(side).items() if c not in operator.keys)
        zero = pl.lit(0, pl.Int64)
        mark = new.with_columns(zero.alias("$a"), zero.alias("$b"), pl.lit(1, pl.Int64).alias("$n"), *missing)
        new_state = pl.concat(
            [new_state, written(mark, pl.lit(END_OF_TIME, pl.Int64), side.columns)], how="vertical_relaxed"
        )
    return keeping(difference(operator, before, after), rows=new_state)


def _over_nothing(operator: ChangingAggregation, totals: pl.DataFrame) -> pl.DataFrame:
    """The results of groups that have no rows."""
    view = over_all(operator.step, (), operator.measures)
    partials = over_nothing(view)
    result_rows = (
        totals.select(*operator.keys, "$h").join(partials.select(results(view, partials)), how="cross").drop("$h")
    )
    return identified(
        operator, result_rows.with_columns(pair(CONTENT, result_rows, [m.name for m in operator.measures]))
    )


def _completed(answers: pl.DataFrame, empty: pl.DataFrame) -> pl.DataFrame:
    """Results, completed with those of groups without rows that have no other."""
    more = empty.join(answers, on=PLACE, how="anti", maintain_order="left")
    return pl.concat([answers, more.select(answers.columns)], how="vertical_relaxed") if len(more) else answers


KERNEL = Kernel(advance, shrink=append_only.shrink)
