"""A topic whose folder goes away while it is open: every method names that, or answers from what it has open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.clock import SystemClock
from millstream.errors import MillstreamError
from millstream.log import Log
from millstream.log.topic import Topic

SCHEMA = pa.schema([("n", pa.int64())])
CALLS: dict[str, Callable[[Topic], object]] = {
    "append": lambda t: t.append([{"n": 2}]),
    "send": lambda t: t.send({"n": 2}).result(),
    "hold": lambda t: t.hold("me", {0: 0}),
    "trim": lambda t: t.trim({0: 1}, force=True),
    "retain": lambda t: t.retain(),
    "roll": lambda t: t.roll(),
    "start": lambda t: t.start(),
    "end": lambda t: t.end(),
    "at": lambda t: t.at(0),
    "read": lambda t: t.read(0, 0, 1),
    "parts": lambda t: t.parts(0, 0, 1),
    "stats": lambda t: t.stats(),
    "holds": lambda t: t.holds(),
    "release": lambda t: t.release("you"),
}


@pytest.mark.parametrize("gone", ["home", "home/log/t"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_on_a_topic_that_is_gone_ends_in_a_named_error(tmp_path: Path, call: str, gone: str) -> None:
    first = Log(tmp_path / "home/log", SystemClock())
    first.create("t", SCHEMA, retain_bytes=1).append([{"n": 1}])
    first.topic("t").hold("you", {0: 0})
    first.close()
    log = Log(tmp_path / "home/log", SystemClock())
    topic = log.topic("t")
    (tmp_path / gone).rename(tmp_path / "elsewhere")
    try:
        CALLS[call](topic)
    except MillstreamError as error:
        assert error.hint
    else:
        assert call in ("start", "holds", "release")
    assert not (tmp_path / gone).exists()
    log.close()
