"""The services of kernels in the driver: conditions, evaluated by the engine's expressions; lookups; iterations of
loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import polars as pl
import pyarrow as pa

from millstream.engine.driver import fixpoint
from millstream.engine.driver.epoch_io import polars
from millstream.engine.driver.evaluate import Failed, evaluated
from millstream.engine.driver.lookup_calls import answered
from millstream.engine.driver.lookup_records import LookupRecords, forget
from millstream.engine.driver.row_errors import policy
from millstream.engine.exchange.graph import Graph
from millstream.engine.tasks.task_services import LookupTasks
from millstream.model.reserved import OP
from millstream.plan.operators.operator import Operator
from millstream.plan.operators.python.lookup import AsyncLookup
from millstream.plan.operators.relations.join import PairCondition
from millstream.plan.operators.relations.loop import Loop
from millstream.plan.parts import Column, Op, Project
from millstream.plan.plan import Plan
from millstream.state.storage import Storage

KEPT = 5
"""For how many epochs the results of lookups are kept: as long as versions of the state."""


class Expressions(Protocol):
    """Evaluates expressions: Spark in production; tests provide another implementation."""

    def computed(self, ops: Sequence[Op], changes: pa.Table, *, quiet: bool = False) -> pa.Table:
        """Apply ops to changes, preserving their order. Raises a MillstreamError; `quiet` suppresses its report."""
        ...

    def key_hash(self, operator: Operator, grouping_set: int) -> int:
        """The hash that scans compute for the keys of a grouping set without keys."""
        ...


class DriverServices:
    """The services that kernels call, for one epoch in the driver."""

    def __init__(
        self,
        plan: Plan,
        expressions: Expressions,
        answers: Storage,
        epoch: int,
        set_aside: Callable[[str, str, Failed, int], None],
    ) -> None:
        self._plan, self._expressions, self._answers, self._epoch = plan, expressions, answers, epoch
        self._set_aside = set_aside
        self._known: dict[str, tuple[str, ...]] = {}
        """By lookup that tasks perform: the files with the results of earlier attempts at the epoch."""

    def holds(self, operator: Operator, condition: PairCondition, pairs: pl.DataFrame) -> pl.Series:
        """Which pairs satisfy a condition. Pairs that it fails on do not, and become errors of the view."""
        numbered = pairs.with_columns(pl.lit("+I").alias(OP)).select(OP, *condition.columns).with_row_index("$pair")
        only = Project(condition.sql, (Column("$pair", "`$pair`"),))
        rows = numbered.cast({"$pair": pl.Int64}).to_arrow()
        compute = self._expressions.computed
        done = evaluated(compute, partial(compute, quiet=True), [only], rows, policy(self._plan, operator.step))
        for failed in done.failed:
            self._set_aside(operator.step, "join", failed, int(pairs["$more"][failed.at]))
        return numbered["$pair"].is_in(polars(done.rows)["$pair"].cast(pl.UInt32).implode())

    def look_up(self, operator: AsyncLookup, requests: pl.DataFrame) -> pl.DataFrame:
        """Perform lookups. Their results are written next to the state before they are used."""
        self._forget(operator)
        return answered(operator, requests, self._answers, self._epoch)

    def lookups(self, graph: Graph, attempt: int, shards: int) -> LookupTasks | None:
        """What tasks need for the lookups of an epoch, with the results of earlier attempts at it; None if there are
        no lookups.
        """
        for operator in (n.operator for n in graph.nodes.values()):
            if isinstance(operator, AsyncLookup):
                self._forget(operator)
                names = LookupRecords.of(self._answers, operator, self._epoch).names()
                self._known[operator.step] = tuple(names)
        return LookupTasks(self._answers, self._epoch, attempt, shards, self._known) if self._known else None

    def looked_up(self, operator: AsyncLookup, files: Sequence[str]) -> None:
        """Record the files with the results that tasks have used, before anything else uses what they gave."""
        records = LookupRecords.of(self._answers, operator, self._epoch)
        records.note([*(n for n in self._known[operator.step] if n != records.of_driver), *files])

    def _forget(self, operator: AsyncLookup) -> None:
        forget(self._answers, operator.step, self._epoch - KEPT)

    def fixpoint(self, operator: Loop, tables: list[pl.DataFrame]) -> pl.DataFrame:
        """Repeat the body of a loop."""
        return fixpoint.repeat(operator, tables)

    def key_hash(self, operator: Operator, grouping_set: int) -> int:
        """Computed by the engine that runs the scans."""
        return self._expressions.key_hash(operator, grouping_set)
