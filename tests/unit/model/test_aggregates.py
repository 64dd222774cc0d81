"""Aggregates as values: their settings, their types, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.errors import DefinitionError, SchemaError
from millstream.model.aggregates.aggregate import Aggregate, Kind, settings_of
from millstream.model.types.schema import ddl_type
from millstream.plan.planner import plan
from tests.sql.engine import QueryScript

SCHEMA = "k BIGINT, x BIGINT, f DOUBLE, d DECIMAL(10, 2), s STRING, ts TIMESTAMP"


def stream() -> ms.Stream:
    return ms.Flow("f").source("s", ms.memory(), schema=SCHEMA, event_time="ts")


def test_a_kind_equals_its_name_and_keeps_its_settings_on_its_way_to_the_executors() -> None:
    kind = Kind("sample", 7)
    assert kind == "sample"
    assert {"sample": 1}[kind] == 1
    again = pickle.loads(pickle.dumps(kind))
    assert again == "sample" and settings_of(again) == (7,)
    assert f"{kind}" == "sample" and repr(kind) != repr(Kind("sample", 8))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ms.percentile("x", 0.5), ms.percentile("x", 0.9)),
        (ms.percentile("x", 0.5), ms.percentile("x", [0.5])),
        (ms.approx_count_distinct("x"), ms.approx_count_distinct("x", 13)),
        (ms.approx_top_k("x", 5), ms.approx_top_k("x", 6)),
        (ms.sample("x", 5), ms.sample("x", 6)),
    ],
)
def test_other_settings_are_another_view(one: Aggregate, other: Aggregate) -> None:
    ids = []
    for aggregate in (one, other, one):
        made = stream()
        made.key_by("k").aggregate(a=aggregate).view("v")
        ids.append(plan(made.flow).id)
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize(
    ("aggregate", "kind"),
    [
        (ms.approx_count_distinct("s"), "BIGINT"),
        (ms.approx_f2("s"), "DOUBLE"),
        (ms.median("x"), "DOUBLE"),
        (ms.percentile("d", [0.1]), "ARRAY<DOUBLE>"),
        (ms.percentile_disc("x", 0.1), "DOUBLE"),
        (ms.approx_percentile("x", 0.1), "BIGINT"),
        (ms.approx_percentile("d", (0.1, 0.2)), "ARRAY<DECIMAL(10, 2)>"),
        (ms.approx_top_k("s"), "ARRAY<STRUCT<`item`: STRING, `count`: BIGINT>>"),
        (ms.sample("f", 3), "ARRAY<DOUBLE>"),
        (ms.collect_set("s"), "ARRAY<STRING>"),
        (ms.mode("s"), "STRING"),
        (ms.bool_or("x > 1"), "BOOLEAN"),
        (ms.count_if("x > 1"), "BIGINT"),
    ],
    ids=str,
)
def test_the_type_of_an_answer_is_known_early(aggregate: Aggregate, kind: str) -> None:
    found = stream().key_by("k").aggregate(a=aggregate).schema.field("a").type
    assert found is not None and ddl_type(found) == kind


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ms.percentile("x", 1.5),
        lambda: ms.percentile("x", []),
        lambda: ms.percentile("x", [0.5, -0.1]),
        lambda: ms.percentile("x", True),
        lambda: ms.percentile("x", "0.5"),
        lambda: ms.approx_percentile("x", 0.5, 1),
        lambda: ms.approx_count_distinct("x", 3),
        lambda: ms.approx_count_distinct("x", 22),
        lambda: ms.approx_count_distinct("x", 12.5),  # type: ignore[arg-type]
        lambda: ms.approx_top_k("x", 0),
        lambda: ms.approx_top_k("x", 11, tracked=10),
        lambda: ms.approx_f2("x", 1),
        lambda: ms.sample("x", 0),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        wrong()
    assert caught.value.hint


@pytest.mark.parametrize(
    "aggregate", [ms.median("s"), ms.approx_percentile("s", 0.5), ms.bool_and("x"), ms.bool_or("s")], ids=str
)
def test_arguments_of_another_type_are_refused(aggregate: Aggregate) -> None:
    with pytest.raises(SchemaError):
        stream().key_by("k").aggregate(a=aggregate)


def test_chosen_values_follow_a_view_that_changes(tmp_path: Path) -> None:
    made = stream()
    totals = made.key_by("k").aggregate(n=ms.count(), t=ms.sum("x"))
    totals.aggregate(
        middle=ms.median("t"),
        about=ms.approx_percentile("t", 0.5),
        different=ms.approx_count_distinct("n"),
        frequent=ms.approx_top_k("n", 1),
        squares=ms.approx_f2("n"),
        some=ms.sample("k", 2),
        best=ms.max_by("k", "t"),
        worst=ms.min_by("k", "t"),
        usual=ms.mode("n"),
        counts=ms.collect_set("n"),
        busy=ms.bool_or("n > 2"),
    ).view("over")
    sent = [[(1, 5), (2, 7), (3, 1)], [(1, 10), (3, 1)], [(3, 1), (4, -50)], [(2, -100), (1, 1)]]
    with QueryScript(made.flow, tmp_path) as script:
        groups: dict[int, list[int]] = {}
        for second, epoch in enumerate(sent):
            for k, x in epoch:
                groups.setdefault(k, []).append(x)
            script.send("s", *({"k": k, "x": x, "ts": second} for k, x in epoch)).tick()
            totals_now = sorted((sum(v), k) for k, v in groups.items())
            counts = sorted(len(v) for v in groups.values())
            (row,) = script.home.query("SELECT * FROM over").to_dicts()
            middle = len(totals_now) // 2
            odd = len(totals_now) % 2
            assert row["middle"] == (totals_now[middle][0] + totals_now[middle - 1 + odd][0]) / 2
            assert row["about"] == totals_now[middle - 1 + odd][0]
            assert row["different"] == len(set(counts))
            assert row["frequent"][0]["count"] == max(counts.count(n) for n in counts)
            assert row["squares"] == sum(counts.count(n) ** 2 for n in set(counts))
            assert len(row["some"]) == 2 and set(row["some"]) <= set(groups)
            assert (row["best"], row["worst"]) == (totals_now[-1][1], totals_now[0][1])
            assert row["usual"] == min(counts, key=lambda n: (-counts.count(n), n))
            assert row["counts"] == sorted(set(counts))
            assert row["busy"] == (max(counts) > 2)
