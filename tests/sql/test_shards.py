"""Aggregates with an order of their own, and totals, answer the same however their keys are spread."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.plan.plan import PlannedSource, Scan
from tests.local import LocalEngine, LocalScript
from tests.sql.engine import QueryScript, _small
from tests.sql.test_relations import flow_of, row

QUERY = """
SELECT k, array_agg(s ORDER BY v DESC, s) AS l, string_agg(s, '-' ORDER BY s) AS x, sum(DISTINCT v) AS d,
    avg(DISTINCT v) AS e, first(s) FILTER (WHERE v > 1) AS f, last(s) IGNORE NULLS AS g
FROM a GROUP BY k
"""


class _Engine(LocalEngine):
    def _types(self, source: PlannedSource, scan: Scan) -> dict[str, pa.DataType]:
        return {n: _small(t) for n, t in super()._types(source, scan).items()}


class _Script(LocalScript):
    def _loop_of(self, home: Any) -> Any:
        return home.loop(
            self._plan,
            failpoint=self._failpoint,
            engine=lambda plan, ports, root: _Engine(plan, ports, root, shards=self.shards),
        )


def _rows(shards: int) -> list[str]:
    chance = random.Random(4)
    with tempfile.TemporaryDirectory() as folder, _Script(flow_of({"v": QUERY}), folder, shards=shards) as script:
        for epoch in range(3):
            script.send("a", *(row(chance) for _ in range(9)))
            script.tick()
            if epoch == 1:
                script.crash()
                script.resume(shards=shards)
        return sorted(map(repr, script.rows("v")))


def test_an_order_does_not_depend_on_shards() -> None:
    found = _rows(1)
    assert found == _rows(3)
    assert "'l': ['" in "".join(found)


TOTALS = {
    "changing": "SELECT k, count(*) AS n, max(v) AS m FROM (SELECT k, sum(v) OVER (PARTITION BY s) AS v FROM a) x "
    "GROUP BY GROUPING SETS ((k), ())",
    "append_only": "SELECT k, count(*) AS n, max(v) AS m FROM (SELECT DISTINCT k, v FROM a) x "
    "GROUP BY GROUPING SETS ((k), (), (v))",
}


@pytest.mark.parametrize("view", TOTALS)
def test_a_total_is_in_one_shard_only(tmp_path: Path, view: str) -> None:
    found: dict[int, list[list[str]]] = {}
    for shards in (1, 3, 7):
        chance, placement = random.Random(6), "inline" if shards == 1 else "spread"
        flow = flow_of({"v": TOTALS[view]})
        with QueryScript(flow, tmp_path / str(shards), placement=placement, shards=shards) as script:
            found[shards] = []
            for _ in range(4):
                script.send("a", *(row(chance) for _ in range(5))).tick()
                assert shards == 1 or "v" in script.reports[-1].output.loads
                found[shards].append(sorted(map(repr, script.rows("v"))))
    assert found[3] == found[1]
    assert found[7] == found[1]
