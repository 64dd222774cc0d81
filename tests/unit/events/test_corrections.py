"""Records that revise and delete earlier ones: the view is as if only the last versions had ever come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import DefinitionError, SchemaError, Unsupported
from tests.local import LocalScript

SCHEMA = "id BIGINT, k STRING, v BIGINT, op STRING, ver BIGINT, ts TIMESTAMP"


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z"


def order(id: int, k: str, v: int, second: int, op: str = "I", ver: int | None = None) -> dict[str, Any]:
    return {"id": id, "k": k, "v": v, "op": op, "ver": ver, "ts": at(second)}


def flow(window: Any = None, *, lateness: str = "20 seconds", trigger: Any = None, **corrections: Any) -> ms.Flow:
    made = ms.Flow("orders")
    options = corrections or {"key": "id", "op": "op", "version": "ver"}
    orders = made.source("orders", ms.memory(), schema=SCHEMA, event_time="ts", **options)
    keyed = orders.where("v > 0").key_by("k")
    how = keyed.window(window or ms.tumbling("10 seconds"), trigger=trigger or ms.on_change(), lateness=lateness)
    how.aggregate(n=ms.count(), top=ms.max("v"), all=ms.collect("v"), mean=ms.avg("v")).view("w")
    return made


@pytest.fixture
def script(tmp_path: Path) -> Iterator[LocalScript]:
    with LocalScript(flow(), tmp_path) as made:
        yield made


def changes(script: LocalScript, *records: dict[str, Any]) -> list[tuple[Any, ...]]:
    script.send("orders", *records)
    script.tick()
    return sorted((op, r["window_start"].second, r["k"], r["n"], r["top"], r["all"]) for op, r in script.changes("w"))


def test_a_revision_takes_the_old_value_back_also_from_a_maximum(script: LocalScript) -> None:
    assert changes(script, order(1, "a", 5, 1), order(2, "a", 9, 2)) == [("+I", 0, "a", 2, 9, [5, 9])]
    assert changes(script, order(2, "a", 4, 2, "U", 2)) == [
        ("+U", 0, "a", 2, 5, [5, 4]),
        ("-U", 0, "a", 2, 9, [5, 9]),
    ]


def test_a_record_that_changes_its_key_leaves_one_group_and_joins_another(script: LocalScript) -> None:
    changes(script, order(1, "a", 5, 1), order(2, "a", 9, 2))
    assert changes(script, order(1, "b", 5, 1, "U", 2)) == [
        ("+I", 0, "b", 1, 5, [5]),
        ("+U", 0, "a", 1, 9, [9]),
        ("-U", 0, "a", 2, 9, [5, 9]),
    ]


def test_a_window_that_loses_its_last_record_leaves_the_view(script: LocalScript) -> None:
    changes(script, order(1, "a", 5, 1))
    assert changes(script, order(1, "a", 5, 9, "D", 2)) == [("-D", 0, "a", 1, 5, [5])]
    assert script.rows("w") == []
    assert changes(script, order(1, "a", 6, 2, "I", 3)) == [("+I", 0, "a", 1, 6, [6])]


def test_a_revision_that_the_condition_does_not_keep_is_a_deletion_there(script: LocalScript) -> None:
    changes(script, order(1, "a", 5, 1), order(2, "a", 7, 1))
    assert [c[:4] for c in changes(script, order(1, "a", -5, 1, "U", 2))] == [("+U", 0, "a", 1), ("-U", 0, "a", 2)]
    assert changes(script, order(3, "a", -1, 1)) == []
    assert script.rows("w$late") == []


def test_an_older_version_that_comes_later_changes_nothing(script: LocalScript) -> None:
    changes(script, order(1, "a", 5, 1, "I", 5))
    assert changes(script, order(1, "a", 9, 1, "U", 4)) == []
    assert changes(script, order(1, "a", 0, 1, "D", 6)) == [("-D", 0, "a", 1, 5, [5])]
    assert changes(script, order(1, "a", 9, 1, "U", 5)) == []


def test_of_several_versions_in_one_epoch_the_newest_counts(script: LocalScript) -> None:
    found = changes(script, order(1, "a", 5, 1, "I", 3), order(1, "a", 6, 1, "U", 4), order(1, "a", 7, 1, "U", 2))
    assert found == [("+I", 0, "a", 1, 6, [6])]


def test_a_past_window_is_revised_within_the_lateness_and_not_beyond(script: LocalScript) -> None:
    changes(script, order(1, "a", 5, 1))
    changes(script, order(9, "z", 1, 25))
    assert changes(script, order(1, "a", 6, 1, "U", 2)) == [("+U", 0, "a", 1, 6, [6]), ("-U", 0, "a", 1, 5, [5])]
    changes(script, order(8, "z", 1, 55))
    assert changes(script, order(1, "a", 7, 1, "U", 3), order(1, "a", 0, 1, "D", 4), order(2, "b", 1, 2)) == []
    reasons = [r["reason"] for r in script.rows("w$late")]
    assert sorted(reasons) == ["behind the watermark", "the record that it deletes is not held"]


def test_a_record_may_move_to_another_window(script: LocalScript) -> None:
    changes(script, order(1, "a", 5, 1))
    assert changes(script, order(1, "a", 5, 14, "U", 2)) == [("+I", 10, "a", 1, 5, [5]), ("-D", 0, "a", 1, 5, [5])]


def test_it_goes_on_after_a_crash(tmp_path: Path) -> None:
    with LocalScript(flow(), tmp_path) as script:
        changes(script, order(1, "a", 5, 1), order(2, "a", 9, 2))
        script.crash().resume()
        assert changes(script, order(2, "a", 0, 2, "D", 2)) == [("+U", 0, "a", 1, 5, [5]), ("-U", 0, "a", 2, 9, [5, 9])]


def test_without_op_and_version_the_later_record_of_a_key_counts(tmp_path: Path) -> None:
    with LocalScript(flow(key="id"), tmp_path) as script:
        changes(script, order(1, "a", 5, 1))
        assert changes(script, order(1, "a", 8, 1)) == [("+U", 0, "a", 1, 8, [8]), ("-U", 0, "a", 1, 5, [5])]


WINDOWS = [
    ms.tumbling("10 seconds"),
    ms.hopping("15 seconds", "10 seconds"),
    ms.cumulating("5 seconds", "20 seconds"),
    ms.calendar("day", zone="Europe/Berlin"),
    ms.everything(),
]

records = st.builds(
    order,
    st.integers(1, 4),
    st.sampled_from("ab"),
    st.integers(-1, 3),
    st.integers(0, 40),
    st.sampled_from(["I", "U", "D", "delete"]),
    st.integers(1, 6),
)


@settings(deadline=None, max_examples=6, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.sampled_from(WINDOWS), st.lists(st.lists(records, max_size=5), min_size=1, max_size=6))
def test_the_view_is_that_of_the_last_versions_alone(window: ms.Window, epochs: list[list[dict[str, Any]]]) -> None:
    """Against the same window over a source without corrections, given only the versions that count."""
    last: dict[int, tuple[int, int, dict[str, Any]]] = {}
    for place, record in enumerate(r for epoch in epochs for r in epoch):
        before = last.get(record["id"])
        if before is not None and record["ver"] < before[0]:
            continue
        same_epoch = before is not None and _epoch(epochs, before[1]) == _epoch(epochs, place)
        if before is not None and record["ver"] == before[0] and not same_epoch:
            continue
        last[record["id"]] = (record["ver"], place, record)
    kept = [r for _, _, r in sorted(last.values(), key=lambda e: e[1]) if r["op"] not in ("D", "delete")]
    lateness = "0 seconds" if window.is_global else "10 minutes"
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        with LocalScript(flow(window, lateness=lateness), one) as script:
            for epoch in epochs:
                script.send("orders", *epoch)
                script.tick()
            found = _rows(script)
        plain = ms.Flow("plain")
        orders = plain.source("orders", ms.memory(), schema=SCHEMA, event_time="ts", lateness="10 minutes")
        keyed = orders.where("v > 0").key_by("k").window(window, lateness=lateness)
        keyed.aggregate(n=ms.count(), top=ms.max("v"), mean=ms.avg("v")).view("w")
        with LocalScript(plain, other) as script:
            script.send("orders", *kept)
            script.tick()
            assert found == _rows(script)


def _epoch(epochs: list[list[dict[str, Any]]], place: int) -> int:
    for number, epoch in enumerate(epochs):
        if place < len(epoch):
            return number
        place -= len(epoch)
    raise AssertionError(place)


def _rows(script: LocalScript) -> list[tuple[Any, ...]]:
    shown = ("window_start", "window_end", "k", "n", "top", "mean")
    return sorted(tuple(str(r.get(c)) for c in shown) for r in script.rows("w"))


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (DefinitionError, lambda: flow(op="op")),
        (SchemaError, lambda: flow(key="nothing")),
        (SchemaError, lambda: flow(key="id", op="ver")),
        (SchemaError, lambda: flow(key="id", version="op")),
        (DefinitionError, lambda: flow(key=())),
        (Unsupported, lambda: flow(ms.session("5 seconds"))),
        (Unsupported, lambda: flow(ms.count_window(3))),
        (Unsupported, lambda: flow(trigger=ms.once(ms.on_change()))),
    ],
)
def test_what_is_not_defined_is_refused(error: type[Exception], make: Any) -> None:
    with pytest.raises(error):
        make()
