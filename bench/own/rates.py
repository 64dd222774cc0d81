"""Bids per second through one window or another, in turn, each from Parquet to its view; cases name the windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import millstream as ms
from bench import data, oracle, ours
from bench.own import feed, turns

EVENTS = 1_000_000


@dataclass(frozen=True)
class Variant:
    """A window over the bids of an auction, the columns of its view under the names of the oracle, and the oracle's SQL
    over a folder of bids.
    """

    window: Any
    columns: str
    right: Callable[[Path], str]


def run(variant: Variant, case: str, bids: Path, right: Path, home_folder: Path) -> float:
    """The seconds of one whole run."""
    flow = ms.Flow("rates")
    keyed = feed.source(flow, bids, "parquet", bounded=True).key_by("auction")
    keyed.window(variant.window).aggregate(bids=ms.count()).view("counts")
    seconds, rows = ours.run(flow, home_folder, f"SELECT {variant.columns}, bids FROM counts")
    turns.check(case, right, rows, home_folder)
    return seconds


def measure(case: str, variants: Mapping[str, Variant], work: Path, events: int | None) -> dict[str, Any]:
    """Events per second of all variants. Each first runs once, untimed, over all events."""
    bids = data.bids(events or EVENTS)
    folder = bids.folder("parquet")
    rights = {name: oracle.write(v.right(folder), work / f"right-{name}.parquet") for name, v in variants.items()}
    runs = {name: partial(run, v, case, folder, rights[name]) for name, v in variants.items()}
    turns.in_turn(f"{case}  warm-up", work / "warm-up", runs, rounds=1)
    seconds = turns.in_turn(case, work, runs)
    rates = {name: [round(bids.bids / s) for s in times] for name, times in seconds.items()}
    return {
        "bids": bids.bids,
        "events_sha256": bids.digest,
        **{f"{name}_events_per_second": {"value": turns.middle(each), "all": each} for name, each in rates.items()},
    }
