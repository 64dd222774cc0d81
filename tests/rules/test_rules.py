"""Planning rules before and after: one pair per rule, written as the parts of a plan that the rule may touch."""

from dataclasses import replace
from typing import Any

import pytest

import millstream as ms
from millstream.model.aggregates.aggregate import Aggregate
from millstream.plan.lowering.lower import lower
from millstream.plan.operators.aggregates.aggregation import ORDERED
from millstream.plan.operators.relations.join import Join
from millstream.plan.plan import Plan
from millstream.plan.planner import RULES
from millstream.plan.rules.first_rows import first_rows
from millstream.plan.rules.identify import identify
from millstream.plan.rules.order import order
from millstream.plan.rules.prune import prune

COLUMNS = "auction BIGINT, price BIGINT, ts TIMESTAMP"


def flow(*aggregates: str) -> ms.Flow:
    """Three sources: `bids` is read plainly, `sales` through an explode, `unused` by nobody."""
    made = ms.Flow("house")
    bids, sales, _ = (made.source(n, ms.memory(), schema=COLUMNS, event_time="ts") for n in ("bids", "sales", "unused"))
    chosen = {name: KINDS[name] for name in aggregates or ("count",)}
    bids.key_by("auction").aggregate(**chosen).view("per_auction")
    sales.flat_map(x="array(price, 1)").key_by("x").aggregate(n=ms.count()).view("per_part")
    return made


class Any1:
    def create(self) -> Any: ...
    def add(self, accumulator: Any, value: Any) -> Any: ...
    def merge(self, left: Any, right: Any) -> Any: ...
    def result(self, accumulator: Any) -> Any: ...


KINDS = {
    "count": ms.count(),
    "sum": ms.sum("price"),
    "min": ms.min("price"),
    "max": ms.max("price"),
    "avg": ms.avg("price"),
    "variance": ms.variance("price"),
    "stddev": ms.stddev("price"),
    "count_distinct": ms.count_distinct("price"),
    "first": ms.first("price"),
    "last": ms.last("price"),
    "first_of": Aggregate("first_of", ms.expr("named_struct('keep', true, 'value', price)")),
    "last_of": Aggregate("last_of", ms.expr("named_struct('keep', true, 'value', price)")),
    "collect": ms.collect("price"),
    "user": ms.user_aggregate(Any1(), "price", returns="BIGINT"),
    "median": ms.median("price"),
    "approx_count_distinct": ms.approx_count_distinct("price"),
    "approx_top_k": ms.approx_top_k("price"),
    "sample": ms.sample("price", 2),
}


def shape(plan: Plan) -> str:
    """A plan as text, for comparison by eye."""
    lines = [f"source {s.name}{' with positions' if s.positions else ''}" for s in plan.sources]
    lines += [f"scan {s.id} of {s.source}: {' > '.join(type(o).__name__ for o in s.ops) or 'root'}" for s in plan.scans]
    lines += [f"view {v.name} from {', '.join(str(f.scan) for f in v.operator.feeds)}" for v in plan.views]
    return "\n".join(lines)


BEFORE = """\
source bids
source sales
source unused
scan 0 of bids: root
scan 1 of sales: root
scan 2 of unused: root
scan 3 of sales: Project > Explode
view per_auction from 0
view per_part from 3"""

PRUNED = """\
source bids
source sales
scan 0 of bids: root
scan 1 of sales: root
scan 3 of sales: Project > Explode
view per_auction from 0
view per_part from 3"""


def test_prune_leaves_out_what_nothing_reads_but_keeps_root_scans() -> None:
    lowered = lower(flow())
    assert shape(lowered) == BEFORE
    assert shape(prune(lowered)) == PRUNED
    assert shape(prune(prune(lowered))) == PRUNED


def test_prune_drops_a_scan_that_no_feed_takes() -> None:
    lowered = lower(flow())
    kept = prune(replace(lowered, views=lowered.views[:1]))
    assert shape(kept) == "source bids\nscan 0 of bids: root\nview per_auction from 0"


@pytest.mark.parametrize("kind", KINDS)
def test_order_asks_for_positions_only_where_an_aggregate_depends_on_them(kind: str) -> None:
    ordered = order(prune(lower(flow(kind))))
    wanted = (
        PRUNED.replace("source bids", "source bids with positions")
        if kind in {"first", "last", "first_of", "last_of", "collect", "user", "sample"}
        else PRUNED
    )
    assert shape(ordered) == wanted


def test_order_knows_every_kind() -> None:
    assert set(KINDS) >= ORDERED


def test_order_asks_every_source_of_a_union() -> None:
    made = ms.Flow("u")
    a, b = (made.source(n, ms.memory(), schema=COLUMNS, event_time="ts") for n in ("a", "b"))
    a.union(b).key_by("auction").aggregate(f=ms.first("price")).view("v")
    assert [s.positions for s in order(lower(made)).sources] == [True, True]


def test_identify_changes_nothing_but_names() -> None:
    before = order(prune(lower(flow("count", "sum"))))
    after = identify(before)
    assert shape(after) == shape(before)
    assert before.id == "" and len(after.id) == 16
    prints = [v.operator.fingerprint for v in after.views]
    assert all(len(p) == 16 for p in prints) and len(set(prints)) == 2
    assert [v.operator.fingerprint for v in identify(after).views] == prints and identify(after).id == after.id


def test_first_rows_changes_what_a_join_emits_and_no_name() -> None:
    made = ms.Flow("first")
    bids, sales = (made.source(n, ms.memory(), schema=COLUMNS, event_time="ts") for n in ("bids", "sales"))
    bids.join(sales, on="auction").key_by("auction").top(1, by="price_right").view("best")
    before = identify(order(prune(lower(made))))
    after = first_rows(before)
    assert [v.operator.first for v in before.views if isinstance(v.operator, Join)] == [None]
    (first,) = (v.operator.first for v in after.views if isinstance(v.operator, Join))
    assert first is not None and (first.keys, first.count) == (("auction",), 1)
    assert identify(after).id == after.id == before.id
    assert [v.fingerprint for v in after.views] == [v.fingerprint for v in before.views]


def test_every_rule_has_a_pair_here() -> None:
    assert set(RULES) == {prune, order, identify, first_rows}
