"""Expanded arrays and Python functions over batches between operators, inside the job of a large epoch on Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import millstream as ms
from millstream.testing import Script
from tests.accounting import assert_balanced
from tests.unit.engine.test_edge_ops import BASE, EXPECTED, epochs, expected, flow_of, found, source

pytestmark = pytest.mark.spark


def test_rows_equal_a_batch_on_the_executors(spark: object, tmp_path: Path) -> None:
    sent = []
    with Script(flow_of(*EXPECTED), tmp_path, placement="spread", shards=3) as script:
        for rows in epochs()[:3]:
            sent += rows
            script.send("a", *rows).tick()
            assert set(script.reports[-1].output.loads) >= set(EXPECTED), "all operators ran on the executors"
            for name in EXPECTED:
                assert found(script, name) == expected(name, sent), name
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
