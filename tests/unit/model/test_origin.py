"""An error names the user's own file and line, however deep it was found."""

import inspect

import pytest

import millstream as ms
from millstream.errors import MillstreamError
from millstream.model.origin import here


def source() -> ms.Stream:
    return ms.Flow("f").source("s", ms.memory(), schema="a BIGINT, ts TIMESTAMP", event_time="ts")


MISTAKES = {
    "where": lambda s: s.where("b > 1"),
    "type": lambda s: s.where("a + 1"),
    "select": lambda s: s.select(x="b"),
    "function": lambda s: s.select(x="rand()"),
    "parse": lambda s: s.where("a >"),
    "window": lambda s: s.window(ms.tumbling("soon")),
    "key": lambda s: s.key_by("b"),
    "aggregate": lambda s: s.aggregate(n=ms.sum("ts")),
    "name": lambda s: s.view("no good"),
    "operator": lambda s: s.where(ms.col("b") > 1),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_at_the_line_that_made_it(mistake: str) -> None:
    code = MISTAKES[mistake].__code__
    with pytest.raises(MillstreamError) as caught:
        MISTAKES[mistake](source())
    origin = caught.value.origin
    assert origin is not None
    assert origin.file == "tests/unit/model/test_origin.py" or origin.file.endswith("/tests/unit/model/test_origin.py")
    assert origin.line == code.co_firstlineno
    assert f"at {origin}" in str(caught.value)


def test_here_is_the_caller() -> None:
    frame = inspect.currentframe()
    origin = here()
    assert frame is not None and origin is not None
    assert origin.line == frame.f_lineno - 2
