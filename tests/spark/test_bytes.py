"""Any bytes in any format: a bad line is an error with its file and line, and everything else is read."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from tests.accounting import assert_balanced
from tests.spark.bytes_kit import SCHEMA, folder

pytestmark = pytest.mark.spark


def run(path: Path, form: str, home: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All rows and all errors of a folder."""
    flow = ms.Flow("bytes")
    rows = flow.source(
        "rows", ms.files(str(path), format=form), schema=SCHEMA, event_time="ts", lateness="3000000 days"
    )
    rows.view("all_rows")
    with ms.open(home) as opened, opened.start(flow, placement="inline") as running:
        running.catch_up(timeout=400)
        good = opened.query("SELECT a, s FROM all_rows").to_dicts()
        bad = opened.query(
            "SELECT reason, raw, partition, offset FROM rows$errors ORDER BY partition, offset"
        ).to_dicts()
        assert_balanced(opened)
    return good, bad


def check(tmp_path: Path, form: str, seed: int, fuzzed: int) -> None:
    expected = folder(random.Random(seed), form, tmp_path / "in", fuzzed)
    good, bad = run(tmp_path / "in", form, tmp_path / "home")
    assert {(e["partition"], e["offset"]) for e in bad} == expected.bad, f"seed {seed}"
    assert len(bad) == len(expected.bad)
    assert all(e["raw"] is not None for e in bad)
    assert Counter((r["a"], r["s"]) for r in good) == Counter(expected.good), f"seed {seed}"
    assert len(good) + len(bad) == expected.lines


@pytest.mark.parametrize("form", ["json", "csv"])
def test_any_bytes_end_as_a_record_or_as_an_error_with_file_and_line(spark: object, tmp_path: Path, form: str) -> None:
    check(tmp_path, form, 1, 300)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "csv"])
@pytest.mark.parametrize("seed", range(2, 5))
def test_any_bytes_at_full_size(spark: object, tmp_path: Path, form: str, seed: int) -> None:
    check(tmp_path, form, seed, 100_000)


@pytest.mark.slow
def test_large_files_are_read_line_by_line_on_the_executors(
    spark: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.engine.input.readers.files.LOCAL_BYTES", 0)
    check(tmp_path, "json", 5, 2_000)


def test_a_parquet_file_that_cannot_be_read_is_one_error_with_its_name(spark: object, tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.mkdir()
    times = pa.array([1_767_225_600_000_000] * 1000, pa.int64()).cast(pa.timestamp("us", "UTC"))
    names = [f"name {i % 7} {'x' * 50}" for i in range(1000)]
    whole = pa.table({"a": pa.array(range(1000), pa.int64()), "s": names, "ts": times})
    pq.write_table(whole, path / "good[1].parquet")
    data = (path / "good[1].parquet").read_bytes()
    (path / "cut.parquet").write_bytes(data[: len(data) // 2])
    flipped = bytearray(data)
    flipped[100:400] = b"\xff" * 300
    (path / "flipped.parquet").write_bytes(flipped)
    (path / "foreign.parquet").write_bytes(b"this is no Parquet")
    (path / "none.parquet").write_bytes(b"")
    pq.write_table(whole.set_column(0, "a", pa.array(["x"] * 1000)), path / "types.parquet")
    early = pa.array([-(2**62)], pa.int64()).cast(pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"a": pa.array([7], pa.int64()), "s": ["early"], "ts": early}), path / "early.parquet")
    good, bad = run(path, "parquet", tmp_path / "home")
    assert sorted(r["a"] for r in good) == list(range(1000))
    assert [(Path(e["partition"]).name, e["offset"], e["reason"]) for e in bad] == [
        ("cut.parquet", 0, "the file cannot be read"),
        ("early.parquet", 0, "event time outside of the years 1 to 9999"),
        ("flipped.parquet", 0, "the file cannot be read"),
        ("foreign.parquet", 0, "the file cannot be read"),
        ("none.parquet", 0, "the file cannot be read"),
        ("types.parquet", 0, "the file cannot be read"),
    ]
    assert "its column `a` is string, but the source declares int64" in bad[-1]["raw"]
