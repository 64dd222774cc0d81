"""A scan computes an expression only for rows that some view keeps."""

from __future__ import annotations

import millstream as ms
from millstream.plan.plan import Plan
from millstream.plan.planner import plan
from millstream.plan.rules.guards import guarded


def house() -> tuple[ms.Flow, ms.Stream]:
    flow = ms.Flow("house")
    return flow, flow.source("bids", ms.memory(), schema="a BIGINT, b BIGINT, ts TIMESTAMP", event_time="ts")


def computed(planned: Plan) -> set[str]:
    return {c.sql for c in guarded(planned).scans[0].columns}


def test_an_expression_is_computed_only_where_its_condition_holds() -> None:
    flow, bids = house()
    bids.where("a <> 1").select(x="100 / (a - 1)", b="b").view("v")
    assert computed(plan(flow)) == {"`a` <> 1", "CASE WHEN (`a` <> 1) THEN 100 / (`a` - 1) END", "`b`"}


def test_views_that_share_an_expression_compute_it_where_one_of_them_keeps_the_row() -> None:
    flow, bids = house()
    bids.where("a > 1").select(x="100 / (a - 1)").view("v")
    bids.where("a < 1").select(x="100 / (a - 1)").view("w")
    assert "CASE WHEN (`a` > 1) OR (`a` < 1) THEN 100 / (`a` - 1) END" in computed(plan(flow))


def test_a_view_without_a_condition_needs_the_expression_of_every_row() -> None:
    flow, bids = house()
    bids.where("a > 1").select(x="100 / (a - 1)").view("v")
    bids.select(x="100 / (a - 1)").view("w")
    assert "100 / (`a` - 1)" in computed(plan(flow))


def test_keys_their_hash_and_arguments_are_guarded_and_the_slice_is_not() -> None:
    flow, bids = house()
    bids.where("a <> 0").key_by(k="10 / a").window(ms.tumbling("1 minute")).aggregate(s=ms.sum("b / a")).view("v")
    found = computed(plan(flow))
    assert "CASE WHEN (`a` <> 0) THEN (10 / `a` + 0.0D) END" in found
    assert "CASE WHEN (`a` <> 0) THEN `b` / `a` END" in found
    assert "CASE WHEN (`a` <> 0) THEN xxhash64((10 / `a` + 0.0D)) ELSE 0L END" in found
    assert any("`$ts`" in sql and "CASE" not in sql for sql in found)


def test_a_guard_changes_no_fingerprint() -> None:
    flow, bids = house()
    bids.where("a <> 1").select(x="100 / (a - 1)").view("v")
    planned = plan(flow)
    after = guarded(planned)
    assert (after.id, after.views[0].fingerprint) == (planned.id, planned.views[0].fingerprint)
    assert [s.columns for s in planned.scans] != [s.columns for s in after.scans]
