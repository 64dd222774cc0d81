"""The kernel of DISTINCT: emits every row once, as long as at least one copy exists."""

from __future__ import annotations

import polars as pl

from millstream.kernels.changes import CONTENT, GROUP
from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.multiset import PLACE, recompute
from millstream.kernels.outcome import OperatorClock, Outcome
from millstream.plan.operators.relations.distinct import DistinctRows


def advance(
    operator: DistinctRows, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Run one epoch."""
    del services
    narrow = _once if operator.append_only_input else None
    return recompute(operator, inputs["rows"], states["rows"], clock, _answers, narrow=narrow)


def shrink(operator: DistinctRows, rows: pl.DataFrame) -> pl.DataFrame:
    """Every row once."""
    return rows.unique(operator.keys, keep="first", maintain_order=True)


def _once(rows: pl.DataFrame) -> pl.DataFrame:
    """Reduce copies to one: copies that are never retracted need no counting."""
    return rows.with_columns(pl.col("$n").clip(upper_bound=1))


def _answers(operator: DistinctRows, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    there = rows.filter(pl.col(count) > 0).unique(GROUP, keep="first", maintain_order=True)
    return there.select(*operator.result, *group_marks())


def group_marks() -> list[pl.Expr]:
    """The identity and the content of results that are one per group: both are the group."""
    return [pl.col(c).alias(n) for c, n in zip(GROUP * 2, (*CONTENT, *PLACE), strict=True)]


KERNEL = Kernel(advance, shrink=shrink)
