"""Intervals and times without a zone through Spark: sources, expressions, combined partials, a restart, the store."""

# ruff: noqa: DTZ001 - times without a zone are what is tested
from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

import millstream as ms
from millstream.connect.file_parts import encoded
from millstream.errors import Unsupported
from millstream.testing import Script

pytestmark = pytest.mark.spark

SCHEMA = "k STRING, d INTERVAL DAY TO SECOND, n TIMESTAMP_NTZ, a TIMESTAMP, b TIMESTAMP, l ARRAY<TIMESTAMP_NTZ>"
HOUR, MICRO = timedelta(hours=1), timedelta(microseconds=1)
START = datetime(2026, 1, 1)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "k": "ab"[i % 2],
            "d": None if i == 3 else "-1 00:00:00" if i == 4 else i * HOUR + MICRO,
            "n": START + i * HOUR,
            "a": START.replace(tzinfo=UTC) + i * HOUR / 60,
            "b": START.replace(tzinfo=UTC) + i * HOUR,
            "l": [START, None],
        }
        for i in range(first, first + count)
    ]


@pytest.mark.parametrize("placement", ["inline", "combined", "spread"])
def test_a_view_of_intervals_in_every_placement(spark: Any, tmp_path: Path, placement: str) -> None:
    flow = ms.Flow("f")
    source = flow.source("s", ms.memory(), schema=SCHEMA, event_time="n", lateness="4 seconds", future_bound="1 day")
    source.select("k", "l", took="b - a", twice="d * 2", half="d / 2", later="n + d", day="date_trunc('day', n)").view(
        "e"
    )
    measures = {"s": ms.sum("b - a"), "m": ms.avg("d"), "lo": ms.min("d"), "hi": ms.max("n"), "c": ms.count("d")}
    source.key_by("k").aggregate(**measures).where("s > INTERVAL '1' HOUR").select("k", "s", "m", "lo", "hi").view("t")
    with Script(flow, tmp_path, placement=placement) as script:
        script.send("s", *rows(0, 4))
        script.tick()
        script.crash()
        script.resume(placement=placement)
        script.send("s", *rows(4, 3))
        script.tick()
        found = {r["k"]: r for r in script.rows("t")}
        minutes = HOUR / 60
        assert found["a"] == {
            "k": "a",
            "s": 12 * HOUR - 12 * minutes,
            "m": timedelta(microseconds=round((-16 * HOUR + 3 * MICRO) / MICRO / 4)),
            "lo": -24 * HOUR,
            "hi": START + 6 * HOUR,
        }
        assert found["b"]["s"] == 9 * HOUR - 9 * minutes
        (one,) = [r for r in script.rows("e") if r["took"] == HOUR - minutes]
        assert one == {
            "k": "b",
            "l": [START, None],
            "took": HOUR - minutes,
            "twice": 2 * (HOUR + MICRO),
            "half": HOUR / 2 + MICRO,
            "later": START + 2 * HOUR + MICRO,
            "day": START.replace(tzinfo=UTC),
        }


def test_sources_of_files_read_what_sinks_write_and_months_are_refused(spark: Any, tmp_path: Path) -> None:
    lines = [
        {"d": "INTERVAL '1 02:00:00' DAY TO SECOND", "n": "2026-01-01T08:00:00"},
        {"d": "0 00:00:01", "n": "2026-01-01 08:00:00.5"},
        {"d": "an hour", "n": "2026-01-01T08:00:00"},
        {"d": "0 00:00:01", "n": "2026-01-01T08:00:00Z"},
    ]
    table = pa.table({"d": pa.array([26 * HOUR, timedelta(seconds=1)], pa.duration("us")),
                      "n": pa.array([START, START + HOUR], pa.timestamp("us"))})  # fmt: skip
    contents = {"json": b"".join(orjson.dumps(r, option=orjson.OPT_APPEND_NEWLINE) for r in lines)}
    contents |= {form: encoded(table, form) for form in ("csv", "parquet")}
    flow = ms.Flow("f")
    for form, content in contents.items():
        (tmp_path / form).mkdir()
        (tmp_path / form / "1").write_bytes(content)
        source = flow.source(
            form, ms.files(str(tmp_path / form), format=form), schema="d INTERVAL DAY TO SECOND, n TIMESTAMP_NTZ"
        )
        source.view(f"of_{form}")
    with ms.open(tmp_path / "home") as home:
        with home.start(flow) as run:
            run.catch_up(timeout=200)
            expected = [timedelta(seconds=1), 26 * HOUR]
            for form in contents:
                assert [r["d"] for r in home.query(f"SELECT d FROM of_{form} ORDER BY d").to_dicts()] == expected
                assert all(r["n"].tzinfo is None for r in home.query(f"SELECT n FROM of_{form}").to_dicts())
            assert len(home.query("SELECT * FROM json$errors").to_dicts()) == 2
        other = ms.Flow("months")
        source = other.source("s", ms.memory(), schema="x INT")
        source.select(m="make_ym_interval(x, 1)").view("w")
        with home.start(other) as run, pytest.raises(Unsupported, match="interval of years or months") as caught:
            run.catch_up(timeout=200)
        assert "add_months" in (caught.value.hint or "")
