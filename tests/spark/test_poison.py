"""Records that break their epoch are found, put into the error table, and the flow goes on; in every placement."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import UserCodeFailed
from millstream.runtime.epoch.loop import EpochReport
from millstream.runtime.epoch.records import RecordBook

pytestmark = pytest.mark.spark

SCHEMA = "n BIGINT, ts TIMESTAMP"
TIMEOUT = 240
QUICK = ms.Restarts(first="1 ms", most="1 ms")


def row(n: int) -> dict[str, Any]:
    return {"n": n, "ts": f"2026-01-01T00:00:{n % 60:02d}Z"}


def made(start: int, end: int) -> pa.Table:
    numbers = np.arange(start, end)
    return pa.table({"n": numbers, "ts": pa.array(1767225600_000_000 + numbers * 1000, pa.timestamp("us", "UTC"))})


def adding_up(source: Any) -> ms.Flow:
    def fragile(table: pa.Table) -> pa.Table:  # (defined here, it travels to the workers as it is)
        for n in table["n"].to_pylist():
            if n is not None and n % 100 == 13:
                raise ValueError(f"unlucky {n}")
        return table

    flow = ms.Flow("adding_up")
    rows = flow.source("rows", source, schema=SCHEMA, event_time="ts", lateness="1 hour")
    rows.map_batches(fragile, schema=SCHEMA).aggregate(n=ms.count(), s=ms.sum("n")).view("total")
    rows.key_by(last="n % 3").aggregate(n=ms.count()).view("thirds")
    return flow


def account(home: ms.Home, rows: int, poison: list[int]) -> list[dict[str, Any]]:
    """All rows are either in the views or in the error table, and the counts say so."""
    good = [n for n in range(rows) if n not in poison]
    assert home.query("SELECT n, s FROM total").to_dicts() == [{"n": len(good), "s": sum(good)}]
    assert home.query("SELECT sum(n) AS n FROM thirds").to_dicts() == [{"n": len(good)}]
    (flow,) = home.flows()
    assert (flow["rows"], flow["errors"]) == (rows, len(poison))
    errors: list[dict[str, Any]] = home.query("SELECT reason, raw, partition, offset FROM rows$errors").to_dicts()
    errors.sort(key=lambda e: json.loads(e["raw"])["n"])
    assert [json.loads(e["raw"])["n"] for e in errors] == poison
    assert all(
        e["reason"].startswith("poisonous: ")
        and "fragile failed on a batch of 1 rows" in e["reason"]
        and "ValueError: unlucky" in e["reason"]
        for e in errors
    )
    return errors


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "placement",
    [
        pytest.param("inline", marks=SLOW),
        pytest.param("combined", marks=SLOW),
        pytest.param("gathered", marks=SLOW),
        pytest.param("spread", marks=SLOW),
    ],
)
def test_poison_in_memory_is_set_apart_in_every_placement(spark: object, tmp_path: Path, placement: str) -> None:
    memory = ms.memory(partitions=2)
    for n in range(20):
        memory.send(row(n), partition=n % 2)
    seen: list[EpochReport] = []
    with ms.open(tmp_path) as home:
        with home.start(adding_up(memory), placement=placement, restarts=QUICK, on_epoch=seen.append) as run:
            run.catch_up(timeout=TIMEOUT)
            errors = account(home, 20, [13])
            assert [(e["partition"], e["offset"]) for e in errors] == [("1", 6)]
            assert sum(r.errors for r in seen) == 1
            memory.send(row(20))
            run.catch_up(timeout=TIMEOUT)
            account(home, 21, [13])


@pytest.mark.parametrize(("form", "rows"), [pytest.param("json", 30, marks=SLOW), pytest.param("csv", 120, marks=SLOW)])
def test_poison_in_files_is_told_with_its_file_and_line(spark: object, tmp_path: Path, form: str, rows: int) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, numbers in (("a", range(20)), ("b", range(20, rows))):
        lines = [json.dumps(row(n)) if form == "json" else f"{n},{row(n)['ts']}" for n in numbers]
        (folder / f"{name}.{form}").write_text("\n".join(lines) + "\n")
    source = ms.files(str(folder), format=form, header=False)
    with ms.open(tmp_path / "home") as home:
        with home.start(adding_up(source), restarts=QUICK) as run:
            run.catch_up(timeout=TIMEOUT)
            errors = account(home, rows, [13, 113] if rows > 113 else [13])
        places = [(str(folder / f"a.{form}"), 13), (str(folder / f"b.{form}"), 93)]
        assert [(e["partition"], e["offset"]) for e in errors] == places[: len(errors)]


@SLOW
def test_poison_in_a_generator_is_told_with_its_number(spark: object, tmp_path: Path) -> None:
    with ms.open(tmp_path) as home, home.start(adding_up(ms.generator(made, events=200)), restarts=QUICK) as run:
        run.wait(timeout=TIMEOUT)
        assert [e["offset"] for e in account(home, 200, [13, 113])] == [13, 113]


def test_a_bad_cast_is_poison_too(spark: object, tmp_path: Path) -> None:
    flow, memory = ms.Flow("casting"), ms.memory()
    rows = flow.source("rows", memory, schema="text STRING")
    rows.aggregate(s=ms.sum("CAST(text AS BIGINT)")).view("total")
    memory.send(*({"text": str(n)} for n in range(20)), {"text": "twenty"})
    with ms.open(tmp_path) as home, home.start(flow, restarts=QUICK) as run:
        run.catch_up(timeout=TIMEOUT)
        assert home.query("SELECT s FROM total").to_dicts() == [{"s": 190}]
        (error,) = home.query("SELECT reason, raw, offset FROM rows$errors").to_dicts()
        assert home.query("SELECT raw FROM total$errors").to_dicts() == [{"raw": error["raw"]}]
        assert home.flows()[0]["errors"] == 1
    assert (json.loads(error["raw"]), error["offset"]) == ({"text": "twenty"}, 20)
    assert error["reason"].startswith("poisonous: Spark stopped with CAST_INVALID_INPUT: The value 'twenty' ")
    assert error["reason"].endswith(" in CAST(text AS BIGINT)")


@SLOW
def test_an_epoch_with_poison_that_dies_leaves_out_the_same_records_afterwards(spark: object, tmp_path: Path) -> None:
    memory = ms.memory()
    memory.send(*map(row, range(15)))
    flow = adding_up(memory)
    with ms.open(tmp_path) as home:
        with home.start(flow, restarts=QUICK) as run:
            run.catch_up(timeout=TIMEOUT)
    record = RecordBook(tmp_path / "flows/adding_up/epochs").read(1)
    assert record is not None
    assert [p[:2] for p in record.poison["rows"]] == [(0, 13)]
    again = tmp_path / "again"  # a process that died before the commit has left nothing but the record
    with ms.open(again):
        pass
    RecordBook(again / "flows/adding_up/epochs").open(replace(record, state="open"))
    with ms.open(again) as home, home.start(flow, restarts=None) as run:
        run.catch_up(timeout=TIMEOUT)
        account(home, 15, [13])


@SLOW
def test_a_function_that_fails_on_every_record_is_the_codes_fault(spark: object, tmp_path: Path) -> None:
    def broken(table: pa.Table) -> pa.Table:
        return table.drop_columns(["nothing"])

    flow, memory = ms.Flow("broken"), ms.memory()
    rows = flow.source("rows", memory, schema=SCHEMA, event_time="ts")
    rows.map_batches(broken, schema=SCHEMA).aggregate(n=ms.count()).view("total")
    memory.send(*map(row, range(30)))
    with ms.open(tmp_path) as home:
        run = home.start(flow, restarts=QUICK)
        with pytest.raises(UserCodeFailed) as caught:
            run.wait(timeout=TIMEOUT)
        assert "it is the code, not the data of epoch 1" in str(caught.value)
        assert run.state == "failed"
        assert home.query("SELECT count(*) AS n FROM rows$errors").to_dicts() == [{"n": 0}]


@SLOW
def test_a_flow_may_refuse_to_set_poison_apart(spark: object, tmp_path: Path) -> None:
    memory = ms.memory()
    memory.send(*map(row, range(20)))
    with ms.open(tmp_path) as home:
        run = home.start(adding_up(memory), restarts=QUICK, poison="stop")
        with pytest.raises(UserCodeFailed, match="unlucky 13"):
            run.wait(timeout=TIMEOUT)
        assert run.state == "failed"


@SLOW
def test_poison_in_a_topic_is_told_with_its_partition_and_offset(spark: object, tmp_path: Path) -> None:
    with ms.open(tmp_path) as home:
        home.topic("numbers", schema=SCHEMA).append(made(0, 20))
        with home.start(adding_up(ms.log("numbers")), restarts=QUICK) as run:
            run.catch_up(timeout=TIMEOUT)
            assert [(e["partition"], e["offset"]) for e in account(home, 20, [13])] == [("0", 13)]
