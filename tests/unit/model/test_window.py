"""Windows against brute force: a record belongs to exactly the windows that cover it."""

from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.clock import END_OF_TIME
from millstream.errors import DefinitionError
from millstream.kernels.windows.slice_times import closes_between, expiry, window_ends
from millstream.model.types.duration import Duration
from millstream.model.windows.window import Window, everything, hopping, tumbling


@st.composite
def windows(draw: st.DrawFn) -> Window:
    size = draw(st.integers(1, 40))
    slide = draw(st.one_of(st.just(size), st.integers(1, size)))
    unit = draw(st.sampled_from([1, 7, 1_000_000]))
    return Window(
        Duration(size * unit),
        Duration(slide * unit),
        Duration(draw(st.integers(-50, 50)) * draw(st.sampled_from([1, unit]))),
    )


TIMES = st.one_of(st.integers(-200, 200), st.integers(-(10**17), 10**17))


def covering(window: Window, time: int) -> list[int]:
    """The ends of all windows [start, end) with a start on the grid that hold `time`, from the definition."""
    assert window.size is not None and window.slide is not None
    size, slide, offset = window.size.micros, window.slide.micros, window.offset.micros
    nearest = (time - offset) // slide
    starts = (offset + k * slide for k in range(nearest - size // slide - 2, nearest + 3))
    return sorted(s + size for s in starts if s <= time < s + size)


def slice_start(window: Window, time: int) -> int:
    """What `slice_sql` says, in Python: Spark's pmod is Python's modulo for a positive divisor."""
    return time - (time - window.offset.micros) % window.slice.micros


def ends(window: Window, starts: list[int], *bounds: int) -> Iterator[tuple[int, list[int]]]:
    frame = pl.DataFrame({"i": range(len(starts)), "$s": starts}, schema={"i": pl.Int64, "$s": pl.Int64})
    found = window_ends(window, frame, *bounds)
    for i in range(len(starts)):
        yield i, found.filter(pl.col("i") == i)["$end"].to_list()


@given(windows(), TIMES)
def test_all_times_of_a_slice_are_covered_by_the_same_windows(window: Window, time: int) -> None:
    start, width = slice_start(window, time), window.slice.micros
    assert start <= time < start + width
    assert covering(window, start) == covering(window, time) == covering(window, start + width - 1)


@given(windows(), TIMES)
def test_first_end_and_expiry_are_the_outermost_windows_over_a_slice(window: Window, time: int) -> None:
    over = covering(window, time)
    start = slice_start(window, time)
    assert window.first_end(start) == over[0]
    assert window.expiry(start) == over[-1]
    assert expiry(window, np.array([start])).tolist() == [over[-1]]


@given(windows(), st.lists(TIMES, min_size=1, max_size=8), st.data())
def test_a_row_is_repeated_for_exactly_the_windows_between_the_bounds(
    window: Window, times: list[int], data: st.DataObject
) -> None:
    assert window.size is not None
    near = data.draw(st.sampled_from(times))
    reach = 3 * window.size.micros
    after = data.draw(st.one_of(st.just(-(2**62)), st.integers(near - reach, near + reach)))
    upto = data.draw(st.one_of(st.just(END_OF_TIME), st.integers(after, near + reach)))
    starts = [slice_start(window, t) for t in times]
    for i, found in ends(window, starts, after, upto):
        assert found == [e for e in covering(window, times[i]) if after < e <= upto]


@given(windows(), TIMES, st.integers(0, 10**8))
def test_a_window_closes_between_two_watermarks_only_if_one_ends_there(window: Window, before: int, step: int) -> None:
    assert window.size is not None and window.slide is not None
    base = window.offset.micros + window.size.micros
    some = (
        (before - base) // window.slide.micros * window.slide.micros + base + window.slide.micros
    )  # the next end behind `before`
    assert closes_between(window, before, before + step) == (some <= before + step)
    assert not closes_between(window, before, before)
    assert not closes_between(everything(), before, before + step)


@given(windows(), TIMES)
def test_the_sql_of_a_slice_is_the_slice(window: Window, time: int) -> None:
    """Read as Python, with Spark's pmod, which is Python's modulo for a positive divisor."""
    sql = window.slice_sql("t").replace("L", "")
    assert eval(sql, {"t": time, "pmod": lambda a, b: a % b}) == slice_start(window, time)


def test_the_global_window_never_ends() -> None:
    window = everything()
    assert window.is_global and not window.is_tumbling and window.slice == Duration(0)
    assert window.first_end(5) == window.expiry(5) == END_OF_TIME and window.slice_sql("t") == "0L"
    assert expiry(window, np.array([0, 1])).tolist() == [END_OF_TIME] * 2
    assert [e for _, e in ends(window, [0, 5], 0)] == [[END_OF_TIME]] * 2


def test_windows_say_what_they_are() -> None:
    assert str(tumbling("1 minute", offset="5 seconds")) == "tumbling 1min offset 5s"
    assert str(hopping("1 minute", "7 seconds")) == "hopping 1min every 7s"
    assert str(everything()) == "global"
    assert hopping("10 s", "10 s").is_tumbling


@pytest.mark.parametrize(
    "make",
    [
        lambda: tumbling("0 s"),
        lambda: tumbling("-5 s"),
        lambda: hopping("5 s", "0 s"),
        lambda: tumbling("x"),
        lambda: tumbling("1 s", offset="x"),
    ],
)
def test_a_window_needs_a_length(make: object) -> None:
    with pytest.raises(DefinitionError, match="window"):
        make()  # type: ignore[operator]


def test_windows_with_holes_between_them_are_refused() -> None:
    with pytest.raises(DefinitionError, match="longer than its size") as caught:
        hopping("5 seconds", "6 seconds")
    assert "belong to none" in (caught.value.detail or "")
