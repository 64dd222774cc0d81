"""What a peer's script is asked and what it answers; standard library and pyarrow only, as it runs in every
environment.

The harness starts `python bench/peers/<peer>.py '<task as JSON>'`. The script makes itself warm on `warm_up`,
runs the case over `data`, writes its final rows to `out` (Parquet: key, start_us, bids, and for sessions end_us;
every key and window once) and prints one line of JSON:
{"seconds": 3.1, "inside": "what the time covers", "version": "4.3.0"}.

A contest is asked in the same way, with an `Asked` in place of a `Task`: one query, or one join or pattern or process,
over files of persons, auctions and bids.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

RESULT = ("key", "start_us", "bids")
SOMETIMES = ("end_us", "number")
"""Where a window is told by more than its start: the end of a session, the number of a count window."""

COLUMNS = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, "
    "dateTime TIMESTAMP, extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, "
    "dateTime TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING",
}
"""What the files of a contest hold, by kind of event, with the types of Spark."""
SIDE_ROWS = 10_000
"""How many rows the stored table of a contest has: 0 to so many, and each as text."""


@dataclass(frozen=True)
class Task:
    """Count the bids per `key` in windows of `size` seconds that start every `slide` seconds; or, with a `gap` of
    seconds, in sessions.
    """

    key: str
    size: int
    slide: int
    gap: int
    lateness: int
    format: str
    data: str
    warm_up: str
    out: str
    work: str
    """An empty folder for checkpoints and the like."""
    options: dict[str, str] = field(default_factory=dict)
    """Settings of one peer, given as --option peer.name=value."""

    def to_json(self) -> str:
        return json.dumps(self.__dict__)


@dataclass(frozen=True)
class Asked:
    """What a contest asks of one system."""

    case: str
    sql: str
    """The query in this system's own dialect; empty where a contest is not asked in SQL."""
    keeps: bool
    """Whether the answer is a table that changes, not rows that are written once."""
    data: dict[str, str]
    """By kind of event the folder that has its files: `json`, and `json-lanes` for readers that take files in any
    order."""
    warm_up: dict[str, str]
    lateness: int
    out: str
    """Where the rows of the answer go, in Parquet. If the last run drops its rows, those of the warm-up go to
    `out_warm_up` instead; one of the two must be there."""
    out_warm_up: str
    work: str
    options: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(self.__dict__)


def asked() -> Asked:
    """What this script was asked."""
    return Asked(**json.loads(sys.argv[1]))


def task() -> Task:
    """The task this script was started with."""
    return Task(**json.loads(sys.argv[1]))


def answer(seconds: float, inside: str, version: str, **more: Any) -> None:
    """Tell the harness; this must be the last line printed."""
    sys.stdout.write("\n" + json.dumps({"seconds": seconds, "inside": inside, "version": version, **more}) + "\n")
    sys.stdout.flush()


def write_result(table: pa.Table, out: str) -> None:
    """Hand over the final rows; `table` has the columns of `RESULT` and maybe some of `SOMETIMES`, in any integer or
    timestamp[us] type.
    """
    names = [*RESULT, *(name for name in SOMETIMES if name in table.column_names)]
    pq.write_table(pa.table({name: table[name].cast(pa.int64()) for name in names}), Path(out))
