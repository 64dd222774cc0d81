"""A record of which a function would make a huge value is set apart, and Spark's Java process lives on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import millstream as ms

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HUGE = 2_000_000_000
GROWING = {
    "a": "length(repeat(grown, n))",
    "b": "length(lpad(grown, n + 0, 'xy'))",
    "c": "size(array_repeat(1, n))",
    "d": "length(concat(space(n), grown))",
    "e": "size(sequence(0, n, 2))",
    "f": "length(repeat(repeat(grown, n), 2))",
    "g": "size(transform(array(1, 2), x -> repeat(grown, n)))",
    "h": "size(sequence(ts, timestamp_seconds(unix_seconds(ts) + n - 1), INTERVAL '1' SECOND))",
}


def test_a_record_that_would_make_a_huge_value_is_set_apart(tmp_path: Path, spark: Any) -> None:
    flow, memory = ms.Flow("growing"), ms.memory()
    rows = flow.source("rows", memory, schema="n INT, grown STRING, ts TIMESTAMP", event_time="ts", lateness="1 hour")
    rows.flat_map(x="sequence(1, n)").select("x").view("exploded")
    rows.select("n", **GROWING).view("sizes")
    memory.send(*({"n": n, "grown": "ab", "ts": f"2026-01-01T00:00:0{i}Z"} for i, n in enumerate((3, HUGE, 5))))
    with ms.open(tmp_path) as home, home.start(flow, restarts=ms.Restarts(first="1 ms", most="1 ms")) as run:
        run.catch_up(timeout=240)
        assert sorted(r["x"] for r in home.query("SELECT x FROM exploded").to_dicts()) == [1, 1, 2, 2, 3, 3, 4, 5]
        found = {r["n"]: r for r in home.query("SELECT * FROM sizes").to_dicts()}
        assert found[3] == {"n": 3, "a": 6, "b": 3, "c": 3, "d": 5, "e": 2, "f": 12, "g": 2, "h": 3}
        assert set(found) == {3, 5}
        (error,) = home.query("SELECT reason, raw FROM rows$errors").to_dicts()
        assert json.loads(error["raw"])["n"] == HUGE
        assert "would make more than" in error["reason"]
