"""The memory of several questions at once: their sum has a bound, and small ones are always answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from millstream.budget import Budget, counted_until_sent
from millstream.errors import LimitExceeded
from millstream.home import Home
from millstream.limits import Limits, Watch
from millstream.reader import Reader
from millstream.serve import wire as wires
from millstream.serve.local import SOCKET
from millstream.serve.wire import Wire

WIDE = "SELECT i, s FROM t"
"""Answered in the process of the home, with about 20 MB."""
APART = "SELECT size(sequence(1, i + 100000)) AS n FROM t LIMIT 1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.setenv("MILLSTREAM_QUERY_MEMORY_TOTAL", "48MB")
    with Home(tmp_path / "home", query_timeout=30, query_memory="32MB") as opened:
        opened.put_table("t", pa.table({"i": range(100_000), "s": ["x" * 200] * 100_000}))
        yield opened


def slow_reader(home: Home) -> Wire:
    """A client that asks for much, and takes nothing of the answer but its beginning."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(str(home.path / SOCKET))
    wire = Wire(sock)
    wire.send_bytes(wires.greeting(), seconds=30)
    assert wire.line(seconds=30) == wires.greeting()
    wire.send({"id": 1, "call": "query"}, WIDE.encode(), seconds=30)
    assert wire.receive(wait=30, seconds=30) is not None
    return wire


def test_answers_that_nobody_takes_count_until_their_readers_are_gone(home: Home) -> None:
    readers = [slow_reader(home), slow_reader(home)]
    with Reader(home.path) as reader:
        with pytest.raises(LimitExceeded, match=r"together would use more than 48\.0 MiB") as refused:
            reader.query(WIDE)
        assert "MILLSTREAM_QUERY_MEMORY_TOTAL" in str(refused.value.hint)
        assert reader.query("SELECT count(*) AS n FROM t").to_dicts() == [{"n": 100_000}]  # a small one is answered
        for wire in readers:
            wire.close()
        with home.store.budget._changed:
            assert home.store.budget._changed.wait_for(lambda: home.store.budget._held == 0, 30)
        assert len(reader.query(WIDE)) == 100_000


def test_a_session_cannot_lift_the_bound_of_all(home: Home) -> None:
    session = home.session(start=False)
    list(session.execute("SET query_memory = '0'"))
    for sql in (f"{WIDE} UNION ALL {WIDE} UNION ALL {WIDE}", "SELECT length(repeat('x', 100000000)) AS n"):
        with pytest.raises(LimitExceeded, match=r"48\.0 MiB"):
            list(session.execute(sql))


def test_questions_in_processes_of_their_own_take_turns(home: Home) -> None:
    budget, most = home.store.budget, 0
    done = threading.Event()

    def look() -> None:
        nonlocal most
        while not done.is_set():
            with budget._changed:
                budget._changed.wait(0.5)
                most = max(most, budget._held)

    looking = threading.Thread(target=look)
    looking.start()
    answers: list[object] = []

    def ask() -> None:
        with Reader(home.path) as reader:
            answers.append(reader.query(APART).to_dicts())

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    done.set()
    looking.join()
    assert answers == [[{"n": 100_000}]] * 2
    assert 0 < most <= 48 << 20
    assert budget.held == 0


def test_a_question_that_waits_in_vain_says_why() -> None:
    budget = Budget(100 << 20)
    forever = Limits(0, 0)
    with budget.claim() as first, Watch(forever, lambda: None) as watch:
        first.reserve(80 << 20, watch)
        with (
            budget.claim() as second,
            Watch(Limits(0.01, 0), lambda: None) as hasty,
            pytest.raises(LimitExceeded, match="together") as refused,
        ):
            second.reserve(30 << 20, hasty)
        assert "80.0 MiB are in use" in str(refused.value.detail)
        assert budget.held == 80 << 20
    assert budget.held == 0


def test_an_answer_counts_while_its_table_is_kept() -> None:
    budget = Budget(100 << 20)
    table = pa.table({"i": range(1_000_000)})
    with budget.claim() as claim, counted_until_sent():
        claim.grow_to(table.nbytes)
        claim.pass_on(table)
    assert budget.held > 6 << 20
    del table
    assert budget.held == 0
    with budget.claim() as claim:  # what this process keeps for itself is its own affair
        claim.grow_to(8 << 20)
    assert budget.held == 0


def test_of_several_questions_the_large_ones_are_stopped() -> None:
    budget = Budget(100 << 20)
    with budget.claim(), budget.claim():
        assert budget.exceeded(used=90 << 20, own=90 << 20) is None
        assert budget.exceeded(used=110 << 20, own=100 << 20) is not None
        assert budget.exceeded(used=110 << 20, own=10 << 20) is None
