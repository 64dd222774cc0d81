"""The kernel of INTERSECT and EXCEPT: counts the copies of a row on each side, and emits the rows that qualify."""

from __future__ import annotations

import polars as pl

from millstream.kernels.kernel import Inputs, Kernel, Services, States
from millstream.kernels.outcome import OperatorClock, Outcome
from millstream.kernels.relations.changes import GROUP, repeated
from millstream.kernels.relations.distinct import group_marks
from millstream.kernels.relations.multiset import copies, identified, recompute
from millstream.plan.operators.operator import ROW
from millstream.plan.operators.relations.set_operation import SIDE, SetOperation


def advance(
    operator: SetOperation, inputs: Inputs, states: States, clock: OperatorClock, services: Services
) -> Outcome:
    """Run one epoch."""
    del services
    return recompute(operator, inputs["rows"], states["rows"], clock, _answers)


def _answers(operator: SetOperation, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    there = rows.filter(pl.col(count) > 0)
    once = there.unique(GROUP, keep="first", maintain_order=True)
    kept = _kept_groups(operator, there, count)
    if not operator.copies:
        found = once.join(kept, on=GROUP, how="semi", maintain_order="left")
        found = found.with_columns(pl.col("$h").alias(ROW[0]), pl.col("$g").alias(ROW[1]))
        return found.select(*operator.result, *group_marks())
    found = once.join(kept, on=GROUP, how="inner", maintain_order="left")
    return identified(operator, copies(repeated(found, found["$copies"].to_numpy()), operator.keys))


def _kept_groups(operator: SetOperation, rows: pl.DataFrame, count: str) -> pl.DataFrame:
    """The groups whose row is a result, with the number of copies."""
    sides = [pl.col(count).filter(pl.col(SIDE) == i).sum().alias(f"$n{i}") for i in (0, 1)]
    counted = rows.group_by(GROUP, maintain_order=True).agg(*sides)
    first, second = pl.col("$n0"), pl.col("$n1")
    if operator.keep == "intersect":
        number = pl.min_horizontal(first, second)
    elif operator.copies:
        number = (first - second).clip(0)
    else:
        number = pl.when(second == 0).then(first).otherwise(0)
    return counted.select(*GROUP, number.alias("$copies")).filter(pl.col("$copies") > 0)


KERNEL = Kernel(advance)
