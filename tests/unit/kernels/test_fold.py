"""User aggregates that can take a value back: any series of changes comes to what the rows that are left give."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.kernels.outcome import OperatorClock
from millstream.plan.operators.aggregates.user_aggregate import UserAggregation
from millstream.plan.operators.inputs import Side
from millstream.plan.operators.operator import Operator
from millstream.plan.parts import Measure
from millstream.state.run import StateRun
from millstream.state.shard import RunCache, StateReader
from tests.kernel_kit import advance, write_first

Change = tuple[str, Any, Any]


class Histogram:
    """How often each value is there, as text: wrong at once if one is taken back that was not added."""

    def create(self) -> dict[str, int]:
        return {}

    def add(self, held: dict[str, int], value: int) -> dict[str, int]:
        return {**held, str(value): held.get(str(value), 0) + 1}

    def retract(self, held: dict[str, int], value: int) -> dict[str, int]:
        left = {**held, str(value): held[str(value)] - 1}
        return {k: n for k, n in left.items() if n}

    def merge(self, left: dict[str, int], right: dict[str, int]) -> dict[str, int]:
        return dict(Counter(left) + Counter(right))

    def result(self, held: dict[str, int]) -> str:
        return told(held)


def told(held: dict[str, int]) -> str:
    return ",".join(f"{k}x{n}" for k, n in sorted(held.items()))


MEASURES = (
    Measure("seen", "user", True, Histogram(), pa.string()),
    Measure("n", "count", False),
    Measure("known", "count", True),
)
SPEC = UserAggregation(
    "v",
    MEASURES,
    sides=(Side((), ("k", "@seen", "@known"), types=(pa.int64(), pa.int64(), pa.int64())),),
    keys=("k",),
)


def run(epochs: list[list[Change]], root: Path, spec: Operator = SPEC) -> dict[Any, tuple[Any, ...]]:
    """What is shown after the epochs; every change must fit what was shown before."""
    runs: list[StateRun] = []
    shown: dict[Any, tuple[Any, ...]] = {}
    for number, changes in enumerate(epochs):
        frame = pl.DataFrame(
            {"$op": [c[0] for c in changes], "k": [c[1] for c in changes], "@seen": [c[2] for c in changes]},
            schema={"$op": pl.String, "k": pl.Int64, "@seen": pl.Int64},
        ).with_columns(pl.col("@seen").alias("@known"))
        state = StateReader(RunCache(root), runs, ("$h", "$a", "$b"))
        found = advance(spec, frame, state, OperatorClock(0, 0))
        runs += write_first(root, spec, found, f"{number:012d}-0")
        for op, key, *answer in [] if found.changes is None else found.changes.rows():
            if op in ("-U", "-D"):
                assert shown.pop(key) == tuple(answer)
            else:
                assert key not in shown
                shown[key] = tuple(answer)
    return shown


def expected(rows: Counter[tuple[Any, Any]]) -> dict[Any, tuple[Any, ...]]:
    found = {}
    for key in {k for k, _ in rows}:
        mine = Counter({v: n for (k, v), n in rows.items() if k == key and n})
        if mine:
            values = {str(v): n for v, n in mine.items() if v is not None}
            found[key] = (told(values), mine.total(), sum(values.values()))
    return found


@st.composite
def histories(draw: st.DrawFn) -> list[list[Change]]:
    """Epochs of changes, each of which takes back only what is there."""
    there: list[tuple[Any, Any]] = []
    epochs = []
    for _ in range(draw(st.integers(1, 4))):
        changes: list[Change] = []
        for _ in range(draw(st.integers(0, 8))):
            if there and draw(st.booleans()):
                key, value = there.pop(draw(st.integers(0, len(there) - 1)))
                changes.append((draw(st.sampled_from(["-D", "-U"])), key, value))
            else:
                row = (draw(st.sampled_from([1, 2, None])), draw(st.one_of(st.none(), st.integers(0, 2))))
                there.append(row)
                changes.append((draw(st.sampled_from(["+I", "+U"])), *row))
        epochs.append(changes)
    return epochs


@settings(max_examples=30, deadline=None)
@given(histories())
def test_it_comes_to_what_the_rows_that_are_left_give(epochs: list[list[Change]]) -> None:
    rows: Counter[tuple[Any, Any]] = Counter()
    for op, key, value in (c for e in epochs for c in e):
        rows[key, value] += 1 if op.startswith("+") else -1
    with tempfile.TemporaryDirectory() as folder:
        assert run(epochs, Path(folder)) == expected(rows)


def test_what_takes_back_a_row_of_a_key_that_has_none_is_passed_over(tmp_path: Path) -> None:
    assert run([[("-U", 1, 5), ("+U", 1, 6)], [("-D", 2, 1)]], tmp_path) == {1: ("6x1", 1, 1)}


@pytest.mark.parametrize("able", [True, False])
def test_only_aggregates_that_can_take_a_value_back_keep_no_rows(able: bool) -> None:
    other = Measure("s", "count", True) if able else Measure("s", "sum", True)
    assert UserAggregation.fits((*MEASURES, other)) is able
    assert not UserAggregation.fits((Measure("n", "count", False),)), "plain counts are computed natively"


def test_a_grouping_set_without_keys_answers_before_the_first_row_and_behind_the_last(tmp_path: Path) -> None:
    spec = replace(SPEC, totals=(7,))
    epochs: list[list[Change]] = [[], [("+I", 7, 1), ("+I", 2, 1)], [("-D", 7, 1), ("-D", 2, 1)]]
    assert run(epochs[:1], tmp_path / "a", spec) == {7: ("", 0, 0)}
    assert run(epochs[:2], tmp_path / "b", spec) == {7: ("1x1", 1, 1), 2: ("1x1", 1, 1)}
    assert run(epochs, tmp_path / "c", spec) == {7: ("", 0, 0)}
