"""The explain text of example flows, held against golden files beside this test.

Regenerate them with ``MILLSTREAM_GOLDEN=write pytest tests/plans``, and read the difference before a commit.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import millstream as ms
from millstream.plan.explain.plan_tree import Node, as_json, explain, text
from millstream.plan.planner import plan

HERE = Path(__file__).parent
BIDS = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts TIMESTAMP"


def bids_of(flow: ms.Flow, **options: str) -> ms.Stream:
    return flow.source(
        "bids",
        ms.files("data/bids", format="json"),
        schema=BIDS,
        event_time="ts",
        lateness="4 seconds",
        **options,  # type: ignore[arg-type]
    )


def tumbling_and_totals(flow: ms.Flow) -> None:
    bids = bids_of(flow)
    (
        bids.where("price > 100")
        .key_by("auction")
        .window(ms.tumbling("10 seconds"))
        .aggregate(bids=ms.count(), top=ms.max("price"))
        .view("hot_auctions")
    )
    bids.aggregate(bids=ms.count(), average=ms.avg("price * 0.9")).view("totals")


def hopping_on_close(flow: ms.Flow) -> None:
    (
        bids_of(flow)
        .key_by("auction", day="date(ts)")
        .window(ms.hopping("1 minute", "10 seconds"), trigger=ms.on_close())
        .aggregate(bids=ms.count())
        .where("bids > 5")
        .view("busy", retention="1 hour")
    )


def global_state_that_grows(flow: ms.Flow) -> None:
    (
        bids_of(flow)
        .key_by("bidder")
        .aggregate(latest=ms.last("auction"), auctions=ms.count_distinct("auction"))
        .select("bidder", "latest")
        .view("bidders")
    )


def enriched_and_appended(flow: ms.Flow) -> None:
    (
        bids_of(flow, idle_timeout="30 seconds")
        .enrich("channels", on={"channel": "name"}, columns="region STRING", required=True)
        .where("region = 'eu'")
        .select("auction", "ts", euros="price * 0.9")
        .view("europe", retention="1 day")
    )


def exploded(flow: ms.Flow) -> None:
    bids_of(flow).flat_map(word="split(channel, '-')").key_by("word").aggregate(n=ms.count()).view("words")


def doubled(batch: object) -> object:
    return batch


class Longest:
    def create(self) -> str:
        return ""

    def add(self, accumulator: str, value: str) -> str:
        return max(accumulator, value, key=len)

    def merge(self, left: str, right: str) -> str:
        return max(left, right, key=len)

    def result(self, accumulator: str) -> str:
        return accumulator


def python_steps(flow: ms.Flow) -> None:
    (
        bids_of(flow)
        .map_batches(doubled, schema="auction BIGINT, channel STRING, ts TIMESTAMP")
        .key_by("auction")
        .window(ms.tumbling("1 minute"))
        .aggregate(longest=ms.user_aggregate(Longest(), "channel", returns="STRING"))
        .view("channels")
    )


def united_sources(flow: ms.Flow) -> None:
    one = flow.source("one", ms.memory(), schema="word STRING")
    two = flow.source("two", ms.nexmark("bid", rate=100, events=1_000), event_time="date_time")
    one.union(two.select(word="channel")).key_by("word").aggregate(n=ms.count()).view("words")


def chained_stages(flow: ms.Flow) -> None:
    bids = bids_of(flow)
    per_window = (
        bids.key_by("auction")
        .window(ms.tumbling("10 seconds"), lateness="2 seconds")
        .aggregate(bids=ms.count(), top=ms.max("price"))
    )
    per_window.view("counts")
    per_window.where("bids > 1").key_by("window_end").top(3, "bids DESC", "top - 1 NULLS LAST", rank="place").view(
        "hot"
    )
    latest = bids.key_by("bidder").top(1, "ts DESC")
    latest.key_by("channel").aggregate(bidders=ms.count(), average=ms.avg("price * 2")).where("bidders > 5").view(
        "used"
    )
    latest.select("channel").distinct().top(2, "channel").view("first_two")


FLOWS: tuple[Callable[[ms.Flow], None], ...] = (
    tumbling_and_totals,
    hopping_on_close,
    global_state_that_grows,
    enriched_and_appended,
    exploded,
    python_steps,
    united_sources,
    chained_stages,
)


def explained(build: Callable[[ms.Flow], None]) -> Node:
    flow = ms.Flow(build.__name__)
    build(flow)
    return explain(plan(flow))


@pytest.mark.parametrize("build", FLOWS, ids=lambda b: b.__name__)
def test_the_explanation_is_the_golden_one(build: Callable[[ms.Flow], None]) -> None:
    lines = text(explained(build)).splitlines()
    told = "\n".join(line for line in lines if not line.startswith("│  plan ")) + "\n"
    golden = HERE / f"{build.__name__}.txt"
    if os.environ.get("MILLSTREAM_GOLDEN") == "write":
        golden.write_text(told, encoding="utf-8")
    assert told == golden.read_text(encoding="utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert {p.stem for p in HERE.glob("*.txt")} == {b.__name__ for b in FLOWS}


def nodes(root: Node) -> list[Node]:
    return [root, *(n for child in root.children for n in nodes(child))]


def test_every_view_says_its_guarantee() -> None:
    for build in FLOWS:
        root = explained(build)
        tables = [dict(n.facts) for n in nodes(root) if n.kind == "table"]
        assert tables
        assert all("exactly once" in facts["guarantee"] for facts in tables)


def test_json_has_the_same_tree() -> None:
    def kinds(node: dict[str, object]) -> list[object]:
        children = node["children"]
        assert isinstance(children, list)
        return [node["kind"], *(k for c in children for k in kinds(c))]

    root = explained(tumbling_and_totals)
    assert kinds(as_json(root)) == [n.kind for n in nodes(root)]


def test_punctuation_is_told_instead_of_a_lateness() -> None:
    flow = ms.Flow("f")
    schema = "kind STRING, ts TIMESTAMP"
    flow.source("lines", ms.memory(), schema=schema, event_time="ts", punctuation="kind = 'end'").view("v")
    (source, *_) = explain(plan(flow)).children
    assert dict(source.facts)["event time"] == "ts, watermark from kind = 'end'"
