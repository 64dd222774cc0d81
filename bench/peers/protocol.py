"""What a peer's script is asked and what it answers; standard library and pyarrow only, as it runs in every
environment.

The harness starts `python bench/peers/<peer>.py '<task as JSON>'`. The script makes itself warm on `warm_up`,
runs the case over `data`, writes its final rows to `out` (Parquet: key, start_us, bids, and for sessions end_us;
every key and window once) and prints one line of JSON:
{"seconds": 3.1, "inside": "what the time covers", "version": "4.3.0"}.
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
