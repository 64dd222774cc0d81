"""The memory of flows: an epoch that makes the process too large ends with a named error."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import MemoryExceeded
from millstream.home import Home
from millstream.plan.plan import Plan
from millstream.runtime.epoch.memory_limit import bounded, held, usual_limit
from millstream.runtime.flow_assembly import LoopOptions
from millstream.runtime.open_home import OpenHome
from millstream.runtime.supervision.supervisor import is_suspect
from tests.sql.engine import QueryEngine
from tests.unit.live.world import BIDS, HOT


class Large:
    """Something that an epoch has made."""


def grow(kept: list[weakref.ref[Large]]) -> None:
    large = Large()
    kept.append(weakref.ref(large))
    while large is not None:
        pass


def test_work_that_makes_the_process_too_large_is_ended_and_let_go_of() -> None:
    kept: list[weakref.ref[Large]] = []
    with (
        pytest.raises(MemoryExceeded, match=r"flow `f` needs more than 1\.0 GiB") as error,
        bounded("f", 1 << 30, lambda: 1 << 31),
    ):
        grow(kept)
    gc.collect()
    assert kept[0]() is None
    assert error.value.hint is not None and is_suspect(error.value)


def test_work_within_the_limit_is_not_touched_and_no_thread_is_left() -> None:
    before = threading.active_count()
    for limit in (0, 1 << 60):
        with bounded("f", limit):
            pass
    assert threading.active_count() == before
    for _ in range(200):  # an error that was on its way when the work ended does not come later
        with bounded("f", 1, lambda: 0):
            pass
    assert 0 < held() < 1 << 50


TRACED = """
import sys
from millstream.plan.plan import Plan
from millstream.runtime.epoch.memory_limit import bounded

def called():
    return 1

def work(limit):
    with bounded("f", limit, lambda: 2):
        for _ in range(50):
            called()

work(10)
for measured in range(30):  # an error that comes when the work has just ended
    try:
        work(1)
    except Exception as error:
        assert type(error).__name__ == "MemoryExceeded"
sys.settrace(lambda *given: None)
called()
print("went on")
"""


def test_code_goes_on_under_a_debugger_or_a_profiler() -> None:
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "went on\n", done.stderr


def test_an_error_that_is_on_its_way_when_the_work_ends_does_not_come_later() -> None:
    came = threading.Event()

    def measured() -> int:
        came.set()
        return 2

    for _ in range(3):
        came.clear()
        with suppress(MemoryExceeded), bounded("f", 1, measured):
            came.wait()
        for _ in range(1_000):
            came.is_set()


def test_the_limit_is_a_part_of_the_machine_or_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert usual_limit() > 1 << 28
    monkeypatch.setenv("MILLSTREAM_FLOW_MEMORY", "3GB")
    assert usual_limit() == 3 << 30


class Growing(QueryEngine):
    def run(self, *given: Any) -> Any:
        grow([])


class OpenGrown(OpenHome):
    def loop(self, plan: Plan, options: LoopOptions) -> Any:
        return super().loop(plan, LoopOptions(engine=Growing))


class Grown(Home):
    opens = OpenGrown


def test_a_flow_that_needs_too_much_memory_fails_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_FLOW_MEMORY", "16MB")
    with Grown(tmp_path) as home:
        session = home.session()
        list(session.execute(f"{BIDS}; {HOT}"))
        run = session.deployment.runs["bids"]
        run._supervisor.restarts = type(run._supervisor.restarts)(limit=0)
        list(session.execute("INSERT INTO bids VALUES (7, 1, TIMESTAMP '2026-01-01 00:00:00')"))
        with pytest.raises(MemoryExceeded):
            run.wait(timeout=60)
        assert home.flow_state("bids") == "failed: an epoch of the flow `bids` needs more than 16.0 MiB of memory"
