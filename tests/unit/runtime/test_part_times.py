"""Where the time of an epoch goes: in its report, in its record and in EXPLAIN ANALYZE."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millstream.runtime.epoch import part_times
from millstream.runtime.epoch.part_times import PartTimes, mean_parts
from tests.unit.live.test_failures import Fragile
from tests.unit.live.world import BIDS, HOT

SHOWN = ["slice", "open", "engine", "stage", "commit", "deliver", "tidy"]
"""The parts of an epoch with an engine that measures none of its own."""


def test_parts_follow_one_another_and_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 11.0, 17.0, 17.5, 18.0])
    monkeypatch.setattr(part_times.time, "perf_counter", lambda: next(clock))
    times = PartTimes()
    times.end("slice")
    times.end_engine({"scan": 2.0, "operators": 3.0})  # one second was spent around the two
    times.end("commit")
    assert times.seconds == {"slice": 1.0, "scan": 2.0, "operators": 3.0, "engine": 1.0, "commit": 0.5}
    assert times.total == 8.0


def test_the_mean_of_a_part_is_over_all_epochs() -> None:
    resumed, next_one = {"scan": 1.0, "commit": 3.0}, {"slice": 1.0, "scan": 2.0}
    found = mean_parts([resumed, next_one])
    assert list(found.items()) == [("slice", 0.5), ("scan", 1.5), ("commit", 1.5)]
    assert mean_parts([]) == {}


def test_an_epoch_says_where_its_time_went(tmp_path: Path) -> None:
    with Fragile(tmp_path / "home") as home:
        session = home.session()
        for _ in session.execute(f"{BIDS}; {HOT}; INSERT INTO bids VALUES (7, 1, TIMESTAMP '2026-01-01 00:00:00')"):
            pass
        run = session.deployment.runs["bids"]
        list(session.execute("SELECT n FROM hot"))  # waits until the view has the row
        (answer,) = session.execute("EXPLAIN ANALYZE VIEW hot")
        shown = re.search(r"^  by part, in ms: (.*)$", answer.text or "", re.MULTILINE)
        assert shown is not None
        assert [part.split()[0] for part in shown[1].split(", ")] == SHOWN
        report, record = run.reports[-1], run.loop.book.read(run.reports[-1].number)  # type: ignore[union-attr]
        assert list(report.parts) == SHOWN
        assert sum(report.parts.values()) <= report.seconds
        assert record is not None and list(record.seconds) == SHOWN[:-1]
