"""Late records that need Spark to be replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.testing import Script

pytestmark = pytest.mark.spark


def row(second: int) -> dict[str, Any]:
    return {"k": "a", "ts": f"2026-01-01T00:00:{second:02d}Z"}


def test_late_records_of_a_view_with_stored_tables_are_replayed(spark: object, tmp_path: Path) -> None:
    made = ms.Flow("f")
    source = made.source("s", ms.memory(), schema="k STRING, ts TIMESTAMP", event_time="ts")
    named = source.enrich("names", on="k", columns="name STRING")
    named.key_by("name").window(ms.tumbling("10 seconds")).aggregate(n=ms.count()).view("w")
    with ms.open(tmp_path / "one") as home:
        home.put_table("names", pa.table({"k": ["a"], "name": ["Ann"]}))
    with Script(made, tmp_path / "one") as script:
        for second in (1, 48, 2):
            script.send("s", row(second))
            script.tick()
        assert script.replay_late("w") == 1
        assert sorted(r["n"] for r in script.rows("w")) == [1, 2]
