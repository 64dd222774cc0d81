"""The ordered merge: one stream in the order of event time, whatever the arrival."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import millstream as ms
from millstream.errors import DefinitionError, Unsupported
from millstream.testing.script import Crash
from tests.local import LocalScript

SCHEMA = "v BIGINT, ts TIMESTAMP"


def flow() -> ms.Flow:
    made = ms.Flow("merged")
    a = made.source("a", ms.memory(partitions=2), schema=SCHEMA, event_time="ts", lateness="2 seconds")
    b = made.source("b", ms.memory(), schema=SCHEMA, event_time="ts")
    ms.merge(a, b).view("all")
    return made


def row(v: int, second: int) -> dict[str, Any]:
    return {"v": v, "ts": f"2026-01-01T00:00:{second:02d}Z"}


def values(script: LocalScript) -> list[int]:
    script.tick()
    return [r["v"] for _, r in script.changes("all")]


def test_rows_wait_for_the_watermark_of_all_sources_and_partitions(tmp_path: Path) -> None:
    with LocalScript(flow(), tmp_path) as script:
        script.send("a", row(5, 5), row(3, 3)).send("a", row(4, 4), partition=1)
        script.send("b", row(-4, 4), row(9, 9))
        assert values(script) == []
        script.send("a", row(12, 12))
        assert values(script) == []
        script.send("a", row(13, 13), partition=1)
        assert values(script) == [3, 4, -4, 5]


def test_rows_at_the_watermark_itself_still_wait(tmp_path: Path) -> None:
    with LocalScript(flow(), tmp_path) as script:
        script.send("a", row(8, 8)).send("a", row(10, 10), partition=1).send("b", row(6, 6), row(20, 20))
        script.send("a", row(1, 10))
        assert values(script) == [6]
        script.send("a", row(2, 11)).send("a", row(3, 11), partition=1)
        assert values(script) == [8]


def test_a_row_whose_time_is_past_is_late(tmp_path: Path) -> None:
    with LocalScript(flow(), tmp_path) as script:
        script.send("a", row(10, 10)).send("a", row(10, 10), partition=1).send("b", row(10, 10))
        script.tick()
        script.send("b", row(7, 7), row(8, 8))
        script.tick()
        late = script.rows("all$late")
        assert [(r["reason"], r["record"][:6]) for r in late] == [("behind the watermark", '{"v":7')]
        script.end("a").end("b")
        script.tick()
        assert [r["v"] for r in script.rows("all")] == [8, 10, 10, 10]


@pytest.mark.parametrize("step", ["before work", "before commit", "after commit", "after close"])
def test_nothing_is_lost_or_told_twice_over_a_crash(tmp_path: Path, step: str) -> None:
    with LocalScript(flow(), tmp_path) as script:
        script.send("a", row(1, 1), row(5, 9)).send("a", row(2, 1), row(6, 9), partition=1).send("b", row(3, 1))
        script.tick()
        script.send("b", row(9, 9)).crash(step)
        with pytest.raises(Crash):
            script.tick()
        script.resume()
        script.end("a").end("b")
        script.tick()
        assert [r["v"] for r in script.rows("all")] == [1, 2, 3, 5, 6, 9]


arrivals = st.lists(st.tuples(st.sampled_from(["a0", "a1", "b"]), st.integers(0, 9)), max_size=12)


@settings(deadline=None, max_examples=12, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(arrivals, st.lists(st.integers(1, 4), max_size=6), st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_the_arrival(
    given_rows: list[tuple[str, int]], cuts: list[int], random: Any
) -> None:
    """Rows of a partition come in order; how partitions and epochs interleave must not matter."""
    per: dict[str, list[tuple[int, int]]] = {"a0": [], "a1": [], "b": []}
    for number, (place, second) in enumerate(sorted(given_rows, key=lambda r: r[1])):
        per[place].append((number, second))
    expected = [v for place in ("a0", "a1", "b") for v, _ in per[place]]
    times = {v: s for rows in per.values() for v, s in rows}
    expected = sorted(expected, key=lambda v: (times[v], next(p for p in per if (v, times[v]) in per[p])))
    with TemporaryDirectory() as home, LocalScript(flow(), home) as script:
        found: list[int] = []
        left = {place: list(rows) for place, rows in per.items()}
        for cut in [*cuts, 10**6]:
            for _ in range(cut):
                waiting = [place for place, rows in left.items() if rows]
                if not waiting:
                    break
                place = random.choice(waiting)
                v, second = left[place].pop(0)
                script.send(place[0], row(v, second), partition=int(place[1:] or 0))
            found += values(script)
        script.end("a").end("b")
        found += values(script)
        assert found == expected
        assert script.rows("all$late") == []


def test_what_cannot_be_merged_is_refused() -> None:
    made = ms.Flow("f")
    a = made.source("a", ms.memory(), schema=SCHEMA, event_time="ts")
    untimed = made.source("u", ms.memory(), schema=SCHEMA)
    with pytest.raises(DefinitionError, match="needs an event time"):
        ms.merge(a, untimed)
    with pytest.raises(DefinitionError, match="event_time only"):
        ms.merge(a, order="arrival")
    with pytest.raises(Unsupported):
        ms.merge(a.window(ms.tumbling("1 second")).aggregate(n=ms.count()))
