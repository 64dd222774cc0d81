"""Finding the rows that an evaluation fails on: all of them, no others, and in the order of the rows."""

from __future__ import annotations

from collections.abc import Sequence, Set

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.driver.evaluate import MOST, evaluated
from millstream.errors import DiskFull, EngineFailed, MillstreamError, UserCodeFailed
from millstream.model.error_policy import FAIL, QUARANTINE
from millstream.plan.parts import Column, Op, Project

DOUBLED: Sequence[Op] = (Project(None, (Column("n", "f(`n`)"),)),)


class Doubling:
    """Doubles numbers; fails on some of them, and at some of its calls whatever the rows."""

    def __init__(
        self, bad: Set[int], flaky: Set[int] = frozenset(), error: type[MillstreamError] = EngineFailed
    ) -> None:
        self.bad, self.flaky, self.error, self.calls = bad, flaky, error, 0

    def __call__(self, ops: Sequence[Op], rows: pa.Table) -> pa.Table:
        self.calls += 1
        numbers = rows["n"].to_pylist()
        if self.calls in self.flaky or self.bad & set(numbers):
            raise self.error("stopped", detail="a bad number; the full report is in x")
        return pa.table({"n": pa.array([2 * n for n in numbers], pa.int64())})


def table(numbers: list[int]) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


@given(numbers=st.lists(st.integers(0, 20), max_size=60), bad=st.sets(st.integers(0, 20), max_size=5))
def test_all_rows_that_fail_are_found_and_the_others_keep_their_order(numbers: list[int], bad: set[int]) -> None:
    compute = Doubling(bad)
    done = evaluated(compute, compute, DOUBLED, table(numbers), QUARANTINE)
    assert done.rows["n"].to_pylist() == [2 * n for n in numbers if n not in bad]
    assert [(f.at, f.row) for f in done.failed] == [(i, f'{{"n":{n}}}') for i, n in enumerate(numbers) if n in bad]
    assert {f.reason for f in done.failed} <= {"f(n): a bad number"}


@pytest.mark.parametrize("flaky", [{1}, {1, 3}, {1, 4}, {1, 3, 5}])
def test_a_failure_that_does_not_repeat_takes_no_row(flaky: set[int]) -> None:
    compute = Doubling(set(), flaky)
    done = evaluated(compute, compute, DOUBLED, table([1, 2]), QUARANTINE)
    assert done.rows["n"].to_pylist() == [2, 4] and done.failed == ()


def test_failures_of_another_kind_and_the_policy_to_fail_stop_the_epoch() -> None:
    full = Doubling({1}, error=DiskFull)
    with pytest.raises(DiskFull):
        evaluated(full, full, DOUBLED, table([1, 2]), QUARANTINE)
    strict = Doubling({1})
    with pytest.raises(EngineFailed):
        evaluated(strict, strict, DOUBLED, table([1, 2]), FAIL)
    assert strict.calls == 1


def test_too_many_failures_are_those_of_the_expression() -> None:
    compute = Doubling(set(range(1000)))
    assert len(evaluated(compute, compute, DOUBLED, table(list(range(MOST))), QUARANTINE).failed) == MOST
    with pytest.raises(UserCodeFailed, match=f"more than {MOST} rows of one epoch fail: a bad number"):
        evaluated(compute, compute, DOUBLED, table(list(range(MOST + 1))), QUARANTINE)
