"""Aggregates over append-only changes of other operators: keeps one row of partials per key instead of all rows.

Earlier versions kept the rows. If a key that an epoch touches still has rows, they are combined into its partials and
dropped. A home of an earlier version is thus migrated key by key, without recomputation.
"""

from __future__ import annotations

import polars as pl

from millstream.kernels.aggregates.combine import combine, fold, over_nothing, partial_columns, results, total_keys
from millstream.kernels.changes import (
    CONTENT,
    GROUP,
    arrived,
    expiry,
    hashes_of,
    lookup_rows,
    pair,
    repeated,
    written,
)
from millstream.kernels.frames import concat_rows
from millstream.kernels.kernel import States
from millstream.kernels.multiset import difference, identified
from millstream.kernels.outcome import OperatorClock, Outcome, State, keeping
from millstream.plan.operators.aggregates.aggregation import Aggregation, over_all
from millstream.plan.operators.aggregates.changing_aggregation import ChangingAggregation


def shrink(operator: ChangingAggregation, rows: pl.DataFrame) -> pl.DataFrame:
    """The partials of some rows."""
    view, by = over_all(operator.step, operator.keys, operator.measures), [*GROUP, *operator.keys]
    return combine(view, arrived(operator.sides[0], operator.keys, rows, OperatorClock(0, 0), ()), by)


def advance(
    operator: ChangingAggregation,
    changes: pl.DataFrame | None,
    combined: pl.DataFrame | None,
    states: States,
    clock: OperatorClock,
) -> Outcome:
    """Run one epoch: fold new rows, and those that were `combined` before they were sent, into the partials of their
    keys. Without changes, an operator that is never empty emits its first row.
    """
    view, by = over_all(operator.step, operator.keys, operator.measures), [*GROUP, *operator.keys]
    new = None if changes is None or not len(changes) else shrink(operator, changes)
    new = _folded(view, by, concat_rows((new, combined))) if combined is not None else new
    totals = totals_of(operator, clock) if operator.is_never_empty else None
    hashes = hashes_of(new, totals)
    known = _known(view, by, lookup_rows(states["partials"], hashes, clock))
    moved, left = _moved(operator, view, by, states["rows"], hashes, clock)
    known = concat_rows((known, moved))
    before = known
    if totals is not None:
        missing = totals if known is None else totals.join(known, on=GROUP, how="anti", maintain_order="left")
        empty = _over_nothing(operator, totals.join(missing, on=GROUP, how="semi", maintain_order="left"))
        some = None if known is None else known.filter(pl.col("$n") > 0)
        none = concat_rows((empty, None if known is None else known.filter(pl.col("$n") == 0)))
        after = _folded(view, by, concat_rows((some, new)))
        if none is not None:
            none = none if after is None else none.join(after, on=GROUP, how="anti", maintain_order="left")
            after = concat_rows((after, none))
    else:
        after = _folded(view, by, concat_rows((known, new)))
    if after is None:
        return Outcome()
    after = after.sort(GROUP)
    touched = after if before is None else before.join(after, on=GROUP, how="semi", maintain_order="left")
    old = None if before is None else _answers(operator, view, touched.sort(GROUP))
    answers = _answers(operator, view, after)
    marks = [pl.col("$g").alias("$a"), pl.lit(0, pl.Int64).alias("$b"), expiry(operator, clock).alias("$x")]
    gone = pl.lit(value=False).alias("$gone")
    new_state = after.select(*GROUP, *marks, gone, "$n", *operator.keys, *partial_columns(view, after))
    return keeping(
        difference(operator, answers.clear() if old is None else old, answers), partials=new_state, rows=left
    )


def totals_of(operator: ChangingAggregation, clock: OperatorClock) -> pl.DataFrame:
    """The keys of the groups that have a result without rows, and their hashes: those of this shard."""
    kinds = dict(zip(operator.columns, operator.types, strict=True))
    if operator.keys:
        keys = total_keys(operator.totals, {k: kinds[k] for k in operator.keys})
    else:
        keys = pl.DataFrame({"$one": [0]})
    totals = keys.with_columns(pair(GROUP, keys, operator.keys))
    return totals if clock.hashes is None else totals.filter(pl.col("$h").is_between(*clock.hashes))


def _known(view: Aggregation, by: list[str], rows: pl.DataFrame | None) -> pl.DataFrame | None:
    if rows is None or not len(rows):
        return None
    return rows.select(*by, "$n", *partial_columns(view, rows))


def _moved(
    operator: ChangingAggregation, view: Aggregation, by: list[str], state: State, hashes: object, clock: OperatorClock
) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """The partials of rows that an earlier version kept, and deletions of these rows."""
    rows = lookup_rows(state, hashes, clock)  # type: ignore[arg-type]
    if rows is None or not len(rows):
        return None, None
    left = written(rows.with_columns(pl.lit(0, pl.Int64).alias("$n")), pl.col("$x"), operator.columns)
    stands = (pl.col("$a") == 0) & (pl.col("$b") == 0)  # stands for a result over no rows
    real = rows.filter(~stands)
    if operator.is_never_empty:
        answered = rows.filter(stands).select(*by)
        empty = _over_nothing(operator, answered) if len(answered) else None
    else:
        empty = None
    partials = combine(view, repeated(real, real["$n"].to_numpy()), by) if len(real) else None
    if partials is not None and empty is not None:
        empty = empty.join(partials, on=GROUP, how="anti", maintain_order="left")
    return concat_rows((partials, empty)), left


def _over_nothing(operator: ChangingAggregation, groups: pl.DataFrame) -> pl.DataFrame | None:
    """Groups (keys and hashes) with the partials of an aggregate over no rows."""
    if not len(groups):
        return None
    plain = over_all(operator.step, (), operator.measures)
    partials = over_nothing(plain)
    columns = partial_columns(plain, partials)
    return groups.select(*GROUP, *operator.keys).join(partials.select("$n", *columns), how="cross")


def _folded(view: Aggregation, by: list[str], rows: pl.DataFrame | None) -> pl.DataFrame | None:
    return None if rows is None or not len(rows) else fold(view, rows, by)


def _answers(operator: ChangingAggregation, view: Aggregation, rows: pl.DataFrame) -> pl.DataFrame:
    result_rows = rows.select(*operator.keys, *results(view, rows))
    return identified(
        operator, result_rows.with_columns(pair(CONTENT, result_rows, [m.name for m in operator.measures]))
    )
