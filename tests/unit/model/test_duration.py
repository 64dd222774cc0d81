"""Durations: every spelling of one length is one value."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import DefinitionError
from millstream.model.types.duration import LONGEST, Duration

UNITS = {
    1: ("microsecond", "microseconds", "us"),
    1_000: ("millisecond", "milliseconds", "ms"),
    1_000_000: ("second", "seconds", "sec", "secs", "s"),
    60_000_000: ("minute", "minutes", "min", "mins", "m"),
    3_600_000_000: ("hour", "hours", "h"),
    86_400_000_000: ("day", "days", "d"),
    604_800_000_000: ("week", "weeks", "w"),
}
SPELT = [(name, micros) for micros, names in UNITS.items() for name in names]
CENTURIES = 300 * 366 * 86_400_000_000


@given(st.sampled_from(SPELT), st.integers(0, 1000), st.sampled_from(["", " ", "  "]), st.booleans())
def test_a_number_and_a_unit_are_that_many_units(unit: tuple[str, int], number: int, space: str, loud: bool) -> None:
    name, micros = unit
    text = f"{number}{space}{name}"
    assert Duration.of(text.upper() if loud else text) == Duration(number * micros)


@given(
    st.lists(st.tuples(st.integers(0, 500), st.sampled_from(SPELT)), min_size=1, max_size=4),
    st.sampled_from([" ", ", "]),
)
def test_parts_add_up(parts: list[tuple[int, tuple[str, int]]], between: str) -> None:
    text = between.join(f"{n} {name}" for n, (name, _) in parts)
    assert Duration.of(text).micros == sum(n * micros for n, (_, micros) in parts)


@given(st.integers(-CENTURIES, CENTURIES))
def test_a_printed_duration_reads_back_as_itself(micros: int) -> None:
    assert Duration.of(str(Duration(micros))) == Duration(micros)


@given(st.integers(-CENTURIES, CENTURIES))
def test_a_timedelta_keeps_its_microseconds(micros: int) -> None:
    assert Duration.of(timedelta(microseconds=micros)).micros == micros


@given(st.integers(-LONGEST, LONGEST), st.integers(-LONGEST, LONGEST))
def test_durations_are_ordered_by_length(a: int, b: int) -> None:
    assert (Duration(a) < Duration(b)) == (a < b)


@pytest.mark.parametrize(
    ("text", "micros"), [("0.5 seconds", 500_000), ("1.5 hours", 5_400_000_000), ("0.1s", 100_000)]
)
def test_fractions_are_exact_to_the_microsecond(text: str, micros: int) -> None:
    assert Duration.of(text).micros == micros


@pytest.mark.parametrize(
    "value", ["", "  ", "10", "seconds", "ten seconds", "5 parsecs", "5 s x", "5 s 3", "1e3 s", ",", None, 5, 1.5, []]
)
def test_what_is_not_a_duration_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(DefinitionError) as caught:
        Duration.of(value, what="lateness")  # type: ignore[arg-type]
    assert "lateness" in caught.value.message
    assert "10 seconds" in (caught.value.hint or "")
    assert caught.value.origin is not None and caught.value.origin.file.endswith("test_duration.py")


def test_signs_are_checked_where_they_matter() -> None:
    assert Duration.not_negative("0 seconds", what="x") == Duration(0)
    for bad in ("0 seconds", "-1 second"):
        with pytest.raises(DefinitionError, match="longer than zero"):
            Duration.positive(bad, what="window size")
    with pytest.raises(DefinitionError, match="must not be negative"):
        Duration.not_negative("-1 us", what="lateness")
