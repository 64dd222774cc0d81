"""Aggregations over one scan that share partials get what each would combine alone."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.clock import BEGINNING
from millstream.errors import RunError
from millstream.kernels.aggregates.shared_partials import bases
from millstream.kernels.intake import gather, take_in
from millstream.kernels.scan_input import Role
from millstream.model.types.duration import Duration
from millstream.model.windows.trigger import ON_CHANGE
from millstream.model.windows.window import Window
from millstream.model.windows.windowing import Windowing
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.parts import Feed, Measure

FUTURE = 1_000
MEASURES: dict[str, tuple[Measure, str | None]] = {
    m.name: (m, column)
    for m, column in [
        (Measure("n", "count", False), None),
        (Measure("ni", "count", True, type=pa.int64()), "i"),
        (Measure("si", "sum", True, type=pa.int64()), "i"),
        (Measure("sj", "sum", True, type=pa.int32()), "j"),
        (Measure("ai", "avg", True, type=pa.int64()), "i"),
        (Measure("lo", "min", True, type=pa.int32()), "j"),
        (Measure("hi", "max", True, type=pa.float64()), "f"),
        (Measure("every", "bool_and", True, type=pa.bool_()), "yes"),
        (Measure("sf", "sum", True, type=pa.float64()), "f"),
        (Measure("last", "last", True, type=pa.int64()), "i"),
    ]
}
KEYS = {"by_k": ("k",), "by_kg": ("k", "g"), "all": ()}
SCHEMA = {
    "$part": pl.Int32, "$pos": pl.Int64, "$ts": pl.Int64, "$bad": pl.Int32, "big": pl.Boolean, "k": pl.String,
    "g": pl.Int64, "i": pl.Int64, "j": pl.Int32, "f": pl.Float64, "yes": pl.Boolean,
}  # fmt: skip
ROW = st.fixed_dictionaries(
    {
        "$ts": st.one_of(st.integers(-20, 60), st.just(FUTURE + 1)),
        "$bad": st.sampled_from([0, 0, 0, 0, 1]),
        "big": st.sampled_from([True, True, False, None]),
        "k": st.sampled_from([None, "", "a", "b"]),
        "g": st.sampled_from([None, 0, 1]),
        "i": st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**40), 2**40)),
        "j": st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
        "f": st.one_of(st.none(), st.sampled_from([0.5, float("nan"), -2.0])),
        "yes": st.sampled_from([True, False, None]),
    }
)


def window(size: int | None, slide: int = 0, offset: int = 0) -> Window:
    return Window() if size is None else Window(Duration(size), Duration(slide or size), Duration(offset))


WINDOWS = st.sampled_from(
    [window(None), window(10), window(5), window(30), window(30, 10), window(7), window(10, offset=5), window(20, 5)]
)


@st.composite
def aggregations(draw: st.DrawFn) -> Aggregation:
    by, over = draw(st.sampled_from(list(KEYS))), draw(WINDOWS)
    chosen = draw(st.lists(st.sampled_from(list(MEASURES)), min_size=1, max_size=3, unique=True))
    return aggregation(by, over, chosen, draw(st.sampled_from([None, "big"])))


def aggregation(by: str, over: Window, chosen: list[str], keep: str | None = None) -> Aggregation:
    arguments = tuple(c for c in (MEASURES[m][1] for m in chosen) if c is not None)
    feed = Feed(0, "src", keep, "", KEYS[by] + arguments, f"hash_{by}", f"slice {over}")
    types = tuple({"k": pa.string(), "g": pa.int64()}[k] for k in KEYS[by])
    measures = tuple(MEASURES[m][0] for m in chosen)
    return Aggregation("v", KEYS[by], Windowing(over, ON_CHANGE), measures, types, feeds=(feed,))


def frame(rows: list[dict[str, Any]], specs: list[Aggregation]) -> pl.DataFrame:
    """Rows with the columns that a prelude adds."""
    made = pl.DataFrame([{**row, "$part": 0, "$pos": i} for i, row in enumerate(rows)], schema=SCHEMA, orient="row")
    columns: dict[str, Any] = {}
    for by, keys in KEYS.items():
        columns[f"hash_{by}"] = [hash(tuple(row[k] for k in keys)) % 3 for row in rows]
    for spec in specs:
        width, offset = spec.grid.slice.micros, spec.grid.offset.micros
        columns[f"slice {spec.grid}"] = [
            0 if spec.grid.is_global else row["$ts"] - (row["$ts"] - offset) % width for row in rows
        ]
    return made.with_columns(pl.Series(name, values, dtype=pl.Int64) for name, values in columns.items())


def alone(rows: pl.DataFrame, role: Role) -> tuple[Any, ...]:
    taken = take_in(rows, [role], FUTURE)
    return told(taken, role)


def told(taken: Any, role: Role) -> tuple[Any, ...]:
    partials = gather(role.operator, taken.frames.get(role.view, []))
    if partials is not None:
        partials = partials.sort(partials.columns)
    counts = tuple(by.get(role.view, 0) for by in (taken.applied, taken.filtered, taken.late))
    return counts, None if partials is None else (partials.schema, partials.rows())


@given(st.lists(aggregations(), min_size=2, max_size=6), st.lists(ROW, max_size=30), st.integers(-20, 40))
def test_each_aggregation_gets_what_it_would_combine_alone(
    specs: list[Aggregation], rows: list[dict[str, Any]], watermark: int
) -> None:
    given_rows = frame(rows, specs)
    roles = [Role(i, spec, spec.feeds[0], watermark) for i, spec in enumerate(specs)]
    taken = take_in(given_rows, roles, FUTURE)
    for role in roles:
        assert repr(told(taken, role)) == repr(alone(given_rows, role))  # NaN is not equal to itself


def names(roles: list[Role]) -> list[int]:
    return sorted(role.view for role in roles)


def test_coarser_windows_share_the_slices_of_finer_ones() -> None:
    specs = [
        aggregation("by_k", window(30), ["n"]),
        aggregation("by_k", window(10), ["si"]),
        aggregation("by_k", window(None), ["n"], "big"),
        aggregation("by_k", window(7), ["n"]),
        aggregation("by_k", window(30, offset=5), ["n"]),
        aggregation("by_kg", window(10), ["n"]),
        aggregation("by_k", window(10), ["last"]),
        aggregation("by_k", window(10), ["sf"]),
        aggregation("by_kg", window(20), ["hi"]),
    ]
    shared, others = bases([Role(i, spec, spec.feeds[0], BEGINNING) for i, spec in enumerate(specs)])
    assert sorted(names(base.roles) for base in shared) == [[0, 1], [2, 4], [5, 8]]
    assert names(others) == [3, 6, 7]


def test_a_sum_that_might_be_too_large_is_reported_by_its_own_view() -> None:
    specs = [aggregation("by_k", window(10), ["n"]), aggregation("by_k", window(30), ["si"])]
    row = {"$ts": 1, "$bad": 0, "big": True, "k": "a", "g": 0, "i": 2**61, "j": 0, "f": 0.5, "yes": True}
    roles = [Role(i, spec, spec.feeds[0], BEGINNING) for i, spec in enumerate(specs)]
    assert take_in(frame([row, row], specs), roles, FUTURE).applied == {0: 2, 1: 2}
    with pytest.raises(RunError, match="the sum `si` of the view `v` has left the range of BIGINT"):
        take_in(frame([row, row, row], specs), roles, FUTURE)
