"""Sketches and percentiles in every kind of window: each answer is held against the values that are beside it."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from tests.local import LocalScript

AGGREGATES = {
    "xs": ms.collect("x"),
    "n": ms.count(),
    "middle": ms.median("x"),
    "quarters": ms.percentile("x", [0.25, 0.75]),
    "about": ms.approx_percentile("x", 0.5),
    "different": ms.approx_count_distinct("x"),
    "frequent": ms.approx_top_k("x", 2),
    "squares": ms.approx_f2("x", 4096),
    "some": ms.sample("x", 3),
    "set_of": ms.collect_set("x"),
    "usual": ms.mode("x"),
    "best": ms.max_by("y", "x"),
    "positive": ms.bool_and("x > 3"),
    "spread": ms.var_pop("x"),
}
WINDOWS: dict[str, dict[str, Any]] = {
    "everything": {},
    "tumbling": {"window": ms.tumbling("10 seconds")},
    "hopping": {"window": ms.hopping("10 seconds", "5 seconds"), "lateness": "5 seconds"},
    "closing": {"window": ms.hopping("10 seconds", "5 seconds"), "trigger": ms.on_close()},
    "session": {"window": ms.session("3 seconds")},
    "counted": {"window": ms.count_window(4)},
    "sliding": {"window": ms.count_window(6, slide=2)},
    "cumulating": {"window": ms.cumulating("5 seconds", "20 seconds")},
    "discarding": {
        "window": ms.tumbling("10 seconds"),
        "trigger": ms.repeatedly(ms.after_count(2)),
        "accumulation": ms.discarding(),
    },
}


def records(lots: random.Random, second: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": lots.randrange(40),
            "k": lots.randrange(3),
            "x": lots.choice((None, lots.randrange(12), lots.randrange(12))),
            "y": lots.randrange(5),
            "ts": max(0, second + lots.randrange(-4, 5)),
        }
        for _ in range(count)
    ]


def check(row: dict[str, Any]) -> None:
    """Whether the answers of a row are those of its values."""
    xs = row["xs"]
    counts = Counter(xs)
    assert row["different"] == len(counts)
    assert row["squares"] == sum(n * n for n in counts.values())
    assert row["set_of"] == sorted(counts)
    assert len(row["some"]) == min(3, len(xs)) and not Counter(row["some"]) - counts
    top = sorted(counts.items(), key=lambda i: (-i[1], i[0]))
    assert [(i["item"], i["count"]) for i in row["frequent"]] == top[:2]
    if not xs:
        assert all(row[c] is None for c in ("middle", "quarters", "about", "usual", "best", "positive", "spread"))
        return
    assert row["middle"] == statistics.median(xs)
    if len(xs) > 1:
        low, _, high = statistics.quantiles(xs, n=4, method="inclusive")
        assert row["quarters"] == pytest.approx([low, high])
    assert row["about"] == statistics.median_low(xs)
    assert row["usual"] == top[0][0]
    assert row["best"] is not None
    assert row["positive"] == (min(xs) > 3)
    assert row["spread"] == pytest.approx(statistics.pvariance(xs), abs=1e-9)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", [*WINDOWS, "corrected"])
def test_answers_of_every_kind_of_window_are_those_of_its_values(kind: str, tmp_path: Path) -> None:
    lots = random.Random(kind)
    flow = ms.Flow("f")
    more = {"key": "id"} if kind == "corrected" else {}
    schema = "id BIGINT, k BIGINT, x BIGINT, y BIGINT, ts TIMESTAMP"
    stream = flow.source("s", ms.memory(), schema=schema, event_time="ts", lateness="3 seconds", **more)
    how = WINDOWS.get(kind, {"window": ms.tumbling("10 seconds")})
    keyed = stream.key_by("k")
    (keyed.window(how["window"], **{n: v for n, v in how.items() if n != "window"}) if how else keyed).aggregate(
        **AGGREGATES
    ).view("v")
    seen = 0
    with LocalScript(flow, tmp_path) as script:
        for second in range(0, 60, 6):
            script.send("s", *records(lots, second, 25)).tick()
            for row in script.home.query("SELECT * FROM v").to_dicts():
                check(row)
                seen += 1
    assert seen > 20
