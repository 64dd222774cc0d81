"""What a peer's script is asked and what it answers; standard library and pyarrow only, as it runs in every
environment.

The harness starts `python bench/peers/<peer>.py '<task as JSON>'`. The script makes itself warm on `warm_up`,
runs the case over `data`, writes its final rows to `out` (Parquet: key, start_us, bids; every key and window
once) and prints one line of JSON: {"seconds": 3.1, "inside": "what the time covers", "version": "4.3.0"}.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

RESULT = pa.schema({"key": pa.int64(), "start_us": pa.int64(), "bids": pa.int64()})


@dataclass(frozen=True)
class Task:
    """Count the bids per `key` in windows of `size` seconds that start every `slide` seconds."""

    key: str
    size: int
    slide: int
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
    """Hand over the final rows; `table` has the columns of `RESULT`, in any integer or timestamp[us] type."""
    columns = [table[field.name].cast(field.type) for field in RESULT]
    pq.write_table(pa.table(columns, schema=RESULT), Path(out))
