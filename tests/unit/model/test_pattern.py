"""Patterns as they are written in Python: what they come to, and what is refused when they are made."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import DefinitionError, MillstreamError, SchemaError, Unsupported
from millstream.model.steps.event_times import times_of
from millstream.model.steps.pattern import Matched
from millstream.model.steps.step import Select
from millstream.plan.lowering.pattern import lowered
from millstream.plan.operators.patterns.pattern import PatternMatch
from millstream.plan.planner import plan

SCHEMA = "item INT, price BIGINT, name STRING, place STRUCT<lat: DOUBLE>, at TIMESTAMP"


def bids() -> ms.Stream:
    return ms.Flow("shop").source("bids", ms.memory(), schema=SCHEMA, event_time="at")


RISE = ms.pattern().then("a", "price > 100").then("b", "price > prev(price)")


def test_a_pattern_reads_as_it_is_written_in_sql() -> None:
    made = (
        ms.pattern()
        .then("a", "price > 1", times=(1, None))
        .followed_by("b", "price < 1", optional=True)
        .one_of(ms.pattern().then("c", "price = 2"), ms.pattern().then("d", times=(2, 3), reluctant=True))
        .not_followed_by("e", "price = 7")
        .followed_by("f")
    )
    assert str(made) == "a+ ({- [not b]* -} b)? (c | d{2,3}?) {- [not f or e]* -} f"
    assert str(ms.pattern().then("a").not_next("b", "price > 1").not_followed_by("c", "price = 1")) == (
        "a [next not b] [never c]"
    )


def test_each_method_gives_a_new_pattern() -> None:
    longer = RISE.then("c").within("1 minute").skip_to_next()
    assert (str(RISE), RISE.longest, str(RISE.skip)) == ("a b", None, "past last row")
    assert (str(longer), str(longer.longest), str(longer.skip)) == ("a b c", "1min", "to next row")


def test_a_match_gives_keys_and_measures_and_of_all_rows_the_rows() -> None:
    keyed = bids().key_by("item", dear="price > 10")
    one = keyed.match(RISE, was="a.price", n="count(*)", what="upper(b.name)", mean="avg(b.price)", much="sum(b.price)")
    assert [(f.name, f.type) for f in one.schema] == [
        ("item", pa.int32()),
        ("dear", pa.bool_()),
        ("was", pa.int64()),
        ("n", pa.int64()),
        ("what", pa.string()),
        ("mean", pa.float64()),
        ("much", pa.int64()),
    ]
    every = keyed.match(RISE.within("1 hour"), rows="all", timeouts=True, cls="classifier()")
    assert every.schema.names == ("item", "price", "name", "place", "at", "dear", "cls", "timed_out")


def test_what_needs_the_row_only_is_computed_natively_and_once() -> None:
    made = (
        ms.pattern()
        .then("a", "upper(name) = 'X' and price > 100")
        .then("b", "price > 100 and b.place.lat > a.place.lat and price < prev(price) and name like 'a%'")
    )
    select = bids().key_by("item").match(made, p="sum(b.price * 2)").step
    assert isinstance(select, Select) and isinstance(select.input, Matched)
    taken, own = lowered(select.input)
    native = {n: e.spark() for n, e in taken if n.startswith("$c")}
    assert sorted(native.values()) == sorted(
        ["UPPER(`name`) = 'X'", "`price` > 100", "`place`.`lat`", "`name` LIKE 'a%'", "`price` * 2"]
    )
    found = PatternMatch("v", **own)
    a, b = found.conditions
    assert (len(a.native), len(a.near), len(a.far)) == (2, 0, 0)
    assert (len(b.native), len(b.near), len(b.far)) == (2, 1, 1)
    assert (found.lag, found.lead) == (1, 0)


def test_the_time_of_a_match_with_a_bound_is_a_clock() -> None:
    bounded = bids().key_by("item").match(RISE.within("1 minute"), began="a.at", n="count(*)")
    assert times_of(bounded.step) == {"began": 60_000_001}
    assert times_of(bids().match(RISE, began="a.at").step) == {}
    assert "at" in times_of(bids().match(RISE.within("1 minute"), rows="all").step)


def test_a_pattern_can_follow_rows_that_change_if_they_have_a_time() -> None:
    counts = bids().key_by("item").window(ms.tumbling("1 minute")).aggregate(n=ms.count())
    more = ms.pattern().then("a").then("b", "n > a.n")
    found = counts.key_by("item").match(more, was="a.n", now="b.n")
    assert found.schema.names == ("item", "was", "now")
    with pytest.raises(Unsupported, match="needs an event time"):
        bids().key_by("item").aggregate(n=ms.count()).key_by("item").match(more, was="a.n")


def test_other_steps_can_follow_a_pattern() -> None:
    flow = ms.Flow("shop")
    source = flow.source("bids", ms.memory(), schema=SCHEMA, event_time="at")
    found = source.key_by("item").match(RISE, was="a.price", now="b.price")
    found.where("was > 10").key_by("item").aggregate(n=ms.count()).view("per_item")
    found.where("was > 10").select("item", up="now - was").view("rises")
    plans = plan(flow)
    assert [v.name for v in plans.views if not v.inner] == ["per_item", "rises"]
    assert plan(flow).id == plans.id


def test_another_pattern_is_another_plan() -> None:
    def plan_of(made: ms.Pattern) -> str:
        flow = ms.Flow("shop")
        stream = flow.source("bids", ms.memory(), schema=SCHEMA, event_time="at").key_by("item")
        stream.match(made, n="count(*)").view("v")
        return plan(flow).id

    plans = [RISE, RISE.within("1 hour"), RISE.skip_to_next(), RISE.then("c"), RISE.then("c", "price > 1")]
    assert len({plan_of(p) for p in plans}) == len(plans)
    assert plan_of(RISE) == plan_of(ms.pattern().then("a", "price > 100").then("b", "price > prev(price)"))


@pytest.mark.parametrize(
    ("kind", "match", "make"),
    [
        (DefinitionError, "begins with then", lambda s: ms.pattern().followed_by("a")),
        (DefinitionError, "two conditions", lambda s: RISE.then("a", "price > 7")),
        (DefinitionError, "refers to the rows before", lambda s: RISE.not_followed_by("c", "price > 1").then("d")),
        (DefinitionError, "needs within", lambda s: s.match(RISE.not_followed_by("c", "price > 1"), n="count(*)")),
        (DefinitionError, "times=", lambda s: ms.pattern().then("a", times=(3, 2))),
        (DefinitionError, "times=0", lambda s: ms.pattern().then("a", times=0)),
        (DefinitionError, "at least two", lambda s: ms.pattern().one_of(RISE)),
        (DefinitionError, "is not a pattern", lambda s: s.match("a b", n="count(*)")),
        (DefinitionError, "not 'some'", lambda s: s.match(RISE, rows="some", n="count(*)")),
        (DefinitionError, "needs at least one measure", lambda s: s.match(RISE)),
        (DefinitionError, "how long a match may take", lambda s: s.match(RISE, timeouts=True, n="count(*)")),
        (DefinitionError, "is not a variable of the pattern", lambda s: s.match(RISE.skip_to_first("z"), n="count(*)")),
        (DefinitionError, "is not a variable of the pattern", lambda s: s.match(RISE.together("u", "z"), n="count(*)")),
        (DefinitionError, "is already in use", lambda s: s.match(RISE.together("a", "b"), n="count(*)")),
        (DefinitionError, "cannot be parsed", lambda s: s.match(RISE, n="count(")),
        (DefinitionError, "whole number", lambda s: s.match(RISE, n="first(a.price, 1.5)")),
        (DefinitionError, "no meaning", lambda s: s.match(ms.pattern().then("a", "final last(price) > 1"), n="1")),
        (DefinitionError, "CLASSIFIER", lambda s: s.match(ms.pattern().then("a", "classifier() = 'a'"), n="1")),
        (SchemaError, "there is no column `prise`", lambda s: s.match(RISE, n="a.prise")),
        (SchemaError, "`c` is not a variable", lambda s: s.match(RISE, n="c.price")),
        (SchemaError, "appears twice", lambda s: s.match(RISE, rows="all", price="a.price")),
        (SchemaError, "needs a condition", lambda s: s.match(ms.pattern().then("a", "price + 1"), n="count(*)")),
        (Unsupported, "navigates twice", lambda s: s.match(RISE, n="sum(first(a.price))")),
        (Unsupported, "no row at all", lambda s: s.match(ms.pattern().then("a", optional=True), n="count(*)")),
        (Unsupported, "more than 1,000 times", lambda s: s.match(ms.pattern().then("a", times=2_000), n="count(*)")),
        (Unsupported, "too large", lambda s: s.match(
            ms.pattern().then(ms.pattern().then("a", times=200).then("b"), times=200), n="count(*)")),
        (Unsupported, "rand", lambda s: s.match(ms.pattern().then("a", "price > rand()"), n="count(*)")),
        (Unsupported, "over the rows of a match", lambda s: s.match(RISE, n="count(DISTINCT a.price)")),
        (Unsupported, "within a window", lambda s: s.window(ms.tumbling("1 minute")).match(RISE, n="count(*)")),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused_when_it_is_written(
    kind: type[MillstreamError], match: str, make: Callable[[ms.Stream], object]
) -> None:
    with pytest.raises(kind, match=match) as refused:
        make(bids())
    assert refused.value.origin is not None and refused.value.origin.file.endswith("test_pattern.py")


def test_a_pattern_needs_an_event_time() -> None:
    source = ms.Flow("shop").source("bids", ms.memory(), schema=SCHEMA)
    with pytest.raises(Unsupported, match="needs an event time"):
        source.match(RISE, n="count(*)")
    with pytest.raises(Unsupported, match="needs an event time"):
        bids().select("item", "price").match(RISE, n="count(*)")


def test_a_function_that_joins_rows_of_several_variables_is_refused_by_the_plan() -> None:
    flow = ms.Flow("shop")
    stream = flow.source("bids", ms.memory(), schema=SCHEMA, event_time="at")
    stream.match(ms.pattern().then("a").then("b", "concat(a.name, b.name) = 'xy'"), n="count(*)").view("v")
    with pytest.raises(Unsupported, match="over rows of several variables"):
        plan(flow)
