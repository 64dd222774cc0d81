"""Aggregates with an order of their own answer the same however their keys are spread."""

from __future__ import annotations

import random
import tempfile
from typing import Any

import pyarrow as pa

from millstream.plan.plan import PlannedSource, Scan
from tests.local import LocalEngine, LocalScript
from tests.sql.engine import _small
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
