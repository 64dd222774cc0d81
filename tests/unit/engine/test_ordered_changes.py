"""Processes and patterns over the changes of another operator, in event-time order: on the executors, with the results
of the driver. Rows with equal times are ordered by their content.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.testing.script import Crash
from tests.accounting import assert_balanced
from tests.sql.engine import QueryScript

BASE = 1_767_225_600
VIEWS = ("trail", "falls")
PLACED = [("inline", 1), ("spread", 1), ("spread", 3), ("spread", 7)]


@dataclass
class Seen:
    text: str = ""


class Trail(ms.Process):
    """All rows of a key so far, in order."""

    state = Seen

    def on_row(self, row: Any, state: Seen, ctx: ms.Context) -> Any:
        state.text += f" {row.shop}{row.n}"
        return {"part": ctx.key, "text": state.text}


def flow() -> ms.Flow:
    made = ms.Flow("orders")
    orders = made.source("orders", ms.memory(), schema="shop BIGINT, v BIGINT, ts TIMESTAMP", event_time="ts")
    counts = orders.key_by("shop").window(ms.tumbling("10 seconds")).aggregate(n=ms.count(), s=ms.sum("v"))
    parts = counts.with_columns(part="shop % 2")
    parts.key_by("part").process(Trail(), schema="part BIGINT, text STRING", ordered=True).view("trail")
    falls = ms.pattern().then("high", "n > 1").followed_by("low", "n < high.n")
    parts.key_by("part").match(falls, shop="high.shop", was="high.n", other="low.shop", now="low.n").view("falls")
    return made


def sent() -> list[list[dict[str, Any]]]:
    chance = random.Random(3)
    return [
        [
            {"shop": chance.randrange(6), "v": chance.randrange(9), "ts": BASE + 30 * e + chance.randrange(30)}
            for _ in range(25)
        ]
        for e in range(4)
    ]


def run(folder: Path, placement: str, shards: int, *, crash: bool) -> dict[str, list[str]]:
    with QueryScript(flow(), folder, placement=placement, shards=shards) as script:
        graph = script._loop.engine.graph  # type: ignore[union-attr]
        assert not graph.reasons, "no operator stays in the driver"
        for number, rows in enumerate(sent()):
            script.send("orders", *rows)
            if crash and number == 2:
                script.crash(at="before commit")
                with pytest.raises(Crash):
                    script.tick()
                script.resume()
            script.tick()
        assert_balanced(script.home)
        loads = [set(r.output.loads) for r in script.reports if r.output.tallies]
        assert all(set(VIEWS) <= each for each in loads) is (placement == "spread")
        return {view: sorted(map(repr, script.rows(view))) for view in VIEWS}


@pytest.mark.parametrize(("placement", "shards"), PLACED)
def test_results_do_not_depend_on_the_placement(tmp_path: Path, placement: str, shards: int) -> None:
    expected = run(tmp_path / "inline", "inline", 1, crash=False)
    assert all(expected.values())
    assert run(tmp_path / "placed", placement, shards, crash=True) == expected
