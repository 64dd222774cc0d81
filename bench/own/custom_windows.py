"""Windows of 10 s that a Python function gives for an event time, and the built-in ones: events per second.

Both must give the same rows. The function is called by the pane kernel; the built-in windows go through the slice
kernel.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import millstream as ms
from bench import oracle
from bench.own import rates

SIZE = timedelta(seconds=10)
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def ten_seconds(time: datetime) -> list[tuple[datetime, datetime]]:
    """The one window that holds a time."""
    start = time - (time - BEGINNING) % SIZE
    return [(start, start + SIZE)]


VARIANTS = {
    name: rates.Variant(
        window,
        "auction AS key, window_start AS start_us",
        partial(oracle.windows, key="auction", size=10, slide=10),
    )
    for name, window in (("custom", ms.custom(ten_seconds)), ("built_in", ms.tumbling(SIZE)))
}


def measure(work: Path, events: int | None) -> dict[str, Any]:
    return rates.measure("custom-windows", VARIANTS, work, events)
