"""Arrays that are expanded and Python functions over batches between two operators: on the executors, with the results
of the driver.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import millstream as ms
from millstream.engine.exchange import parcels, routes
from millstream.engine.tasks import collected
from millstream.engine.tasks.batches_task import OTHERS, BatchesTask
from millstream.engine.tasks.route_task import KEEP
from millstream.errors import UserCodeFailed
from millstream.model.reserved import OP
from millstream.model.types.schema import Schema
from millstream.plan.parts import Batches, Explode
from millstream.testing.script import Crash
from tests.accounting import assert_balanced
from tests.duck import connected
from tests.sql.engine import QueryScript

BASE = 1_767_225_600
SCHEMA = "k BIGINT, v BIGINT, ts TIMESTAMP"
PLACED = [("inline", 1), ("spread", 1), ("spread", 3), ("spread", 7)]

PER_KEY = "(SELECT k, count(*) AS n, sum(v) AS s FROM a GROUP BY k)"
ELEMENTS = f"(SELECT k, n, unnest([n, s, n]) AS e FROM {PER_KEY} WHERE n > 1)"
EXPECTED = {
    "expanded": f"SELECT e, count(*) AS c, sum(k) AS t FROM {ELEMENTS} GROUP BY e",
    "kept": f"SELECT e, count(*) AS c FROM (SELECT k, unnest(CASE WHEN n > 2 THEN [n, NULL] ELSE [NULL] END) AS e "
    f"FROM {PER_KEY}) GROUP BY e",
    "mapped": "SELECT twice, count(*) AS c, sum(n) AS t FROM (SELECT n, s * 2 AS twice "
    f"FROM {PER_KEY} WHERE n % 3 > 0) GROUP BY twice",
    "both": "SELECT h, sum(k) AS t FROM (SELECT k, unnest([e * 10, e * 10 + 10]) AS h "
    f"FROM (SELECT k, unnest([n, n + 1]) AS e FROM {PER_KEY}) WHERE e > 1) GROUP BY h",
    "shown": f"SELECT k, e FROM {ELEMENTS}",
    "returned": f"SELECT s * 2 AS twice, n FROM {PER_KEY} WHERE n % 3 > 0",
}


def doubled(table: pa.Table) -> pa.Table:
    """Without every third row, by its content."""
    rows = pl.DataFrame(table)
    return rows.filter(pl.col("n") % 3 > 0).select(twice=pl.col("s") * 2, n="n").to_arrow()


def tenfold(rows: pl.DataFrame) -> pl.DataFrame:
    """Two rows for each."""
    each = rows.select("k", e=pl.concat_list("e", pl.col("e") + 1)).explode("e")
    return each.select("k", h=pl.col("e") * 10)


def source(flow: ms.Flow) -> ms.Stream:
    return flow.source("a", ms.memory(), schema=SCHEMA, event_time="ts", lateness="1 hour")


def flow_of(*names: str) -> ms.Flow:
    flow = ms.Flow("edges")
    per = source(flow).key_by("k").aggregate(n=ms.count(), s=ms.sum("v"))
    elements = per.where("n > 1").flat_map(e="array(n, s, n)")
    both = per.flat_map(e="array(n, n + 1)").where("e > 1")
    mapped = per.map_batches(doubled, schema="twice BIGINT, n BIGINT")
    tens = both.map_batches(tenfold, schema="k BIGINT, h BIGINT", takes="polars")
    kept = per.flat_map(e="if(n > 2, array(n, NULL), array())", keep_empty=True)
    views = {
        "expanded": elements.key_by("e").aggregate(c=ms.count(), t=ms.sum("k")),
        "kept": kept.key_by("e").aggregate(c=ms.count()),
        "mapped": mapped.key_by("twice").aggregate(c=ms.count(), t=ms.sum("n")),
        "both": tens.key_by("h").aggregate(t=ms.sum("k")),
        "shown": elements.select("k", "e"),
        "returned": mapped,
    }
    for name in names:
        views[name].view(name)
    return flow


def epochs() -> list[list[dict[str, Any]]]:
    chance = random.Random(5)
    return [
        [
            {"k": chance.randrange(9), "v": chance.randrange(-4, 9), "ts": BASE + chance.randrange(60)}
            for _ in range(count)
        ]
        for count in (20, 1, 30, 0, 12)
    ]


def expected(name: str, sent: list[dict[str, Any]]) -> Counter[Any]:
    table = pa.table({n: pa.array([r[n] for r in sent], pa.int64()) for n in ("k", "v")})
    with connected() as batch:
        batch.register("a", table)
        rows = batch.execute(EXPECTED[name]).fetchall()
    return Counter(tuple(None if v is None else int(v) for v in r) for r in rows)


def found(script: QueryScript, name: str) -> Counter[Any]:
    return Counter(tuple(r.values()) for r in script.rows(name))


def run(script: QueryScript) -> list[dict[str, Any]]:
    """Send all epochs, and compare every view after each with a batch. One epoch crashes and is run again."""
    sent: list[dict[str, Any]] = []
    for number, rows in enumerate(epochs()):
        sent += rows
        script.send("a", *rows)
        if number == 2:
            script.crash(at="before commit")
            with pytest.raises(Crash):
                script.tick()
            script.resume()
        script.tick()
        for name in EXPECTED:
            assert found(script, name) == expected(name, sent), (name, number)
    return sent


@pytest.mark.parametrize(("placement", "shards"), PLACED)
def test_rows_equal_a_batch_in_every_placement(tmp_path: Path, placement: str, shards: int) -> None:
    with QueryScript(flow_of(*EXPECTED), tmp_path, placement=placement, shards=shards) as script:
        graph = script._loop.engine.graph  # type: ignore[union-attr]
        assert not graph.reasons, "no operator stays in the driver"
        kinds = {type(op) for level in range(graph.levels) for e in graph.computed(level) for op in e.ops}
        assert {Explode, Batches} <= kinds
        run(script)
        assert_balanced(script.home)
        placed = set().union(*(r.output.loads for r in script.reports))
        assert placed >= set(EXPECTED) if placement == "spread" else not placed


def test_changes_do_not_depend_on_how_they_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "FILE_BYTES", 0)
    monkeypatch.setattr(parcels, "PARCEL_BYTES", 64)
    monkeypatch.setattr(parcels, "RECORD_ROWS", 1)
    monkeypatch.setattr(collected, "SEND_BYTES", 0)
    with QueryScript(flow_of(*EXPECTED), tmp_path, shards=3) as script:
        run(script)


@pytest.mark.parametrize(("placement", "shards"), PLACED)
def test_a_row_that_a_function_fails_on_is_set_apart(tmp_path: Path, placement: str, shards: int) -> None:
    def picky(table: pa.Table) -> pa.Table:
        if 3 in table["n"].to_pylist():
            raise ValueError("three")
        return table.select(["n"])

    flow = ms.Flow("edges")
    per = source(flow).key_by("k").aggregate(n=ms.count())
    per.map_batches(picky, schema="n BIGINT").key_by("n").aggregate(c=ms.count()).view("counts")
    with QueryScript(flow, tmp_path, placement=placement, shards=shards) as script:
        script.send("a", *({"k": k, "v": 1, "ts": BASE} for k in (1, 2, 2, 3, 3, 3))).tick()
        script.expect_rows("counts", {"n": 1, "c": 1}, {"n": 2, "c": 1})
        (error,) = script.rows("counts$errors")
        assert "three" in error["reason"]
        script.send("a", {"k": 3, "v": 1, "ts": BASE}).tick()
        script.expect_rows("counts", {"n": 1, "c": 1}, {"n": 2, "c": 1}, {"n": 4, "c": 1})
        assert script.rows("counts$errors") == [], "the row that failed is gone"


def test_a_process_after_a_function_runs_in_the_driver_because_rows_have_no_order(tmp_path: Path) -> None:
    class Seen(ms.Process):
        def on_row(self, row: Any, state: Any, ctx: Any) -> Any:
            return (row.n,)

        def on_retract(self, row: Any, state: Any, ctx: Any) -> Any:
            return (-row.n,)

    flow = ms.Flow("edges")
    per = source(flow).key_by("k").aggregate(n=ms.count())
    per.map_batches(lambda t: t.select(["n"]), schema="n BIGINT").key_by("n").process(
        Seen(), schema="seen BIGINT"
    ).view("seen")
    with QueryScript(flow, tmp_path, shards=3) as script:
        (reason,) = script._loop.engine.graph.reasons.values()  # type: ignore[union-attr]
        assert "order" in reason


# ---------------------------------------------------------------- the task of a function


def record_batch(values: list[int | None], ops: list[str | None], keep: list[bool]) -> pa.RecordBatch:
    others = pa.array([{"kind": "record" if op else "rows", "view": i} for i, op in enumerate(ops)])
    return pa.RecordBatch.from_arrays(
        [others, pa.array(keep), pa.array(ops), pa.array(values, pa.int64()), pa.array(values, pa.int64())],
        names=[OTHERS, KEEP, OP, "n", "$id0"],
    )


def test_parcels_pass_a_function_and_dropped_records_do_not() -> None:
    given: list[pa.Table] = []

    def noted(table: pa.Table) -> pa.Table:
        given.append(table)
        return table

    task = BatchesTask(Batches(noted, "arrow", Schema.parse("n BIGINT"), ""), ("n", "$id0"))
    batch = record_batch([None, 1, 2, 3], [None, "+U", "-U", "+I"], [False, True, True, False])
    done = pa.Table.from_batches(list(task.run(iter([batch])))).to_pylist()
    assert [(r[OTHERS]["kind"], r[KEEP], r[OP], r["n"]) for r in done] == [
        ("rows", False, None, None),
        ("record", True, "-D", 2),
        ("record", True, "+I", 1),
    ]
    assert [t.to_pydict() for t in given] == [{"n": [2]}, {"n": [1]}], "removed and added rows are in separate calls"


def test_a_function_with_other_columns_than_it_declares_is_told() -> None:
    task = BatchesTask(Batches(lambda t: t.select([]), "arrow", Schema.parse("n BIGINT"), ""), ("n", "$id0"))
    with pytest.raises(UserCodeFailed, match="did not give the column `n`"):
        list(task.run(iter([record_batch([1], ["+I"], [True])])))
