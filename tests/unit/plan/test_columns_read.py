"""The columns of a source that its readers must return."""

from __future__ import annotations

import millstream as ms
from millstream.plan.planner import plan

SCHEMA = (
    "auction BIGINT, price BIGINT, city STRING, signal STRING, millis BIGINT, `odd name` BIGINT, happened TIMESTAMP"
)


def read(flow: ms.Flow) -> set[str]:
    found = plan(flow).columns_read("s")
    assert found is not None
    return set(found)


def source(flow: ms.Flow, **options: object) -> ms.Stream:
    return flow.source("s", ms.memory(), schema=SCHEMA, **{"event_time": "happened", **options})


def test_only_what_some_view_reads_and_the_event_time() -> None:
    flow = ms.Flow("f")
    rows = source(flow)
    rows.where("price > 1").key_by("auction").window(ms.tumbling("1 minute")).aggregate(n=ms.count()).view("v")
    assert read(flow) == {"auction", "price", "happened", "odd name"}  # a name that needs quotes is always read
    rows.select(x="upper(city)").view("w")
    assert read(flow) == {"auction", "price", "city", "happened", "odd name"}


def test_a_function_gets_whole_rows() -> None:
    flow = ms.Flow("f")
    source(flow).map_batches(lambda t: t, schema="auction BIGINT, happened TIMESTAMP").view("v")
    assert plan(flow).columns_read("s") is None


def test_columns_of_a_computed_event_time_and_of_punctuation_are_read() -> None:
    flow = ms.Flow("f")
    rows = source(flow, event_time={"at": "timestamp_millis(millis)"}, punctuation="signal = 'end'")
    rows.select("auction").view("v")
    assert {"auction", "signal", "millis"} <= read(flow)
    assert "city" not in read(flow)
