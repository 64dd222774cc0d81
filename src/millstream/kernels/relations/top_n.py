"""The kernel of top-N: emits the first rows of each key. Over append-only input, it keeps only the rows it shows."""

from __future__ import annotations

import polars as pl

from millstream.kernels.changes import GROUP, in_order, repeated
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.multiset import copies, identified, recompute
from millstream.kernels.outcome import OperatorClock, Outcome
from millstream.plan.operators.operator import ROW
from millstream.plan.operators.relations.top_n import TopN


def advance(operator: TopN, inputs: Inputs, states: States, clock: OperatorClock, services: Services) -> Outcome:
    """Run one epoch."""
    del services
    changes = inputs["rows"]
    if changes is None:
        return Outcome()
    content = () if _is_numbered(operator, changes) else operator.shown
    narrow = (lambda rows: _shown_now(operator, rows)) if operator.append_only_input else None
    return recompute(operator, changes, states["rows"], clock, _answers, content=content, narrow=narrow)


def shrink(operator: TopN, rows: pl.DataFrame) -> pl.DataFrame:
    """The first rows of each key among some rows. No other row can be among the first of all."""
    ordered = in_order(rows, operator.order, operator.shown, operator.keys)
    if not operator.keys:
        return ordered.head(operator.count)
    return ordered.group_by(operator.keys, maintain_order=True).head(operator.count).select(rows.columns)


def _is_numbered(operator: TopN, rows: pl.DataFrame) -> bool:
    """Whether each row has its own number: no row is retracted, and ties need no hash."""
    return operator.append_only_input and not any(rows.schema[c].is_nested() for c in operator.shown)


def _shown_now(operator: TopN, rows: pl.DataFrame) -> pl.DataFrame:
    """Limit rows to the copies that are shown. A row outside the first N can never enter them later."""
    return _placed(operator, rows, "$n").with_columns(pl.col("$take").alias("$n"))


def _placed(operator: TopN, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """Rows in the order of their groups, with the number of copies before each (``$at``) and shown (``$take``)."""
    ordered = in_order(rows, operator.order, operator.shown)
    at = (pl.col(count).cum_sum() - pl.col(count)).over(*GROUP)
    left = (operator.count - pl.col("$at")).clip(0)
    return ordered.with_columns(at.alias("$at")).with_columns(pl.min_horizontal(count, left).alias("$take"))


def _answers(operator: TopN, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """The first rows of every group, one per copy."""
    numbered = _is_numbered(operator, rows)
    first = _placed(operator, rows.filter(pl.col(count) > 0), count).filter(pl.col("$take") > 0)
    chosen = repeated(first, first["$take"].to_numpy())
    if operator.rank is not None:
        number = pl.int_range(pl.len(), dtype=pl.Int64)
        chosen = chosen.with_columns((number.over(*GROUP) + 1).alias(operator.rank))
    if numbered:
        chosen = chosen.with_columns(pl.col("$a").alias(ROW[0]), pl.col("$b").alias(ROW[1]))
    else:
        chosen = copies(chosen, operator.shown)
    return identified(operator, chosen)


KERNEL = Kernel(advance, shrink=shrink)
