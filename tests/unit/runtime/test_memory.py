"""The memory of flows: an epoch that makes the process too large ends with a named error."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from millstream.errors import MemoryExceeded
from millstream.home import Home
from millstream.runtime.memory import bounded, held, usual_limit
from millstream.runtime.supervisor import is_suspect
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


def test_the_limit_is_a_part_of_the_machine_or_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert usual_limit() > 1 << 28
    monkeypatch.setenv("MILLSTREAM_FLOW_MEMORY", "3GB")
    assert usual_limit() == 3 << 30


class Growing(QueryEngine):
    def run(self, *given: Any) -> Any:
        grow([])


class Grown(Home):
    def loop(self, planned: Any, **options: Any) -> Any:
        del options
        return super().loop(planned, engine=Growing)


def test_a_flow_that_needs_too_much_memory_fails_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_FLOW_MEMORY", "16MB")
    with Grown(tmp_path) as home:
        session = home.session()
        list(session.execute(f"{BIDS}; {HOT}"))
        run = session.live.runs["bids"]
        run._supervisor.restarts = type(run._supervisor.restarts)(limit=0)
        list(session.execute("INSERT INTO bids VALUES (7, 1, TIMESTAMP '2026-01-01 00:00:00')"))
        with pytest.raises(MemoryExceeded):
            run.wait(timeout=60)
        assert home.flow_state("bids") == "failed: an epoch of the flow `bids` needs more than 16.0 MiB of memory"
