"""A failure inside a kernel, a merge of runs, retention or the upkeep of files: each guarantee holds through it.

(Failures between the steps of an epoch are in test_log_flows.py.) The flow is stopped by an exception in the middle of
the part, dropped with all it has in memory, and started again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.engine.driver import driver
from millstream.runtime.epoch import compactor
from millstream.runtime.epoch.kept_versions import Upkeep
from millstream.state import run as runs
from millstream.store import epoch_commit
from millstream.testing.script import Crash
from tests.local import LocalScript
from tests.unit.pipelines.test_log_flows import BIDS, GUARANTEES, bid, replayed, shown, with_topic

EPOCHS = 14

PLACES: dict[str, tuple[Any, str]] = {
    "inside a kernel": (driver, "advance"),
    "while a run is written": (runs.RunWriter, "finish"),
    "inside compaction": (compactor, "merge"),
    "inside retention": (epoch_commit, "_retain"),
    "inside the upkeep of files": (Upkeep, "after"),
}


def flow_of(guarantee: str) -> ms.Flow:
    flow = ms.Flow("auctions", guarantee=guarantee)
    bids = flow.source("bids", ms.log("bids"), schema=BIDS, event_time="ts")
    bids.key_by("auction").aggregate(n=ms.count(), top=ms.max("price")).view("totals", changes_to=ms.log("changes"))
    bids.select("price", "ts").view("all_bids", retention="1 hour")
    bids.select("price").sink("prices", ms.log("prices"))
    return flow


def failing(real: Callable[..., Any], on: int) -> Callable[..., Any]:
    """The real thing, but the call of this number raises behind its work."""
    calls = iter(range(on + 1))

    def work(*given: Any, **named: Any) -> Any:
        done = real(*given, **named)
        if next(calls, None) == on:
            raise Crash(f"call {on}")
        return done

    return work


@pytest.mark.sampled(5)
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("place", PLACES)
def test_a_failure_in_the_middle_of_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, guarantee: str
) -> None:
    owner, name = PLACES[place]
    crashed_in = 0
    with LocalScript(flow_of(guarantee), with_topic(tmp_path / "home", 1), shards=1) as script:
        for epoch in range(EPOCHS):
            script.home.topic("bids").append([bid(epoch % 3, 100 + epoch, epoch)])
            with monkeypatch.context() as patch:
                if not crashed_in and epoch >= 5:
                    patch.setattr(owner, name, failing(getattr(owner, name), 0))
                try:
                    script.tick()
                except Crash:
                    crashed_in = epoch
            if crashed_in == epoch and crashed_in:
                script.crash()
                script.resume()
                script.tick()
        assert crashed_in, "the part was reached"
        counted = Counter(r["price"] for r in script.written("prices"))
        every = Counter(100 + e for e in range(EPOCHS))
        totals = {r["auction"]: r["n"] for r in script.rows("totals")}
        if guarantee == "at_most_once":
            assert not counted - every, "nothing twice"
            assert set((every - counted).elements()) <= {100 + crashed_in}, "only the epoch that failed is missing"
            skipped = script.home.store.last("auctions").progress["skipped"]["bids"]
            assert skipped == sum((every - Counter(r["price"] for r in script.rows("all_bids"))).values())
        else:
            if guarantee == "exactly_once":
                assert counted == every
                assert replayed(script.written("changes")) == shown(script)
            else:
                assert not every - counted, "nothing lost"
                assert set((counted - every).elements()) <= {100 + crashed_in}
            assert totals == {a: len(range(a, EPOCHS, 3)) for a in range(3)}
            assert Counter(r["price"] for r in script.rows("all_bids")) == every
