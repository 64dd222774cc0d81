"""A log on the real disk with a clock that is set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.clock import ManualClock
from millstream.log import Log

BIDS = pa.schema({"auction": pa.int64(), "name": pa.string(), "ts": pa.timestamp("us", "UTC")})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    opened = Log(tmp_path / "log", clock)
    yield opened
    opened.close()
