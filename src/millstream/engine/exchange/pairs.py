"""Conditions over pairs of rows that only Spark can evaluate, in tasks.

The kernel of a join runs in two levels, over the same input and state. In the first it only finds the pairs: they go
through the job's own plan (`expressions.py`), which drops those that do not satisfy the condition. In the second it
gets the pairs that are left, and completes. A kernel is deterministic, so the places of rows are the same in both.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from millstream.engine.exchange.graph import PAIR
from millstream.kernels.kernel import NoServices
from millstream.model.reserved import OP
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.relations.join import PairCondition


class PairsFound(Exception):
    """Raised by `FindPairs` when a kernel asks which pairs satisfy a condition."""

    def __init__(self, pairs: pl.DataFrame) -> None:
        super().__init__()
        self.pairs = pairs


class FindPairs(NoServices):
    """The services of a kernel whose pairs are to be found, and no more."""

    def holds(self, operator: Operator, condition: PairCondition, pairs: pl.DataFrame) -> pl.Series:
        """Raise PairsFound, with the columns of the condition."""
        places = (pl.col(n).cast(pl.Int64) for n in PAIR)
        raise PairsFound(pairs.select(pl.lit("+I").alias(OP), *places, *condition.columns))


def satisfied(pairs: pl.DataFrame, found: Sequence[pl.DataFrame]) -> pl.Series:
    """Which pairs are among those that satisfy a condition."""
    if not found:
        return pl.repeat(value=False, n=len(pairs), eager=True, dtype=pl.Boolean)
    met = pl.concat(found).with_columns(pl.lit(value=True).alias("$met"))
    places = pairs.select(pl.col(n).cast(pl.Int64) for n in PAIR)
    return places.join(met, on=PAIR, how="left", maintain_order="left")["$met"].fill_null(value=False)
