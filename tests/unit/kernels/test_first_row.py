"""Aggregates over all rows have a result from their first epoch on. The clock says when they must emit it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from millstream.engine.driver.driver import states_of
from millstream.kernels.kernel import needs_first_row
from millstream.kernels.outcome import OperatorClock, Outcome
from millstream.model.windows.windowing import Windowing
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.operators.aggregates.changing_aggregation import ChangingAggregation
from millstream.plan.operators.aggregates.user_aggregate import UserAggregation
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.operator import Operator
from millstream.plan.parts import Measure
from millstream.state.shard import RunCache, shard_range
from millstream.state.version import Version
from tests.kernel_kit import advance
from tests.sql.engine import QueryEngine, QueryScript
from tests.sql.test_relations import BASE, flow_of


class Largest:
    """A user aggregate that can retract a value."""

    def create(self) -> list[int]:
        return []

    def add(self, values: list[int], value: int) -> list[int]:
        return [*values, value]

    def retract(self, values: list[int], value: int) -> list[int]:
        return [v for v in values if v != value]

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return left + right

    def result(self, values: list[int]) -> int:
        return max(values, default=-1)


COUNT = Measure("n", "count", False)
SUM = Measure("t", "sum", True, type=pa.int64())
USER = Measure("u", "user", True, Largest(), pa.int64())


def _side(append_only: bool, *columns: str) -> tuple[Side, ...]:
    return (Side((), columns, (), append_only, types=(pa.int64(),) * len(columns)),)


OPERATORS: dict[str, tuple[Operator, tuple[Any, ...]]] = {
    "scans": (Aggregation("v", (), Windowing(), (COUNT, SUM)), (0, None)),
    "append-only": (ChangingAggregation("v", (COUNT, SUM), sides=_side(True, "@t")), (0, None)),
    "changing": (ChangingAggregation("v", (COUNT, SUM), sides=_side(False, "@t")), (0, None)),
    "user": (UserAggregation("v", (COUNT, USER), sides=_side(False, "@u")), (0, -1)),
}
NO_INPUT = {"none": None, "no columns": pl.DataFrame(), "no rows": pl.DataFrame(schema={"$op": pl.String})}


def _epoch(operator: Operator, rows: pl.DataFrame | None, root: Path, shard: int, *, begins: bool) -> Outcome:
    states = states_of(RunCache(root), operator, Version(), shard_range(shard, 3))
    return advance(operator, rows, states, OperatorClock(0, 0, begins=begins))


@pytest.mark.parametrize("kind", OPERATORS)
def test_the_clock_alone_decides_on_the_first_row(kind: str, tmp_path: Path) -> None:
    operator, answer = OPERATORS[kind]
    assert operator.is_never_empty and needs_first_row(operator, Version())
    for rows in NO_INPUT.values():
        for shard in range(3):  # a shard without rows is not the first epoch of the operator
            outcome = _epoch(operator, rows, tmp_path, shard, begins=False)
            assert outcome.changes is None and not outcome.state_rows
        first = _epoch(operator, rows, tmp_path, 0, begins=True)
        assert first.changes is not None and first.changes.rows() == [("+I", *answer)]
        assert sum(len(k.rows) for k in first.state_rows.values()) == 1


class _Script(QueryScript):
    """A script that runs kernels shard by shard."""

    def _loop_of(self, home: Any) -> Any:
        return home.loop(
            self._plan,
            failpoint=self._failpoint,
            engine=lambda plan, ports, root: QueryEngine(plan, ports, root, shards=self.shards),
        )


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_an_operator_over_several_shards_emits_one_first_row(shards: int) -> None:
    views = {"total": "SELECT count(*) AS n FROM a", "sums": "SELECT k, count(*) AS n FROM a GROUP BY ROLLUP (k)"}
    for idle_first in (True, False):
        with tempfile.TemporaryDirectory() as folder, _Script(flow_of(views), folder, shards=shards) as script:
            if idle_first:
                script.tick()
                assert [r["n"] for view in views for r in script.rows(view)] == [0, 0]
                script.crash()
                script.resume(shards=shards)
            script.send("a", *({"k": i, "v": 1, "s": "x", "ts": BASE} for i in range(3)))
            script.tick()
            assert [r["n"] for r in script.rows("total")] == [3]
            assert sorted((r["k"] is None, r["n"]) for r in script.rows("sums")) == [(False, 1)] * 3 + [(True, 3)]
            emitted = [op for op, _ in script.changes("total")]
            assert emitted == (["+I", "-U", "+U"] if idle_first else ["+I"])
