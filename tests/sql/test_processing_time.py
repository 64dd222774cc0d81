"""PROCTIME() beside a WATERMARK: a column with the clock of the epoch that read the record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import DefinitionError, MillstreamError, Unsupported
from millstream.model.flow import Flow
from millstream.plan.planner import plan
from millstream.sql.catalog import Catalog, schema_of
from millstream.sql.parse.statement_values import CreateSource
from millstream.testing.script import Crash
from tests.sql.engine import QueryScript, with_topics
from tests.sql.kit import defined, flow_of, view_plan

START = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = """CREATE SOURCE visits (who BIGINT, seen AS PROCTIME(), ts TIMESTAMP, again AS PROCTIME(),
delay AS unix_seconds(seen) - unix_seconds(ts), WATERMARK FOR ts AS ts) FROM LOG('visits');
CREATE SOURCE names (who BIGINT, name STRING, ts TIMESTAMP, WATERMARK FOR ts AS ts) FROM LOG('names');
"""
VIEWS = {
    "by_clock": "SELECT window_start, window_end, count(*) AS n FROM TUMBLE(visits, seen, INTERVAL '1' MINUTE) "
    "GROUP BY window_start, window_end",
    "hops": "SELECT window_end, count(*) AS n FROM HOP(visits, seen, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE) "
    "GROUP BY window_start, window_end",
    "sessions": "SELECT window_start, window_end, who, count(*) AS n FROM visits "
    "GROUP BY who, SESSION(seen, INTERVAL '45' SECOND)",
    "by_event": "SELECT window_start, count(*) AS n, max(delay) AS delay FROM TUMBLE(visits, ts, INTERVAL '1' MINUTE) "
    "GROUP BY window_start, window_end EMIT ON CLOSE",
    "everything": "SELECT * FROM visits",
    "newest": "SELECT who, seen FROM visits ORDER BY seen DESC, who LIMIT 2",
    "joined": "SELECT n.name, v.seen FROM visits v JOIN names n ON n.who = v.who WHERE v.seen > v.ts",
    "daily": "SELECT date_trunc('DAY', seen) AS day, count(*) AS n FROM visits GROUP BY date_trunc('DAY', seen)",
}
EPOCHS = [(5, [1, 2]), (40, [10, 3]), (30, [70, 71]), (90, [130, 5])]
"""By how many seconds the clock goes on, and the event times of what comes then."""


def _script(path: Path, *views: str) -> QueryScript:
    text = SOURCE + ";\n".join(f"CREATE VIEW {n} AS {VIEWS[n]}" for n in views)
    catalog = defined(text, Catalog())
    schemas = {e.name: s for e in catalog.of(CreateSource) if (s := schema_of(catalog, e)) is not None}
    return QueryScript(flow_of(catalog, *views), with_topics(path, schemas), shards=2)


def _rows(script: QueryScript, view: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(r.values()) for r in script.rows(view))


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def _expected() -> dict[str, list[tuple[Any, ...]]]:
    records = [(seen, i, t) for seen, (_, ts) in zip((5, 45, 75, 165), EPOCHS, strict=True) for i, t in enumerate(ts)]
    return {
        "by_clock": [(_at(0), _at(60), 4), (_at(60), _at(120), 2), (_at(120), _at(180), 2)],
        "hops": [(_at(60), 4), (_at(120), 6), (_at(180), 4), (_at(240), 2)],
        "sessions": [(_at(s), _at(e), who, n) for s, e, n in ((5, 120, 3), (165, 210, 1)) for who in (0, 1)],
        "by_event": [(_at(0), 4, 42), (_at(60), 2, 5)],
        "everything": sorted((who, _at(t), _at(seen), _at(seen), seen - t) for seen, who, t in records),
        "newest": [(0, _at(165)), (1, _at(165))],
        "joined": [("ann", _at(seen)) for seen in (5, 45, 75, 165)],
        "daily": [(START, 8)],
    }


@pytest.mark.parametrize(
    ("crash", "views"), [("before commit", tuple(VIEWS)), ("before work", ("by_clock", "by_event"))]
)
def test_windows_go_by_the_clock_and_by_event_time_side_by_side(
    tmp_path: Path, crash: str, views: tuple[str, ...]
) -> None:
    with _script(tmp_path / "home", *views) as script:
        script.home.topic("names").append([{"who": 1, "name": "ann", "ts": START.timestamp()}])
        gone = 0
        for number, (wait, times) in enumerate(EPOCHS):
            script.advance(f"{wait - gone} seconds")
            script.home.topic("visits").append([{"who": i, "ts": _at(t).timestamp()} for i, t in enumerate(times)])
            if number == 2:
                script.crash(at=crash)
                with pytest.raises(Crash):
                    script.tick()
                gone = 60
                script.advance("60 seconds").resume()  # the epoch runs again by the clock that it began with
            script.tick()
        for view in views:
            assert _rows(script, view) == _expected()[view], view
        assert len(script.rows("by_event$late")) == 1


def test_a_record_that_is_revised_moves_to_the_window_of_its_last_version(tmp_path: Path) -> None:
    flow = Flow("shop")
    orders = flow.source(
        "orders", ms.memory(), schema="id BIGINT, ts TIMESTAMP", event_time="ts", key="id", processing_time="seen"
    )
    orders.key_by(k="id % 1").window(ms.tumbling("1 minute"), time="seen").aggregate(n=ms.count()).view("v")
    with QueryScript(flow, tmp_path / "home") as script:
        script.send("orders", {"id": 1, "ts": _at(0)}, {"id": 2, "ts": _at(0)}).tick()
        assert _rows(script, "v") == [(_at(0), _at(60), 0, 2)]
        script.advance("1 minute").send("orders", {"id": 1, "ts": _at(1)}).tick()
        assert _rows(script, "v") == [(_at(0), _at(60), 0, 1), (_at(60), _at(120), 0, 1)]


def test_late_records_are_not_read_again_with_another_time_of_processing(tmp_path: Path) -> None:
    with (
        _script(tmp_path / "home", "by_event") as script,
        pytest.raises(Unsupported, match="uses processing time") as refused,
    ):
        script.replay_late("by_event")
    assert "by_event$late" in str(refused.value)


def test_a_column_that_nothing_uses_leaves_the_plan_as_it_was() -> None:
    query = "SELECT count(*) AS n FROM s GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)"
    source = "CREATE SOURCE s (a BIGINT, ts TIMESTAMP, {}WATERMARK FOR ts AS ts) FROM LOG('s')"
    with_it, without = (
        view_plan(query, defined(source.format(more), Catalog())) for more in ("seen AS PROCTIME(), ", "")
    )
    assert with_it.id == without.id
    assert [s.columns for s in with_it.scans] == [s.columns for s in without.scans]
    used = [
        view_plan(
            "SELECT count(*) AS n FROM s GROUP BY TUMBLE(seen, INTERVAL '1' HOUR)",
            defined(source.format(more), Catalog()),
        )
        for more in ("seen AS PROCTIME(), ", "seen TIMESTAMP, ")
    ]
    assert used[0].views[0].fingerprint != used[1].views[0].fingerprint


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "SELECT count(*) AS n FROM visits GROUP BY TUMBLE(seen, '1 minute') EMIT ON CLOSE",
            "need a watermark, and `seen` has none",
        ),
        (
            "SELECT count(*) AS n FROM (SELECT *, PROCTIME() AS p FROM visits) GROUP BY TUMBLE(p, '1 minute')",
            "a window over `p`, a PROCTIME() in a query over a source with a WATERMARK",
        ),
    ],
)
def test_what_is_refused(query: str, said: str) -> None:
    with pytest.raises(MillstreamError) as refused:
        view_plan(query, defined(SOURCE, Catalog()))
    assert said in str(refused.value)
    assert refused.value.origin is not None


def test_python_names_the_column() -> None:
    flow = Flow("shop")
    given: dict[str, Any] = {"schema": "id BIGINT, ts TIMESTAMP"}
    orders = flow.source("orders", ms.memory(), event_time="ts", processing_time="seen", **given)
    assert orders.schema.names == ("id", "ts", "seen")
    orders.key_by("id").window(ms.tumbling("1 hour"), time="seen").aggregate(n=ms.count()).view("v")
    assert plan(flow).source("orders").schema.names == ("id", "ts")
    with pytest.raises(DefinitionError, match="needs an event_time"):
        flow.source("others", ms.memory(), processing_time="seen", **given)
    with pytest.raises(MillstreamError, match="appears twice"):
        flow.source("others", ms.memory(), event_time="ts", processing_time="ID", **given)
