"""Ten different views over one source against one: the scan and the parse are shared, so ten may cost little
more.

Both flows read the same Parquet files in turn, three times; the figure is the median of the ratios.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import millstream as ms
from bench import data, ours
from bench.own import feed, turns


def flow_of(number: int, folder: Path, form: str) -> ms.Flow:
    """A flow with the first `number` of ten views; no two have the same key, window and aggregates."""
    flow = ms.Flow(f"views_{number}")
    bids = feed.source(flow, folder, form)
    by_auction, by_bidder = bids.key_by("auction"), bids.key_by("bidder")
    cents, ten, minute = bids.where("price > 10000"), ms.tumbling("10 seconds"), ms.tumbling("1 minute")
    views = [
        by_auction.window(ten).aggregate(bids=ms.count()),
        by_auction.window(ten).aggregate(top=ms.max("price"), low=ms.min("price")),
        by_auction.window(minute).aggregate(spent=ms.sum("price")),
        by_bidder.window(ten).aggregate(bids=ms.count()),
        by_bidder.window(minute).aggregate(mean=ms.avg("price")),
        by_bidder.aggregate(bids=ms.count(), spent=ms.sum("price")),
        cents.key_by("auction").window(ten).aggregate(bids=ms.count()),
        cents.key_by("bidder").window(ms.hopping("1 minute", "10 seconds")).aggregate(bids=ms.count()),
        bids.key_by(group="auction % 10").window(minute).aggregate(top=ms.max("price")),
        bids.key_by(group="price % 7").aggregate(bids=ms.count(), last=ms.last("price")),
    ]
    for i, view in enumerate(views[:number]):
        view.view(f"view_{i}")
    return flow


def run(number: int, folder: Path, form: str, home_folder: Path) -> float:
    """The seconds until all views caught up, in a fresh home."""
    seconds, _ = ours.run(flow_of(number, folder, form), home_folder, "SELECT count(*) AS n FROM view_0")
    return seconds


def measure(work: Path, events: int | None) -> dict[str, Any]:
    bids = data.bids(events or 5_000_000)
    figures: dict[str, Any] = {"bids": bids.bids, "events_sha256": bids.digest}
    for form in data.FORMATS:
        run(10, bids.warm_up(form), form, work / f"warm-{form}")
        runs = {name: partial(run, number, bids.folder(form), form) for name, number in (("one", 1), ("ten", 10))}
        seconds = turns.in_turn(f"ten-views  {form}", work / form, runs)
        figures |= {
            f"{form}_one_view_s": turns.middle(seconds["one"]),
            f"{form}_ten_views_s": turns.middle(seconds["ten"]),
            f"{form}_ten_over_one": turns.ratio(seconds["ten"], seconds["one"], goal=3.0),
        }
    return figures
