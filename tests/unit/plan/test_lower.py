"""Lowering: which scans, feeds and stages a flow becomes."""

from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import DefinitionError
from millstream.plan.operators.aggregates.aggregation import Aggregation
from millstream.plan.operators.relations.pass_through import PassThrough
from millstream.plan.parts import Batches, Explode, Lookup, Project
from millstream.plan.plan import Plan
from millstream.plan.planner import RULES, plan

COLUMNS = "auction BIGINT, price BIGINT, weight DOUBLE, tags ARRAY<STRING>, ts TIMESTAMP"


def house(**options: Any) -> tuple[ms.Flow, ms.Stream]:
    flow = ms.Flow("house")
    return flow, flow.source("bids", ms.memory(), schema=COLUMNS, event_time="ts", **options)


def columns(planned: Plan, view: int = 0, feed: int = 0) -> list[str]:
    """The SQL of the columns a view's feed takes."""
    taken = planned.views[view].operator.feeds[feed]
    scan = next(s for s in planned.scans if s.id == taken.scan)
    return [next(c.sql for c in scan.columns if c.name == n) for n in taken.columns]


def keep(planned: Plan, view: int = 0) -> str | None:
    taken = planned.views[view].operator.feeds[0]
    scan = next(s for s in planned.scans if s.id == taken.scan)
    return next((c.sql for c in scan.columns if c.name == taken.keep), None)


def test_views_that_differ_in_expressions_only_share_one_scan() -> None:
    flow, bids = house()
    for i in range(10):
        bids.where(f"price > {i}").with_columns(x=f"price * {i}").key_by(k=f"auction % {i + 2}").aggregate(
            s=ms.sum("x")
        ).view(f"v{i}")
    planned = plan(flow)
    assert len(planned.scans) == 1 and planned.scans[0].ops == ()
    assert {f.scan for v in planned.views for f in v.operator.feeds} == {planned.scans[0].id}


def test_a_column_that_many_views_need_is_computed_once() -> None:
    flow, bids = house()
    for i in range(5):
        bids.where("price > 1").key_by("auction").aggregate(n=ms.count(), s=ms.sum("price")).view(f"v{i}")
    (scan,) = plan(flow).scans
    sqls = [c.sql for c in scan.columns]
    assert len(sqls) == len(set(sqls)) == 5  # keep, key, argument, hash, slice


@pytest.mark.parametrize(
    ("step", "op"),
    [
        (lambda s: s.flat_map(tag="tags"), Explode),
        (lambda s: s.map_batches(lambda b: b, schema=COLUMNS + ", tag STRING"), Batches),
        (lambda s: s.enrich("names", on="auction", columns="tag STRING"), Lookup),
    ],
    ids=["flat_map", "map_batches", "enrich"],
)
def test_a_step_that_changes_rows_has_a_scan_of_its_own_beside_the_root_scan(step: Any, op: type) -> None:
    flow, bids = house()
    bids.key_by("auction").aggregate(n=ms.count()).view("plain")
    step(bids).key_by("tag").aggregate(n=ms.count()).view("changed")
    planned = plan(flow)
    assert [len(s.ops) for s in planned.scans] == [0, 2]
    assert isinstance(planned.scans[1].ops[-1], op)
    assert planned.views[0].operator.feeds[0].scan != planned.views[1].operator.feeds[0].scan
    assert planned.scans_of("bids")[0].ops == ()


def test_equal_row_changing_steps_share_their_scan() -> None:
    flow, bids = house()
    for i in range(3):
        bids.flat_map(tag="tags").key_by("tag").aggregate(n=ms.count()).view(f"v{i}")
    assert len(plan(flow).scans) == 2


def test_a_root_scan_stays_though_no_view_takes_it_because_it_accounts_for_rows() -> None:
    flow, bids = house()
    bids.flat_map(tag="tags").key_by("tag").aggregate(n=ms.count()).view("v")
    assert [s.ops == () for s in plan(flow).scans] == [True, False]


def test_functions_that_differ_in_what_they_close_over_never_share_a_scan() -> None:
    def times(factor: int) -> Any:
        def scale(batch: pa.Table) -> pa.Table:
            return batch.set_column(1, "price", pa.compute.multiply(batch["price"], factor))

        return scale

    flow, bids = house()
    bids.map_batches(times(1), schema=COLUMNS).view("one")
    bids.map_batches(times(2), schema=COLUMNS).view("two")
    planned = plan(flow)
    one, two = (planned.scans[v.operator.feeds[0].scan].ops[-1] for v in planned.views)
    assert isinstance(one, Batches) and isinstance(two, Batches)
    assert one.function is not two.function


def test_one_function_with_two_declarations_does_not_share_a_scan() -> None:
    def same(batch: Any) -> Any:
        return batch

    flow, bids = house()
    bids.map_batches(same, schema="auction BIGINT, ts TIMESTAMP").view("a")
    bids.map_batches(same, schema="auction STRING, ts TIMESTAMP").view("b")
    bids.map_batches(same, schema="auction BIGINT, ts TIMESTAMP", takes="polars").view("c")
    assert len({v.operator.feeds[0].scan for v in plan(flow).views}) == 3


def test_a_union_feeds_a_stage_from_every_source() -> None:
    flow, bids = house()
    more = flow.source("more", ms.memory(), schema=COLUMNS, event_time="ts")
    bids.where("price > 0").union(more, bids.flat_map(tag="tags").select(*bids.schema.names)).key_by(
        "auction"
    ).aggregate(n=ms.count()).view("v")
    stage = plan(flow).views[0].operator
    assert [f.source for f in stage.feeds] == ["bids", "more", "bids"]
    assert stage.sources == {"bids", "more"}
    assert [f.keep is None for f in stage.feeds] == [False, True, True]


def test_where_and_select_fold_into_one_condition_and_one_projection() -> None:
    flow, bids = house()
    folded = (
        bids.where("price > 1").with_columns(x="price + 1").where("x < 9").select("auction", y="x * 2").where("y <> 4")
    )
    folded.key_by("auction").aggregate(s=ms.sum("y")).view("v")
    planned = plan(flow)
    assert keep(planned) == "(`price` > 1 AND (`price` + 1) < 9) AND ((`price` + 1) * 2) <> 4"
    assert columns(planned) == ["`auction`", "((`price` + 1) * 2)"]


def test_a_condition_with_or_keeps_its_brackets_when_joined() -> None:
    flow, bids = house()
    bids.where("price > 1 OR price < -1").where("auction = 1 OR auction = 2").view("v")
    assert keep(plan(flow)) == "(`price` > 1 OR `price` < -1) AND (`auction` = 1 OR `auction` = 2)"


def test_expressions_before_a_row_changing_step_are_projected_before_it() -> None:
    flow, bids = house()
    bids.where("price > 1").select("auction", words="tags").flat_map(word="words").view("v")
    project, explode = plan(flow).scans[1].ops
    assert isinstance(project, Project) and project.keep == "`price` > 1"
    assert [c.name for c in project.columns] == ["auction", "words"]
    assert explode == Explode("word", "`words`", False)


def test_two_row_changing_steps_in_a_row_need_no_projection_between_them() -> None:
    flow, bids = house()
    bids.flat_map(tag="tags").enrich("t", on="tag", columns="x STRING").view("v")
    assert [type(o).__name__ for o in plan(flow).scans[1].ops] == ["Project", "Explode", "Lookup"]
    assert plan(flow).tables == ("t",)


def test_a_view_without_an_aggregate_appends() -> None:
    flow, bids = house()
    bids.select("auction", double="price * 2").view("kept", retention="1 hour")
    bids.select("auction").view("all")
    kept, everything = plan(flow).views
    assert isinstance(kept.operator, PassThrough) and kept.identity is None
    assert (kept.columns, kept.hidden, kept.time_column, kept.retention) == (
        ("auction", "double"),
        ("$ts",),
        "$ts",
        3_600_000_000,
    )
    assert (everything.hidden, everything.time_column) == ((), None)


def aggregated() -> tuple[ms.Flow, ms.Stream]:
    flow, bids = house()
    return flow, bids.key_by("auction").window(ms.tumbling("10 s")).aggregate(n=ms.count(), top=ms.max("price"))


def test_a_plain_aggregate_is_told_apart_by_its_borders_and_keys() -> None:
    flow, stream = aggregated()
    stream.view("v", retention="1 day")
    view = plan(flow).views[0]
    assert view.post is None and view.hidden == ()
    assert view.identity == ("window_start", "window_end", "auction") and view.time_column == "window_end"


def test_keys_that_a_select_drops_are_kept_hidden() -> None:
    flow, stream = aggregated()
    stream.select("n", begin="window_start").view("v", retention="1 day")
    view = plan(flow).views[0]
    assert view.columns == ("n", "begin") and view.hidden == ("$window_end", "$auction")
    assert view.identity == ("begin", "$window_end", "$auction") and view.time_column == "$window_end"
    assert view.post is not None
    assert [c.name for c in view.post.columns] == ["n", "begin", "$window_end", "$auction"]


def test_a_computed_column_does_not_pass_for_the_key_of_its_name() -> None:
    flow, stream = aggregated()
    stream.with_columns(auction="auction % 2").view("v")
    view = plan(flow).views[0]
    assert "$auction" in view.hidden and view.identity == ("window_start", "window_end", "$auction")


def test_where_behind_an_aggregate_filters_answers() -> None:
    flow, stream = aggregated()
    stream.where("n > 10").with_columns(half="n / 2").where("half < 100").view("v")
    post = plan(flow).views[0].post
    assert post is not None and post.keep == "`n` > 10 AND (`n` / 2) < 100"


def test_a_stream_without_key_has_one_row() -> None:
    flow, bids = house()
    bids.aggregate(n=ms.count()).view("v")
    view = plan(flow).views[0]
    assert view.identity == () and isinstance(view.operator, Aggregation) and view.operator.identity == ()


def test_floating_keys_are_normalised_so_that_the_two_zeros_are_one_key() -> None:
    flow, bids = house()
    bids.key_by("weight", "auction").aggregate(n=ms.count()).view("v")
    assert columns(plan(flow)) == ["(`weight` + 0.0D)", "`auction`"]


def test_map_batches_must_keep_the_event_time() -> None:
    flow, bids = house()
    bids.map_batches(lambda b: b, schema="auction BIGINT").view("v")
    with pytest.raises(DefinitionError, match="loses the event time `ts`") as caught:
        plan(flow)
    assert caught.value.origin is not None and caught.value.origin.file.endswith("test_lower.py")


def test_a_flow_without_views_has_nothing_to_plan() -> None:
    with pytest.raises(DefinitionError, match="has no view"):
        plan(house()[0])


def test_the_rules_are_applied_in_their_written_order() -> None:
    assert [r.__name__ for r in RULES] == ["prune", "order", "identify", "first_rows"]


def test_a_plan_can_be_asked_for_its_parts() -> None:
    flow, stream = aggregated()
    stream.view("v")
    planned = plan(flow)
    assert planned.source("bids").name == "bids" and [o.step for o in planned.stateful] == ["v"]
