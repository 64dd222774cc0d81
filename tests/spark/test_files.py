"""Folders of files: every format, bad records, one scan for many views, a run that is stopped and started again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import millstream as ms
from millstream.errors import SchemaError, SourceMissing

pytestmark = pytest.mark.spark

SCHEMA = "auction BIGINT, name STRING, ts TIMESTAMP"


def records(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"auction": i % 3, "name": f"n{i}", "ts": f"2026-01-01T00:00:{i % 60:02d}Z"}
        for i in range(first, first + count)
    ]


def write(folder: Path, name: str, form: str, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    temp = folder / f".{name}"
    if form == "json":
        temp.write_text("".join(json.dumps(r) + "\n" for r in rows))
    elif form == "csv":
        lines = [",".join(map(str, r.values())) + "\n" for r in rows]
        temp.write_text("auction,name,ts\n" + "".join(lines))
    else:
        table = pa.Table.from_pylist(rows)
        times = pa.compute.cast(table["ts"], pa.timestamp("us", tz="UTC"))
        pq.write_table(table.set_column(2, "ts", times), temp)
    temp.rename(folder / name)


def counting(folder: Path, form: str, **options: Any) -> ms.Flow:
    flow = ms.Flow("counting")
    files = ms.files(str(folder), format=form)
    rows = flow.source("rows", files, schema=SCHEMA, event_time="ts", lateness="1 hour", **options)
    rows.key_by("auction").aggregate(n=ms.count(), last=ms.last("name")).view("counts")
    return flow


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_existing_files_then_new_ones_each_read_once(spark: object, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "in"
    write(folder, "a", form, records(0, 30))
    for start in (30, 60):
        with ms.open(tmp_path / "home") as home, home.start(counting(folder, form)) as run:
            run.catch_up(timeout=120)
            write(folder, f"b{start}", form, records(start, 30))
            run.catch_up(timeout=120)
            counts = home.query("SELECT auction, n, last FROM counts ORDER BY auction").to_dicts()
            total = (start + 30) // 3
            latest = 57 if start == 60 else start + 27  # times wrap after a minute, so the last ones stay the last
            assert counts == [{"auction": a, "n": total, "last": f"n{latest + a}"} for a in range(3)]


def test_bad_records_are_set_apart_with_reason_text_and_place(spark: object, tmp_path: Path) -> None:
    folder = tmp_path / "in + % ü"
    folder.mkdir()
    (folder / "a.json").write_text(
        '{"auction": 1, "name": "good", "ts": "2026-01-01T00:00:00Z"}\n'
        "not json at all\n"
        '{"auction": "many", "name": "typed", "ts": "2026-01-01T00:00:00Z"}\n'
        '{"auction": 2, "name": "timeless"}\n'
        '{"auction": 3, "name": "prophet", "ts": "2999-01-01T00:00:00Z"}\n'
        '{"auction": 1, "name": "good too", "ts": "2026-01-01T00:00:01Z", "unknown": true}\n'
    )
    (folder / "empty.json").write_text("")
    with ms.open(tmp_path / "home") as home, home.start(counting(folder, "json")) as run:
        run.catch_up(timeout=120)
        assert home.query("SELECT auction, n, last FROM counts").to_dicts() == [
            {"auction": 1, "n": 2, "last": "good too"}
        ]
        errors = home.query("SELECT reason, raw, partition, offset FROM rows$errors ORDER BY offset").to_dicts()
        (view,) = home.views()
    assert [(e["reason"], e["offset"]) for e in errors] == [
        ("unparsable", 1),
        ("wrong type in a field", 2),
        ("no event time", 3),
        ("event time too far in the future", 4),
    ]
    assert errors[0]["raw"] == "not json at all"
    assert json.loads(errors[1]["raw"])["auction"] == "many"
    assert errors[0]["partition"] == str(folder / "a.json")
    assert view["errors"] == 4
    assert view["watermark"].isoformat() == "2025-12-31T23:00:01+00:00"


@pytest.mark.parametrize("placement", ["combined", "gathered", "spread"])
def test_bad_records_are_the_same_in_every_placement(spark: object, tmp_path: Path, placement: str) -> None:
    folder = tmp_path / "in"
    write(folder, "a.json", "json", records(0, 10))
    with (folder / "a.json").open("a") as file:
        file.write('oops\n{"auction": 2}\n{"auction": 3, "ts": "2999-01-01T00:00:00Z"}\n')
    flow = ms.Flow("counting")
    rows = flow.source("rows", ms.files(str(folder), format="json"), schema=SCHEMA, event_time="ts")
    rows.where("auction <> 1").key_by("auction").aggregate(n=ms.count()).view("counts")
    with ms.open(tmp_path / "home") as home, home.start(flow, placement=placement) as run:
        run.catch_up(timeout=120)
        counts = home.query("SELECT * FROM counts ORDER BY auction").to_dicts()
        assert counts == [{"auction": 0, "n": 4}, {"auction": 2, "n": 3}]
        reasons = home.query("SELECT reason, offset FROM rows$errors ORDER BY offset").to_dicts()
        (flow_row,) = home.flows()
    assert [r["offset"] for r in reasons] == [10, 11, 12]
    assert flow_row["rows"] == 13
    assert flow_row["errors"] == 3


def test_ten_views_scan_the_source_once(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder, "a.json", "json", records(0, 30))
    flow = ms.Flow("ten")
    rows = flow.source("rows", ms.files(str(folder), format="json"), schema=SCHEMA, event_time="ts", lateness="1 hour")
    for i in range(10):
        rows.where(f"auction <> {i}").key_by("auction").aggregate(n=ms.count()).view(f"v{i}")
    tracker = spark.sparkContext.statusTracker()
    with ms.open(tmp_path / "home") as home:
        from millstream.plan.planner import plan

        loop = home.loop(plan(flow), placement="inline")
        spark.sparkContext.setJobGroup("ten", "ten views")
        report = loop.step()
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        loop.close()
    assert report is not None
    assert len(report.changes) == 10
    assert len(tracker.getJobIdsForGroup("ten")) == 1


@pytest.mark.parametrize(
    ("name", "content", "form", "words"),
    [
        ("a.parquet", b"PAR1 but not really", "parquet", "it is not a Parquet file"),
        ("a.csv", b"wrong,header\n1,2\n", "csv", "its header does not name the columns"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_error_and_the_flow_continues(
    spark: object, tmp_path: Path, name: str, content: bytes, form: str, words: str
) -> None:
    folder = tmp_path / "in"
    write(folder, "good", form, records(0, 30))
    (folder / name).write_bytes(content)
    with ms.open(tmp_path / "home") as home, home.start(counting(folder, form)) as run:
        run.catch_up(timeout=120)
        assert home.query("SELECT sum(n) AS n FROM counts").to_dicts() == [{"n": 30}]
        (error,) = home.query("SELECT reason, raw, partition, offset FROM rows$errors").to_dicts()
    assert error["raw"].startswith(words)
    assert {**error, "raw": ""} == {
        "reason": "the file cannot be read", "raw": "", "partition": str(folder / name), "offset": 0
    }  # fmt: skip


def test_a_missing_folder_is_named(spark: object, tmp_path: Path) -> None:
    with ms.open(tmp_path / "home") as home, home.start(counting(tmp_path / "nowhere", "json")) as run:
        with pytest.raises(SourceMissing, match="there is no folder"):
            run.catch_up(timeout=60)
        assert run.state == "failed"


def test_a_type_that_only_spark_knows_is_refused_before_the_first_epoch(spark: object, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder, "a.json", "json", records(0, 3))
    flow = ms.Flow("wrong")
    rows = flow.source("rows", ms.files(str(folder), format="json"), schema=SCHEMA, event_time="ts")
    rows.key_by("auction").aggregate(n=ms.sum("map_keys(str_to_map(name))[0]")).view("v")
    with ms.open(tmp_path / "home") as home, home.start(flow) as run:
        with pytest.raises(SchemaError, match="needs numbers, but its argument is STRING"):
            run.catch_up(timeout=60)
