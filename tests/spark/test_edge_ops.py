"""What lies between operators inside the job of a large epoch on Spark: expanded arrays, Python functions over batches,
calls of Python functions in expressions, join conditions, lookups.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import millstream as ms
from millstream.testing import Script
from millstream.testing.script import Crash
from tests.accounting import assert_balanced
from tests.unit.engine.test_edge_ops import BASE, EXPECTED, epochs, expected, flow_of, found, source

pytestmark = pytest.mark.spark


def assert_placed(script: Script, *views: str) -> None:
    """The operators of these views ran on the executors in every epoch that read rows."""
    outputs = [r.output for r in script.reports]
    loads = [set(o.loads) for o in outputs if any(t.rows for t in o.tallies.values())]
    assert loads
    assert all(set(views) <= each for each in loads)


def test_rows_equal_a_batch_on_the_executors(spark: object, tmp_path: Path) -> None:
    sent = []
    with Script(flow_of(*EXPECTED), tmp_path, placement="spread", shards=3) as script:
        for rows in epochs()[:3]:
            sent += rows
            script.send("a", *rows).tick()
            for name in EXPECTED:
                assert found(script, name) == expected(name, sent), name
        assert_placed(script, *EXPECTED)
        assert_balanced(script.home)


def test_a_row_that_a_function_fails_on_is_set_apart(spark: object, tmp_path: Path) -> None:
    def picky(table: pa.Table) -> pa.Table:
        if 3 in table["n"].to_pylist():
            raise ValueError("three")
        return table.select(["n"])

    flow = ms.Flow("edges")
    per = source(flow).key_by("k").aggregate(n=ms.count())
    per.map_batches(picky, schema="n BIGINT").key_by("n").aggregate(c=ms.count()).view("counts")
    with Script(flow, tmp_path, placement="spread", shards=2) as script:
        script.send("a", *({"k": k, "v": 1, "ts": BASE} for k in (1, 2, 2, 3, 3, 3))).tick()
        script.expect_rows("counts", {"n": 1, "c": 1}, {"n": 2, "c": 1})
        (error,) = script.rows("counts$errors")
        assert "three" in error["reason"]


def test_a_table_function_is_called_for_rows_only(spark: object, tmp_path: Path) -> None:
    def steps(n: int) -> list[tuple[int]]:
        return [(i * 2,) for i in range(n)]  # fails on None, which parcels would give it

    flow = ms.Flow("edges")
    per = source(flow).key_by("k").aggregate(n=ms.count())
    per.flat_map_rows(steps, on="n", schema="e BIGINT").key_by("e").aggregate(c=ms.count()).view("counts")
    with Script(flow, tmp_path, placement="spread", shards=2) as script:
        script.send("a", *({"k": k, "v": 1, "ts": BASE} for k in (1, 2, 2, 3, 3, 3))).tick()
        assert_placed(script, "counts")
        script.expect_rows("counts", {"e": 0, "c": 3}, {"e": 2, "c": 2}, {"e": 4, "c": 1})


@pytest.mark.parametrize("how", ["inner", "left", "full", "semi", "anti"])
def test_pairs_of_a_join_are_tested_between_two_levels(spark: object, tmp_path: Path, how: str) -> None:
    sides = {n: [{"k": i % 4, "v": (i * 7) % 11 - 5, "ts": BASE} for i in range(m)] for n, m in (("a", 9), ("b", 12))}
    found = {}
    for placement in ("inline", "spread"):
        flow = ms.Flow("pairs")
        left, right = (
            flow.source(n, ms.memory(), schema="k BIGINT, v BIGINT, ts TIMESTAMP", event_time="ts") for n in "ab"
        )
        left.join(right.select("k", w="v"), on="k", where="abs(v) < w + 1", how=how).view("joined")
        with Script(flow, tmp_path / placement, placement=placement, shards=3) as script:
            for start, end in ((0, 5), (5, 12)):
                for name, rows in sides.items():
                    script.send(name, *rows[start:end])
                script.tick()
            if placement == "spread":
                assert_placed(script, "joined")
            found[placement] = sorted(map(repr, script.rows("joined")))
    assert found["spread"] == found["inline"]
    assert found["inline"]


def test_a_lookup_is_called_by_tasks_and_a_rerun_asks_nothing_again(spark: object, tmp_path: Path) -> None:
    log = tmp_path / "log"

    def names(users: list[int]) -> list[object]:
        with log.open("a") as file:
            file.writelines(f"{os.getpid()} {u}\n" for u in users)
        number = len(log.read_text().splitlines())
        return [(f"user {u}", number) for u in users]

    flow = ms.Flow("site")
    hits = flow.source("hits", ms.memory(), schema="user BIGINT, ts TIMESTAMP", event_time="ts", lateness="1 hour")
    named = hits.ask(names, on="user", schema="name STRING, number BIGINT", batch=2)
    named.select("user", "name", "number").view("named")
    named.key_by("name").aggregate(n=ms.count()).view("counts")
    with Script(flow, tmp_path / "home", placement="spread", shards=3) as script:
        script.send("hits", *({"user": u % 7, "ts": BASE} for u in range(10)))
        script.crash(at="before commit")
        with pytest.raises(Crash):
            script.tick()
        calls = log.read_text().splitlines()
        assert sorted(int(c.split()[1]) for c in calls) == list(range(7))
        assert str(os.getpid()) not in {c.split()[0] for c in calls}, "the driver has called nothing"
        script.resume(shards=2)
        script.tick()
        assert_placed(script, "named", "counts")
        assert log.read_text().splitlines() == calls
        script.expect_rows("counts", *({"name": f"user {u}", "n": 2 if u < 3 else 1} for u in range(7)))
