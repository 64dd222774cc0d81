"""JSON with optional fields and bad lines against clean JSON.

20 % of the bids lack a price, and one line in a thousand is an error. Half of those are cut short or are no JSON,
the others have a value of the wrong type.

Both folders are read in turn, three times; the figure is the median of the ratios of events per second.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import millstream as ms
from bench import data, ours
from bench.own import feed, turns

NULLS, ERRORS = 0.2, 0.001
QUERY = "SELECT count(*) AS n, sum(bids) AS bids FROM counts"


def flow_of(folder: Path) -> ms.Flow:
    flow = ms.Flow("bad_lines")
    bids = feed.source(flow, folder, "json")
    bids.key_by("auction").window(ms.tumbling("10 seconds")).aggregate(bids=ms.count()).view("counts")
    return flow


def spoiled(line: bytes, dice: random.Random) -> bytes:
    """A line that is an error."""
    kind = dice.randrange(4)
    if kind == 0:
        return line[: dice.randrange(1, len(line) - 1)]
    if kind == 1:
        return b"connection reset by peer"
    name = b'"price":' if kind == 2 else b'"bidder":'
    return line.replace(name, name + b'"?", "was":')


def write(source: Path, folder: Path) -> int:
    """Write the files of a folder again, with NULLs and bad lines; returns how many lines are bad."""
    folder.mkdir(parents=True, exist_ok=True)
    dice, bad = random.Random(data.SEED), 0
    for file in sorted(source.glob("*.json")):
        lines = file.read_bytes().splitlines()
        for i, line in enumerate(lines):
            chance = dice.random()
            if chance < ERRORS:
                lines[i] = spoiled(line, dice)
                bad += 1
            elif chance < ERRORS + NULLS:
                lines[i] = line.replace(b'"price":', b'"price":null,"was":')
        (folder / file.name).write_bytes(b"\n".join(lines) + b"\n")
    return bad


def run(folder: Path, expected: int, home_folder: Path) -> float:
    """The seconds until the view caught up, in a fresh home. All good bids must be counted."""
    seconds, rows = ours.run(flow_of(folder), home_folder, QUERY)
    found = rows["bids"][0].as_py()
    assert found == expected, f"{found:,} bids of {expected:,}"
    return seconds


def measure(work: Path, events: int | None) -> dict[str, Any]:
    bids = data.bids(events or 5_000_000)
    bad = write(bids.folder("json"), work / "bad-lines")
    run(bids.folder("json"), bids.bids, work / "warm")
    runs = {
        "clean": partial(run, bids.folder("json"), bids.bids),
        "bad": partial(run, work / "bad-lines", bids.bids - bad),
    }
    seconds = turns.in_turn("bad-lines", work / "turns", runs)
    return {
        "bids": bids.bids,
        "events_sha256": bids.digest,
        "bad_lines": bad,
        "clean_s": turns.middle(seconds["clean"]),
        "bad_lines_s": turns.middle(seconds["bad"]),
        "bad_over_clean": turns.ratio(seconds["bad"], seconds["clean"], goal=1.25),
    }
