"""The kernel of patterns: transcripts of epochs, construct by construct."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.clock import BEGINNING
from millstream.errors import RunError
from millstream.kernels.outcome import OperatorClock
from millstream.kernels.patterns import program
from millstream.kernels.patterns.pattern import is_due
from millstream.kernels.patterns.terms import NotVector, column, evaluated
from millstream.kernels.patterns.terms import Path as Taken
from millstream.model.patterns.pattern import Pattern, pattern
from millstream.plan.operators.patterns.terms import ConstantValue, RowValue, Term, TermCall
from tests.unit.kernels.match_kit import Row, Stage, at, micros, row, step_of


def stage(made: Pattern, root: Path | None = None, *, keys: str = "k", rows: str = "one", **more: Any) -> Stage:
    """A stage that gives the places (column f) at which a match begins and ends, or measures of its own."""
    timeouts = more.pop("timeouts", False)
    measures = more or {"a": "first(f)", "z": "last(f)"}
    return Stage(step_of(made, measures, keys=keys, all_rows=rows == "all", timeouts=timeouts), root)


def rows(*xs: int | None, k: int = 1, start: int = 0) -> list[Row]:
    """Rows a second apart; f is the place of a row."""
    return [row(k, start + i, x, f=float(start + i)) for i, x in enumerate(xs)]


def spans(found: list[Row]) -> list[tuple[float, float]]:
    return [(r["a"], r["z"]) for r in found]


def all_at_once(made: Pattern, *xs: int | None, **more: Any) -> list[Any]:
    """What a pattern gives over rows of one key that has no more of them."""
    held = stage(made, **more)
    held.take(*rows(*xs))
    held.end()
    return spans(held.given) if not more else held.given


HIGH, LOW = "x > 5", "x < 3"


def test_parts_follow_one_another_without_rows_between() -> None:
    made = pattern().then("a", HIGH).then("b", LOW)
    assert all_at_once(made, 9, 1, 9, 4, 1, 9, 2) == [(0, 1), (5, 6)]


def test_a_gap_passes_over_rows_that_do_not_fulfil_what_follows() -> None:
    made = pattern().then("a", HIGH).followed_by("b", LOW)
    assert all_at_once(made, 9, 4, 4, 1, 1, 9, 1) == [(0, 3), (5, 6)]


def test_a_gap_takes_the_first_row_that_fits_unless_any_may_be_taken() -> None:
    first = pattern().then("a", HIGH).followed_by("b", LOW).then("c", "x = 2")
    assert all_at_once(first, 9, 1, 4, 1, 2) == []
    either = pattern().then("a", HIGH).followed_by("b", LOW, any_of_them=True).then("c", "x = 2")
    assert all_at_once(either, 9, 1, 4, 1, 2) == [(0, 4)]


def test_a_greedy_repetition_takes_as_many_as_it_can_and_a_reluctant_one_as_few() -> None:
    made = pattern().then("a", HIGH).then("b", times=(1, None)).then("c", "x = 4")
    assert all_at_once(made, 9, 1, 4, 1, 4, 1) == [(0, 4)]
    made = pattern().then("a", HIGH).then("b", times=(1, None), reluctant=True).then("c", "x = 4")
    assert all_at_once(made, 9, 1, 4, 1, 4, 1) == [(0, 2)]
    made = pattern().then("a", HIGH, times=(2, 3)).then("b", LOW)
    assert all_at_once(made, 9, 9, 9, 9, 1, 9, 1) == [(1, 4)]


def test_an_optional_part_may_be_left_out() -> None:
    made = pattern().then("a", HIGH).then("b", "x = 4", optional=True).then("c", LOW)
    assert all_at_once(made, 9, 1, 9, 4, 1, 9, 4, 4, 1) == [(0, 1), (2, 4)]


def test_of_an_alternation_the_first_that_fits_is_taken() -> None:
    made = pattern().then("a", HIGH).one_of(pattern().then("b", LOW), pattern().then("c").then("d", LOW))
    found = all_at_once(made, 9, 1, 2, 9, 4, 1, kind="classifier()", n="count(*)")
    assert [(r["kind"], r["n"]) for r in found] == [("b", 2), ("d", 3)]


def test_no_row_before_the_next_part_may_be_one_that_is_ruled_out() -> None:
    made = pattern().then("a", HIGH).not_followed_by("n", "x = 4").followed_by("b", LOW)
    assert all_at_once(made, 9, 3, 1, 9, 4, 1) == [(0, 2)]


def test_the_very_next_row_may_be_ruled_out() -> None:
    made = pattern().then("a", HIGH).not_next("n", "x = 4").followed_by("b", LOW)
    assert all_at_once(made, 9, 4, 1, 9, 3, 1) == [(3, 5)]
    last = pattern().then("a", HIGH).not_next("n", "x = 4")
    held = stage(last)
    assert held.take(*rows(9)) == [], "it is not known what comes next"
    assert spans(held.take(*rows(4, 9, 1, start=1))) == [(2, 2)]


def test_what_never_comes_is_told_when_its_time_is_over() -> None:
    made = pattern().then("a", HIGH).not_followed_by("b", LOW).within("10 seconds")
    held = stage(made)
    assert held.take(*rows(9, 4, 9)) == []
    assert not is_due(held.spec, held.state(), OperatorClock(micros(at(2)), micros(at(9.9))))
    assert is_due(held.spec, held.state(), OperatorClock(micros(at(2)), micros(at(10))))
    assert spans(held.take(watermark=10)) == [(0, 0)]
    assert held.take(row(1, 11, 1)) == [], "the second one was followed"
    assert held.held == 0


def test_a_match_that_could_grow_waits_for_the_row_behind_it() -> None:
    held = stage(pattern().then("a", HIGH, times=(1, None)))
    assert held.take(*rows(9, 9)) == []
    assert spans(held.take(*rows(9, 1, start=2))) == [(0, 2)]
    assert held.held == 0
    reluctant = stage(pattern().then("a", HIGH, times=(1, None), reluctant=True))
    assert spans(reluctant.take(*rows(9, 9))) == [(0, 0), (1, 1)]


def test_the_end_of_all_rows_ends_the_waiting() -> None:
    held = stage(pattern().then("a", HIGH, times=(1, None)))
    held.take(*rows(9, 9))
    assert spans(held.end()) == [(0, 1)]
    assert held.held == 0


def test_within_is_the_time_between_the_first_and_the_last_row() -> None:
    made = pattern().then("a", HIGH).followed_by("b", LOW).within("3 seconds")
    assert all_at_once(made, 9, 4, 4, 1, 9, 4, 1) == [(4, 6)], "three seconds are too long, two are not"


def test_a_search_whose_time_is_over_is_dropped_by_the_watermark_alone() -> None:
    held = stage(pattern().then("a", HIGH).followed_by("b", LOW).within("10 seconds"))
    held.take(*rows(9, 4, 4))
    assert held.held == 3
    assert held.take(watermark=10) == []
    assert held.held == 0


def test_time_outs_are_told_with_what_had_been_taken() -> None:
    made = pattern().then("a", HIGH).then("b", "x = 4", times=(1, None)).then("c", LOW).within("10 seconds")
    held = stage(made, timeouts=True, a="a.f", b="last(b.f)", c="c.f")
    assert held.take(*rows(9, 4, 4)) == []
    assert held.take(watermark=10) == [{"k": 1, "a": 0.0, "b": 2.0, "c": None, "timed_out": True}]
    found = held.take(*rows(9, 4, 1, 9, 9, start=20))
    assert found == [{"k": 1, "a": 20.0, "b": 21.0, "c": 22.0, "timed_out": False}], "what fails at once is no time-out"


@pytest.mark.parametrize(
    ("skip", "wanted"),
    [
        (Pattern.skip_past_last, [(0, 2), (3, 5)]),
        (Pattern.skip_to_next, [(0, 2), (1, 3), (2, 4), (3, 5)]),
        (lambda p: p.skip_to_first("b"), [(0, 2), (1, 3), (2, 4), (3, 5)]),
        (lambda p: p.skip_to_last("b"), [(0, 2), (2, 4)]),
        (lambda p: p.skip_to_last("a"), [(0, 2), (1, 3), (2, 4), (3, 5)]),
    ],
)
def test_after_a_match_the_search_goes_on_where_it_is_told_to(skip: Any, wanted: list[tuple[int, int]]) -> None:
    made = pattern().then("a", HIGH).then("b", HIGH, times=2)
    assert all_at_once(skip(made), 9, 9, 9, 9, 9, 9) == wanted


def test_matches_that_overlap_do_not_wait_for_one_that_never_ends() -> None:
    made = pattern().then("a", "x > 0").followed_by("b", "x = a.x * 10").skip_to_next()
    held = stage(made)
    assert spans(held.take(*rows(7, 2, 20))) == [(1, 2)]
    assert spans(held.take(*rows(3, 30, 70, start=3))) == [(0, 5), (3, 4)]


def test_keys_are_apart_and_each_is_numbered() -> None:
    made = pattern().then("a", HIGH).then("b", LOW)
    held = stage(made, n="match_number()", f="a.f")
    held.take(row(1, 0, 9, f=0.0), row(2, 1, 9, f=1.0), row(1, 2, 1), row(2, 3, 4))
    held.take(row(1, 4, 9, f=4.0), row(1, 5, 1), row(2, 6, 9, f=6.0), row(2, 7, 1))
    assert sorted((r["k"], r["n"], r["f"]) for r in held.given) == [(1, 1, 0.0), (1, 2, 4.0), (2, 1, 6.0)]


def test_without_keys_all_rows_are_one_stream() -> None:
    held = stage(pattern().then("a", HIGH).then("b", LOW), keys="", a="a.k", b="b.k")
    assert held.take(row(1, 0, 9), row(2, 1, 1)) == [{"a": 1, "b": 2}]


def test_rows_of_one_time_go_by_what_else_is_said() -> None:
    from millstream.model.expression import col
    from millstream.model.patterns.navigation import parsed
    from millstream.model.patterns.pattern import PAST_LAST
    from millstream.model.steps.pattern import matched
    from tests.unit.kernels.match_kit import GIVEN

    made = pattern().then("a", HIGH).then("b", LOW)
    conditions = {n: parsed(c) for n, c in made.conditions.items()}
    step = matched(
        GIVEN, (("k", col("k")),), "t", made.tree(), conditions, {"n": parsed("count(*)")},
        skip=PAST_LAST, within=None, order=(("x", True, False),),
    )  # fmt: skip
    held = Stage(step)
    assert held.take(row(1, 0, 1), row(1, 0, 9)) == [{"k": 1, "n": 2}]


def test_measures_of_a_match() -> None:
    made = (
        pattern()
        .then("a", HIGH)
        .then("b", "x < prev(x)", times=(1, None))
        .then("c", "x > prev(x)")
        .together("both", "a", "b")
    )
    found = all_at_once(
        made, 9, 7, 5, 8,
        first="first(b.x)", last="last(b.x)", second="first(b.x, 1)", far="last(b.x, 2)", before="prev(c.x, 2)",
        n="count(b.*)", total="sum(b.x)", least="min(x)", most="max(both.x)", mean="avg(b.x)", cls="classifier()",
        later="c.t > a.t", computed="sum(b.x * 2) + c.x", of_all="count(*)",
    )  # fmt: skip
    assert found == [
        {
            "k": 1, "first": 7, "last": 5, "second": 5, "far": None, "before": 7, "n": 2, "total": 12, "least": 5,
            "most": 9, "mean": 6.0, "cls": "c", "later": True, "computed": 32, "of_all": 4,
        }
    ]  # fmt: skip


def test_measures_of_all_rows_run_with_the_row_unless_they_are_final() -> None:
    made = pattern().then("a", HIGH).followed_by("b", LOW, times=2)
    found = all_at_once(
        made, 9, 4, 2, 1,
        rows="all", cls="classifier()", n="count(*)", total="sum(b.x)", whole="final sum(b.x)", end="final last(f)",
    )  # fmt: skip
    told = [(r["x"], r["cls"], r["n"], r["total"], r["whole"], r["end"]) for r in found]
    assert told == [(9, "a", 1, None, 3, 3.0), (2, "b", 2, 2, 3, 3.0), (1, "b", 3, 3, 3, 3.0)], "gaps are not shown"


def test_conditions_over_rows_that_were_taken() -> None:
    made = (
        pattern()
        .then("a")
        .then("b", "x > a.x and sum(b.x) < 20 and count(b.*) < 4", times=(1, None))
        .then("c", "c.t - a.t >= interval '3' second and c.x < first(b.x)")
    )
    assert all_at_once(made, 5, 6, 7, 1) == [(0, 3)]
    assert all_at_once(made, 5, 9, 9, 9, 1) == [], "the sum is too great"


def test_a_row_that_is_not_there_is_unknown_not_false() -> None:
    made = pattern().then("a", "prev(x) is null or x > prev(x)").then("b", "not (x < prev(a.x, 5))")
    assert all_at_once(made, 5, 6) == [], "NOT of unknown is unknown"
    other = pattern().then("a", "coalesce(prev(x), 0) = 0").then("b")
    assert all_at_once(other, 5, 6) == [(0, 1)]


def test_next_waits_for_the_row_behind() -> None:
    held = stage(pattern().then("a", "next(x) > x"), n="next(a.x)")
    assert held.take(*rows(1)) == []
    assert held.take(*rows(3, start=1)) == [{"k": 1, "n": 3}]
    assert held.end() == []


def test_decimals_and_numbers_are_compared_as_spark_does() -> None:
    made = pattern().then("a").then("b", "b.d > a.d * 1.1")
    held = stage(made, d="b.d")
    exact = [row(1, i, 0, d=Decimal(d)) for i, d in enumerate(("100.00", "110.00", "100.00", "110.01"))]
    held.take(*exact)
    assert [r["d"] for r in held.end()] + [r["d"] for r in held.given] == [Decimal("110.01")]


def test_a_number_that_does_not_fit_is_an_error_where_it_is_looked_at() -> None:
    made = pattern().then("a").then("b", "b.x * a.x > 0")
    with pytest.raises(RunError, match="64 bits"):
        all_at_once(made, 2**62, 4)
    with pytest.raises(RunError, match="64 bits"):
        all_at_once(pattern().then("a").then("b", "x > prev(x) * 4"), 2**62, 2**62)
    guarded = pattern().then("a", LOW).then("b", "b.x / a.x > 1")
    with pytest.raises(RunError, match="divides by zero"):
        all_at_once(guarded, 0, 4)
    with pytest.raises(RunError, match="sum"):
        all_at_once(pattern().then("a", times=2), 2**62, 2**62, s="sum(x)")


def test_a_pattern_that_explodes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MOST_STEPS", 20_000)
    twice = pattern().then(pattern().then("a", "x <= first(x)", times=(1, None)), times=(1, None)).then("b", HIGH)
    with pytest.raises(RunError, match="20,000 ways"):
        all_at_once(twice, *[1] * 30)


def test_a_pattern_inside_itself_does_not_explode_where_conditions_are_of_the_row() -> None:
    twice = pattern().then(pattern().then("a", LOW, times=(1, None)), times=(1, None)).then("b", HIGH)
    assert all_at_once(twice, *[1] * 200, 4) == []
    assert all_at_once(twice, *[1] * 200, 9) == [(0, 200)]


def test_rows_that_many_repetitions_could_take_are_not_tried_in_all_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MOST_STEPS", 20_000)
    made = pattern().then("a").then("b", times=(0, None)).then("c", times=(0, None)).then("d", times=(0, None))
    assert all_at_once(made.then("e", HIGH), *[1] * 1_000) == []
    assert all_at_once(made.then("e", HIGH), *[1] * 1_000, 9) == [(0, 1_000)]


def test_state_on_disk_gives_what_state_in_memory_gives(tmp_path: Path) -> None:
    made = pattern().then("a", "x > prev(x)").followed_by("b", "x < a.x").within("20 seconds")
    numbers = {"n": "match_number()", "a": "a.f", "b": "b.f"}
    both = [stage(made, tmp_path, **numbers), stage(made, **numbers)]
    xs = np.random.default_rng(7).integers(0, 9, 120).tolist()
    for epoch in range(12):
        given_rows = [
            row(x % 3, epoch * 10 + i, x, f=float(epoch * 10 + i)) for i, x in enumerate(xs[epoch * 10 :][:10])
        ]
        told = [held.take(*given_rows) for held in both]
        assert told[0] == told[1]
        assert both[0].held == both[1].held
    assert both[0].given
    assert both[0].held < 3 * 25, "what cannot take part any more is gone"


def test_an_epoch_that_is_run_again_gives_the_same() -> None:
    held = stage(pattern().then("a", HIGH).followed_by("b", "x < a.x"), n="match_number()", b="b.f")
    held.take(*rows(9, 9))
    before, watermark = list(held.memory.frames), held.watermark
    first = held.take(*rows(1, 9, 2, start=2))
    held.memory.frames, held.watermark = before, watermark
    assert held.take(*rows(1, 9, 2, start=2)) == first
    assert len(first) == 2


def test_nothing_is_kept_of_rows_that_begin_no_match() -> None:
    held = stage(pattern().then("a", HIGH).then("b", LOW))
    held.take(*rows(1, 1, 4, 4, 9, 5))
    assert held.held == 0
    assert held.state().scan(BEGINNING) is None, "nothing was ever written"


# ---------------------------------------------------------------- the two ways to compute a condition

_COLUMNS = {"i": pl.Int64, "j": pl.Int64, "f": pl.Float64, "s": pl.String, "b": pl.Boolean, "t": pl.Datetime("us")}
_VALUES = {
    "i": st.none() | st.sampled_from([0, 1, -3, 7, 2**62]),
    "j": st.none() | st.sampled_from([0, 2, 5]),
    "f": st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")]),
    "s": st.none() | st.sampled_from(["", "a", "b"]),
    "b": st.none() | st.booleans(),
    "t": st.none() | st.sampled_from([at(s).replace(tzinfo=None) for s in (0, 1, 90)]),
}
_NUMBER = st.builds(RowValue, st.sampled_from("ijf"), shift=st.integers(-2, 1)) | st.builds(
    ConstantValue, st.sampled_from([0, 1, 2.5, Decimal("1.5")])
)
_ARITHMETIC = st.builds(TermCall, st.sampled_from(["+", "-", "*", "/"]), st.tuples(_NUMBER, _NUMBER))
_COMPARED = st.builds(
    TermCall, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.tuples(_NUMBER | _ARITHMETIC, _NUMBER)
)
_TEXTS = st.builds(
    TermCall,
    st.sampled_from(["=", "<", ">="]),
    st.tuples(st.builds(RowValue, st.just("s"), shift=st.integers(-1, 0)), st.just(ConstantValue("a"))),
)
_TIMES = st.builds(
    lambda sign, shift: TermCall(
        sign, (TermCall("-", (RowValue("t"), RowValue("t", shift=shift))), ConstantValue(timedelta(seconds=30)))
    ),
    st.sampled_from(["<", ">", "="]),
    st.integers(-2, 0),
)
_ATOM = _COMPARED | _TEXTS | _TIMES | st.builds(RowValue, st.just("b"), shift=st.integers(-1, 1))
_NULL = st.builds(lambda a: TermCall("is null", (a,)), _NUMBER | _ATOM)
_CONDITION = st.recursive(
    _ATOM | _NULL,
    lambda inner: (
        st.builds(TermCall, st.sampled_from(["and", "or"]), st.tuples(inner, inner))
        | st.builds(lambda a: TermCall("not", (a,)), inner)
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(term=_CONDITION, values=st.lists(st.fixed_dictionaries(_VALUES), min_size=1, max_size=6))
def test_a_condition_as_a_column_is_what_it_is_row_by_row(term: Term, values: list[Row]) -> None:
    frame = pl.DataFrame(values, schema=_COLUMNS)
    place = np.arange(len(frame))
    try:
        found = column(term, frame, place, place[::-1]).to_list()
    except NotVector:
        return
    path = Taken(0)
    path.high = len(frame)
    evaluate = evaluated(term, {c: frame[c].to_list() for c in _COLUMNS})
    for i, value in enumerate(found):
        try:
            assert evaluate(path, i) == value
        except RunError:
            assert value is not None, "an error is no reason to be unknown"
