"""Windows of 100 bids per auction, tumbling and one every 10 bids: events per second."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import millstream as ms
from bench import oracle
from bench.own import rates

COLUMNS = "auction AS key, window_index AS number, window_start AS start_us, window_end AS end_us"
VARIANTS = {
    name: rates.Variant(
        ms.count_window(100, slide=slide), COLUMNS, partial(oracle.counted, key="auction", size=100, slide=slide)
    )
    for name, slide in (("tumbling", 100), ("sliding", 10))
}


def measure(work: Path, events: int | None) -> dict[str, Any]:
    return rates.measure("count-windows", VARIANTS, work, events)
