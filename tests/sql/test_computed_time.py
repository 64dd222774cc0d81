"""A WATERMARK for a computed column is what one for the same values in a plain column would be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import DefinitionError, MillstreamError, SchemaError
from millstream.model.flow import Flow
from millstream.plan.explain.plan_tree import explain, text
from millstream.plan.planner import plan
from millstream.sql.catalog import Catalog, schema_of
from millstream.sql.parse.statement_values import CreateSource
from tests.sql.engine import QueryScript, with_topics
from tests.sql.kit import defined, flow_of, view_plan

BASE = 1_767_225_600_000
SOURCES = """CREATE SOURCE computed (
    id BIGINT, seconds BIGINT, more BIGINT, ms AS seconds * 1000 + more, ts AS timestamp_millis(ms),
    WATERMARK FOR ts AS ts - INTERVAL '4' SECOND
) FROM LOG('computed');
CREATE SOURCE plain (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '4' SECOND) FROM LOG('plain');
"""
VIEWS = {
    "closed": "SELECT window_start, count(*) AS n, max(ts) AS last FROM TUMBLE({}, ts, INTERVAL '10' SECOND) "
    "GROUP BY window_start, window_end EMIT ON CLOSE ALLOWED LATENESS INTERVAL '10' SECOND",
    "sessions": "SELECT window_start, window_end, id, count(*) AS n FROM {} "
    "GROUP BY id, SESSION(ts, INTERVAL '5' SECOND)",
    "near": "SELECT a.id, a.ts, b.ts AS other FROM {} a JOIN {} b ON a.id = b.id "
    "AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' SECOND",
    "hops": "SELECT window_end, count(*) AS n FROM HOP({}, ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND) "
    "GROUP BY window_start, window_end",
}
EPOCHS = [
    [(1, 1_000), (2, 2_500), (1, 4_000)],
    [(1, 12_000), (2, 3_000), (3, None)],
    [(1, 31_000), (2, 2_000)],
    [(2, 900), (1, 33_000), (4, None)],
    [(2, 61_000)],
]


def test_windows_joins_and_lateness_go_by_a_computed_time(tmp_path: Path) -> None:
    views = {f"{v}_{s}": sql.replace("{}", s) for v, sql in VIEWS.items() for s in ("computed", "plain")}
    views["all_columns"] = "SELECT * FROM computed"
    catalog = defined(SOURCES + ";\n".join(f"CREATE VIEW {n} AS {sql}" for n, sql in views.items()), Catalog())
    schemas = {e.name: s for e in catalog.of(CreateSource) if (s := schema_of(catalog, e)) is not None}
    assert schemas["computed"].names == ("id", "seconds", "more")
    path = with_topics(tmp_path / "home", schemas)
    with QueryScript(flow_of(catalog, *views), path, shards=2) as script:
        for number, epoch in enumerate(EPOCHS):
            rows = [
                {"id": i, "seconds": None if t is None else (BASE + t) // 1000, "more": (t or 0) % 1000}
                for i, t in epoch
            ]
            script.home.topic("computed").append(rows)
            script.home.topic("plain").append(
                [{"id": i, "ts": None if t is None else (BASE + t) / 1000} for i, t in epoch]
            )
            script.tick()
            for view in VIEWS:
                assert _sorted(script, f"{view}_computed") == _sorted(script, f"{view}_plain"), (number, view)
                late = [len(script.rows(f"{view}_{s}$late")) for s in ("computed", "plain")]
                assert late[0] == late[1]
            if number == 1:
                script.crash()
                script.resume(shards=1)
        assert len(script.rows("closed_computed")) == 3
        assert len(script.rows("closed_computed$late")) == 1
        assert list(script.rows("all_columns")[0]) == ["id", "seconds", "more", "ms", "ts"]
        assert len(script.rows("all_columns")) == 10  # those without a time are errors


def _sorted(script: QueryScript, view: str) -> list[str]:
    return sorted(repr(r) for r in script.rows(view))


def test_python_computes_an_event_time() -> None:
    flow = Flow("shop")
    given: dict[str, Any] = {"schema": "id BIGINT, at STRING", "lateness": "4 seconds"}
    time = {"ts": "to_timestamp(at, 'yyyy-MM-dd HH:mm:ss')"}
    orders = flow.source("orders", ms.memory(), event_time=time, punctuation=None, **given)
    assert orders.schema.names == ("id", "at", "ts")
    orders.window(ms.tumbling("1 hour")).aggregate(n=ms.count()).view("v")
    made = plan(flow)
    assert made.source("orders").schema.names == ("id", "at")
    assert "ts = TO_TIMESTAMP(at, 'yyyy-MM-dd HH:mm:ss'), lateness 4s" in text(explain(made))
    for wrong, said in (
        ({"ts": "id"}, "not a TIMESTAMP"),
        ({"at": "timestamp_millis(id)"}, "the source has a column with this name"),
        ({"ts": "timestamp_millis(idd)"}, "there is no column `idd`"),
        ({}, "one event time"),
    ):
        with pytest.raises((SchemaError, DefinitionError), match=said):
            flow.source("other", ms.memory(), event_time=wrong, **given)


def test_a_plan_with_another_computation_is_another_plan() -> None:
    made = [
        view_plan(
            "SELECT count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
            defined(
                f"CREATE SOURCE s (ms BIGINT, ts AS {said}, WATERMARK FOR ts AS ts) FROM LOG('s')",
                Catalog(),
            ),
        )
        for said in ("timestamp_millis(ms)", "timestamp_micros(ms)", "timestamp_millis(ms)")
    ]
    assert made[0].id == made[2].id != made[1].id
    assert made[0].views[0].fingerprint == made[2].views[0].fingerprint != made[1].views[0].fingerprint


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("p AS PROCTIME(), WATERMARK FOR p AS p", "`p` is the time of processing, which needs no WATERMARK"),
        ("ts AS ms + 1, WATERMARK FOR ts AS ts", "which is BIGINT, not a TIMESTAMP"),
        ("ts AS timestamp_millis(mss), WATERMARK FOR ts AS ts", "there is no column `mss`"),
        ("ts AS current_timestamp(), WATERMARK FOR ts AS ts", "current_timestamp"),
        ("ts AS timestamp_millis(later), later AS ms + 1, WATERMARK FOR ts AS ts", "there is no column `later`"),
    ],
)
def test_a_wrong_computed_time_is_refused(columns: str, said: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        defined(f"CREATE SOURCE s (ms BIGINT, {columns}) FROM LOG('s')", Catalog())
    assert said in str(refused.value)
