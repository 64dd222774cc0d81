"""The ids of plans over every connector: they are kept with results, so they may not change."""

import pyarrow as pa
import pytest

import millstream as ms
from millstream.model.connector import Connector
from millstream.plan.planner import plan


def made(start: int, end: int) -> pa.Table:
    return pa.table({"k": list(range(start, end))})


CONNECTORS: dict[str, tuple[Connector, str]] = {
    "files": (ms.files("data/bids", format="json"), "73c57e2f4a16cdb9"),
    "csv": (ms.files("x/*.csv", format="csv", header=False, bounded=True), "69dd8382caa30c59"),
    "generator": (ms.generator(made, rate=5, name="ticks"), "a564925d8173470b"),
    "nexmark": (ms.nexmark("bid", rate=10, seed=3), "bafd9f61142f9d87"),
    "log": (ms.log("bids", start="end", bounded=True), "0719343ba0341c9f"),
    "spark": (ms.spark_stream("rate", {"rowsPerSecond": 5}, topic="t"), "f2a48ac6d6bccaee"),
    "memory": (ms.memory(partitions=3), "8775550f2e75a551"),
}


@pytest.mark.parametrize("name", CONNECTORS)
def test_the_id_of_a_plan_is_what_it_was_in_the_first_version(name: str) -> None:
    connector, wanted = CONNECTORS[name]
    flow = ms.Flow("f")
    schema = None if name == "nexmark" else "k BIGINT, ts TIMESTAMP"
    flow.source("s", connector, schema=schema, event_time=None if schema is None else "ts").view("v")
    assert plan(flow).id == wanted
