"""What a kernel refuses: sums that leave BIGINT, and user aggregates that fail."""

import math
import random
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from millstream.errors import RunError, UserCodeFailed
from millstream.kernels.aggregates.combine import combine, fold, group_columns
from millstream.kernels.aggregates.partials import is_exact
from millstream.kernels.aggregates.slices import advance
from millstream.kernels.outcome import OperatorClock
from millstream.kernels.windows.slice_times import window_ends
from millstream.model.windows.window import hopping
from millstream.model.windows.windowing import Windowing
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.parts import Measure


def spec(*measures: Measure) -> Aggregation:
    return Aggregation("totals", ("k",), Windowing(), measures)


def rows(values: Sequence[Any], dtype: Any = pl.Int64) -> pl.DataFrame:
    count = len(values)
    return pl.DataFrame(
        {
            "$h": [0] * count,
            "$s": [0] * count,
            "$ts": list(range(count)),
            "$part": [0] * count,
            "$pos": list(range(count)),
            "k": ["a"] * count,
        },
        schema_overrides={"$h": pl.Int64, "$s": pl.Int64},
    ).with_columns(pl.Series("@x", values, dtype=dtype))


class Nothing:
    """State of a first epoch."""

    def lookup(self, hashes: np.ndarray, after: int) -> None: ...
    def scan(self, after: int) -> None: ...


class Held(Nothing):
    """State with these rows."""

    def __init__(self, partials: pl.DataFrame) -> None:
        self.partials = partials

    def lookup(self, hashes: np.ndarray, after: int) -> pl.DataFrame:  # type: ignore[override]
        return self.partials


SUM = Measure("x", "sum", True, type=pa.int64())
BIG = 2**62


@pytest.mark.parametrize(
    "values",
    [
        [2**63 - 1, 1],
        [-(2**63), -1],
        [BIG, BIG],
        [BIG] * 3,
        [BIG] * 4,
        [BIG] * 5,
        [-BIG] * 4,
        [2**61] * 8,
        [2**63 - 1] * 2 + [2],
        [2**60] * 16,
        [1, *[2**61] * 16],
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["sum", "avg"])
def test_a_sum_that_leaves_bigint_is_refused_however_often_it_wraps(kind: str, values: list[int]) -> None:
    with pytest.raises(RunError, match="left the range of BIGINT") as caught:
        combine(spec(Measure("x", kind, True, type=pa.int64())), rows(values))
    assert "totals" in caught.value.message and "DECIMAL" in (caught.value.hint or "")


@pytest.mark.parametrize("parts", [[BIG, BIG], [BIG] * 4, [-BIG] * 4, [2**61] * 8])
def test_partials_whose_sum_leaves_bigint_are_refused_in_folding(parts: list[int]) -> None:
    stage = spec(SUM)
    partials = pl.concat([combine(stage, rows([p])) for p in parts])
    with pytest.raises(RunError, match="left the range of BIGINT"):
        fold(stage, partials, group_columns(stage))


def test_sums_well_inside_bigint_are_exact() -> None:
    found = combine(spec(SUM), rows([2**61, 2**61 - 1, -3, None]))
    assert found["x$s"].to_list() == [2**62 - 4] and found["x$n"].to_list() == [3]


def test_sums_of_small_integers_are_widened_before_they_are_added() -> None:
    found = combine(spec(Measure("x", "sum", True, type=pa.int8())), rows([127] * 300, pl.Int8))
    assert found["x$s"].to_list() == [127 * 300]


def user(aggregator: Any) -> Aggregation:
    return spec(Measure("x", "user", True, aggregator, pa.int64(), pa.int64()))


class Good:
    def create(self) -> Any:
        return 0

    def add(self, accumulator: Any, value: Any) -> Any:
        return accumulator + value

    def merge(self, left: Any, right: Any) -> Any:
        return left + right

    def result(self, accumulator: Any) -> Any:
        return accumulator


def failing(method: str) -> Any:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("oops")

    return type("Fragile", (Good,), {method: fail})()


@pytest.mark.parametrize("method", ["create", "add", "merge", "result"])
def test_a_failing_user_aggregate_is_named_with_its_method_and_cause(method: str) -> None:
    stage = user(failing(method))
    with pytest.raises(UserCodeFailed, match=r"Fragile of `x` failed in .*ZeroDivisionError: oops") as caught:
        advance(stage, combine(stage, rows([2])), Held(combine(stage, rows([1]))), OperatorClock(0, 0))
    assert method in caught.value.message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("bad", [{1, 2}, object(), 1j, 2**70], ids=lambda b: type(b).__name__)
def test_an_accumulator_that_is_not_json_is_refused_before_it_is_kept(bad: Any) -> None:
    stage = user(type("Odd", (Good,), {"add": lambda self, a, v: bad})())
    with pytest.raises(UserCodeFailed, match="accumulator of Odd cannot be kept"):
        combine(stage, rows([1]))


@pytest.mark.parametrize("loses", [(1, 2), {1: 2}, float("nan"), float("inf"), datetime(2026, 1, 1)], ids=str)  # noqa: DTZ001
def test_an_accumulator_that_would_come_back_as_something_else_is_refused(loses: Any) -> None:
    stage = user(type("Odd", (Good,), {"add": lambda self, a, v: loses})())
    with pytest.raises(UserCodeFailed):
        combine(stage, rows([1]))


def test_a_result_of_another_type_than_declared_is_refused() -> None:
    stage = user(type("Texty", (Good,), {"result": lambda self, a: "text"})())
    with pytest.raises(UserCodeFailed, match="Texty gave a result that is not int64"):
        advance(stage, combine(stage, rows([1])), Nothing(), OperatorClock(0, 0))


def test_nulls_are_not_fed_to_a_user_aggregate() -> None:
    stage = user(Good())
    outcome = advance(stage, combine(stage, rows([None, 3, None, 4])), Nothing(), OperatorClock(0, 0))
    assert outcome.changes is not None and outcome.changes["x"].to_list() == [7]


@pytest.mark.parametrize("kind", ["sum", "avg", "variance", "stddev"])
def test_floating_answers_are_the_same_to_the_last_bit_in_any_order_of_rows(kind: str) -> None:
    values = [1e16, 0.1, -1e16, 1 / 3, 1e-9, None, 7.7, -0.3, 1e16, 0.2]
    stage = spec(Measure("x", kind, True, type=pa.float64()))
    found = {
        tuple(combine(stage, rows(random.Random(seed).sample(values, len(values)), pl.Float64)).row(0))
        for seed in range(30)
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("kind", "of", "exact"),
    [
        ("sum", pa.int64(), True),
        ("sum", pa.decimal128(10, 2), True),
        ("sum", pa.float64(), False),
        ("avg", pa.float32(), False),
        ("variance", pa.int64(), False),
        ("max", pa.float64(), True),
        ("user", pa.int64(), False),
        ("collect", pa.float64(), True),
    ],
)
def test_only_aggregates_that_fold_in_any_order_count_as_exact(kind: str, of: pa.DataType, exact: bool) -> None:
    assert is_exact(Measure("x", kind, True, type=of)) is exact


@pytest.mark.parametrize("kind", ["min", "max"])
def test_nan_is_the_greatest_number_as_in_spark(kind: str) -> None:
    found = combine(spec(Measure("x", kind, True, type=pa.float64())), rows([1.0, float("nan")], pl.Float64))
    (value,) = found["x$v"].to_list()
    assert (value == 1.0) if kind == "min" else math.isnan(value)


def test_the_two_zeros_and_nan_are_counted_as_spark_counts_them() -> None:
    found = combine(
        spec(Measure("x", "count_distinct", True, type=pa.float64())),
        rows([0.0, -0.0, float("nan"), float("nan")], pl.Float64),
    )
    assert found["x$l"].list.len().to_list() == [2]


def test_hopping_windows_never_copy_rows_into_state() -> None:
    """A record of a 60 s window every second is one state row, not sixty."""
    window = hopping("60 seconds", "1 second")
    stage = Aggregation("v", ("k",), Windowing(window), (Measure("n", "count", False),))
    outcome = advance(stage, combine(stage, rows([1])), Nothing(), OperatorClock(-(2**62), -(2**62)))
    rows_kept = outcome.kept["windows"].rows
    assert len(rows_kept) == 1
    assert outcome.changes is not None and len(outcome.changes) == 60
    assert len(window_ends(window, rows_kept, -(2**62))) == 60


def test_an_epoch_without_rows_changes_nothing() -> None:
    outcome = advance(spec(SUM), None, Nothing(), OperatorClock(0, 10))
    assert outcome.changes is None and not outcome.kept
