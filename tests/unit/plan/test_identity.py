"""Fingerprints: they change when the content of a stage changes, and only then."""

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import millstream as ms
from millstream.plan.code_identity import code_identity
from millstream.plan.planner import plan

COLUMNS = "auction BIGINT, price BIGINT, ts TIMESTAMP"


def fingerprint(
    build: Callable[[ms.Stream], Any] | None = None, *, schema: str = COLUMNS, others: bool = False, **options: Any
) -> str:
    flow = ms.Flow("f")
    bids = flow.source("bids", ms.memory(), schema=schema, event_time="ts", **options)
    if others:
        bids.where("price > 77").key_by(z="price % 3").aggregate(n=ms.count()).view("another")
        bids.flat_map(x="array(1, 2)").view("third")
    (build or base)(bids)
    return next(v.operator.fingerprint for v in plan(flow).views if v.name == "v")


def base(bids: ms.Stream) -> None:
    bids.where("price > 1").key_by("auction").window(ms.tumbling("10 s")).aggregate(
        n=ms.count(), s=ms.sum("price")
    ).view("v")


SAME = {
    "spelling": lambda b: (
        b.where("price>1")
        .key_by("auction")
        .window(ms.tumbling("10 seconds"))
        .aggregate(n=ms.count(), s=ms.sum("price"))
        .view("v")
    ),
    "operators": lambda b: (
        b.where(ms.col("price") > 1)
        .key_by("auction")
        .window(ms.tumbling("10 s"))
        .aggregate(n=ms.count(), s=ms.sum(ms.col("price")))
        .view("v")
    ),
    "comment": lambda b: (
        b.where("price > 1 -- only real ones")
        .key_by("auction")
        .window(ms.tumbling("10 s"))
        .aggregate(n=ms.count(), s=ms.sum("price"))
        .view("v")
    ),
    "retention": lambda b: (
        b.where("price > 1")
        .key_by("auction")
        .window(ms.tumbling("10 s"))
        .aggregate(n=ms.count(), s=ms.sum("price"))
        .view("v", retention="1 h")
    ),
}
OTHER = {
    "condition": lambda b: (
        b.where("price > 2")
        .key_by("auction")
        .window(ms.tumbling("10 s"))
        .aggregate(n=ms.count(), s=ms.sum("price"))
        .view("v")
    ),
    "no condition": lambda b: (
        b.key_by("auction").window(ms.tumbling("10 s")).aggregate(n=ms.count(), s=ms.sum("price")).view("v")
    ),
    "key": lambda b: (
        b.where("price > 1")
        .key_by(auction="auction % 2")
        .window(ms.tumbling("10 s"))
        .aggregate(n=ms.count(), s=ms.sum("price"))
        .view("v")
    ),
    "key name": lambda b: (
        b.where("price > 1")
        .key_by(a="auction")
        .window(ms.tumbling("10 s"))
        .aggregate(n=ms.count(), s=ms.sum("price"))
        .view("v")
    ),
    "size": lambda b: (
        b.where("price > 1")
        .key_by("auction")
        .window(ms.tumbling("11 s"))
        .aggregate(n=ms.count(), s=ms.sum("price"))
        .view("v")
    ),
    "slide": lambda b: (
        b.where("price > 1")
        .key_by("auction")
        .window(ms.hopping("10 s", "5 s"))
        .aggregate(n=ms.count(), s=ms.sum("price"))
        .view("v")
    ),
    "offset": lambda b: (
        b.where("price > 1")
        .key_by("auction")
        .window(ms.tumbling("10 s", offset="1 s"))
        .aggregate(n=ms.count(), s=ms.sum("price"))
        .view("v")
    ),
    "trigger": lambda b: (
        b.where("price > 1")
        .key_by("auction")
        .window(ms.tumbling("10 s"), trigger=ms.on_close())
        .aggregate(n=ms.count(), s=ms.sum("price"))
        .view("v")
    ),
    "aggregate": lambda b: (
        b.where("price > 1")
        .key_by("auction")
        .window(ms.tumbling("10 s"))
        .aggregate(n=ms.count(), s=ms.max("price"))
        .view("v")
    ),
    "argument": lambda b: (
        b.where("price > 1")
        .key_by("auction")
        .window(ms.tumbling("10 s"))
        .aggregate(n=ms.count(), s=ms.sum("price + 1"))
        .view("v")
    ),
    "one more": lambda b: (
        b.where("price > 1")
        .key_by("auction")
        .window(ms.tumbling("10 s"))
        .aggregate(n=ms.count(), s=ms.sum("price"), t=ms.count())
        .view("v")
    ),
    "exploded": lambda b: (
        b.flat_map(x="array(1)")
        .where("price > 1")
        .key_by("auction")
        .window(ms.tumbling("10 s"))
        .aggregate(n=ms.count(), s=ms.sum("price"))
        .view("v")
    ),
}


@pytest.mark.parametrize("build", SAME.values(), ids=SAME)
def test_the_same_content_has_the_same_fingerprint(build: Callable[[ms.Stream], Any]) -> None:
    assert fingerprint(build) == fingerprint()


def test_other_views_and_options_of_the_source_leave_a_fingerprint_alone() -> None:
    assert fingerprint(others=True) == fingerprint() == fingerprint(lateness="1 h", max_rows=5)
    assert fingerprint(schema=COLUMNS + ", unused STRING") == fingerprint()


@pytest.mark.parametrize("build", OTHER.values(), ids=OTHER)
def test_other_content_has_another_fingerprint(build: Callable[[ms.Stream], Any]) -> None:
    assert fingerprint(build) != fingerprint()


def test_another_type_of_an_aggregated_column_is_other_content() -> None:
    assert fingerprint(schema="auction BIGINT, price DOUBLE, ts TIMESTAMP") != fingerprint()


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    code = "from tests.unit.plan.test_identity import *; print(fingerprint())"
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ".:src"},
    )
    assert out.stdout.strip() == fingerprint()


def plan_id(**change: Any) -> str:
    given = {"path": "data", "where": "price > 1", "name": "v", "select": None, **change}
    flow = ms.Flow("f")
    bids = flow.source("bids", ms.files(given["path"], format="json"), schema=COLUMNS, event_time="ts")
    stream = bids.where(given["where"]).key_by("auction").aggregate(n=ms.count())
    (stream if given["select"] is None else stream.select("auction", m=given["select"])).view(given["name"])
    return plan(flow).id


def test_the_id_of_a_plan_covers_sources_views_and_what_follows_an_aggregate() -> None:
    ids = [
        plan_id(),
        plan_id(path="other"),
        plan_id(where="price > 2"),
        plan_id(name="w"),
        plan_id(select="n"),
        plan_id(select="n + 1"),
    ]
    assert len(set(ids)) == len(ids)
    assert plan_id() == plan_id()


def one(batch: Any) -> Any:
    return [x + 1 for x in batch]


def two(batch: Any) -> Any:
    return [x + 2 for x in batch]


class Share:
    def __init__(self, of: float) -> None:
        self.of = of

    def create(self) -> float:
        return 0.0

    def add(self, accumulator: float, value: float) -> float:
        return accumulator + value

    def merge(self, left: float, right: float) -> float:
        return left + right

    def result(self, accumulator: float) -> float:
        return accumulator / self.of


def closed_over(k: int) -> Callable[[int], int]:
    return lambda x: x * k


def with_default(x: int, k: int = 1) -> int:
    return x * k


def test_the_identity_of_code_is_stable_and_tells_bodies_apart() -> None:
    assert code_identity(one) == code_identity(one)
    assert code_identity(one) != code_identity(two)
    assert code_identity(lambda b: b.x) != code_identity(lambda b: b.y)
    assert code_identity(Share(1.0)) == code_identity(Share(1.0))


def test_the_identity_of_code_tells_what_it_closes_over() -> None:
    assert code_identity(closed_over(1)) == code_identity(closed_over(1))
    assert code_identity(closed_over(1)) != code_identity(closed_over(2))


def test_the_identity_of_code_tells_defaults_parameters_and_nested_constants() -> None:
    def other_default(x: int, k: int = 2) -> int:
        return x * k

    other_default.__qualname__ = with_default.__qualname__
    assert code_identity(with_default) != code_identity(other_default)
    assert code_identity(Share(1.0)) != code_identity(Share(2.0))
    assert code_identity(functools.partial(one, 1)) != code_identity(functools.partial(two, 1))
    assert code_identity(functools.partial(with_default, k=1)) != code_identity(functools.partial(with_default, k=2))


def test_an_aggregate_with_another_parameter_is_other_content() -> None:
    def shared(of: float) -> str:
        return fingerprint(
            lambda b: b.key_by("auction").aggregate(s=ms.user_aggregate(Share(of), "price", returns="DOUBLE")).view("v")
        )

    assert shared(1.0) == shared(1.0) != shared(2.0)
