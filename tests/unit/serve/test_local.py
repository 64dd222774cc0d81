"""Readers over the socket: answers as asked, errors as raised, and nobody but the owner gets in."""

import os
import socket
import socketserver
import stat
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.errors import ConnectionLost, HomeDamaged, QueryError, StatementRefused, ViewNotFound
from millstream.result import Result
from millstream.serve import local
from millstream.serve.client import LocalClient
from millstream.serve.local import SOCKET, LocalServer


class Stub:
    """A home that answers from a table and fails on demand."""

    table = pa.table({"n": [1, 2], "d": pa.array([Decimal("1.5"), None], pa.decimal128(5, 2)), "s": ["é", None]})
    error: Exception | None = None

    def query(self, sql: str, *, failed_views: str = "error") -> Result:
        if self.error is not None:
            raise self.error
        return Result(self.table if sql == "SELECT" else pa.table({"sql": [sql]}))

    def views(self) -> list[dict[str, Any]]:
        return [{"view": "hot", "watermark": datetime(2026, 1, 1, tzinfo=UTC), "late": 0, "epoch": None}]

    def flows(self) -> list[dict[str, Any]]:
        return [{"flow": "f", "state": "running"}]

    def watermarks(self) -> list[dict[str, Any]]:
        return [{"flow": "f", "partition": 0, "holds": True, "since": datetime(2026, 1, 1, tzinfo=UTC)}]


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def server(tmp_path: Path, stub: Stub) -> Iterator[LocalServer]:
    made = LocalServer(tmp_path, stub)
    yield made
    made.close()


@pytest.fixture
def client(server: LocalServer, tmp_path: Path) -> Iterator[LocalClient]:
    made = LocalClient(tmp_path)
    yield made
    made.close()


def test_a_query_gives_the_table_as_it_is(client: LocalClient, stub: Stub) -> None:
    assert client.query("SELECT").to_arrow().equals(stub.table)
    assert client.query("x\ny'☃").to_dicts() == [{"sql": "x\ny'☃"}]


def test_views_and_flows_come_as_plain_rows(client: LocalClient) -> None:
    assert client.views() == [{"view": "hot", "watermark": "2026-01-01T00:00:00Z", "late": 0, "epoch": None}]
    assert client.flows() == [{"flow": "f", "state": "running"}]
    assert client.watermarks() == [{"flow": "f", "partition": 0, "holds": True, "since": "2026-01-01T00:00:00Z"}]


def test_an_empty_and_a_large_answer_come_whole(client: LocalClient, stub: Stub) -> None:
    for table in (pa.table({"n": pa.array([], pa.int64())}), pa.table({"n": range(300_000)})):
        stub.table = table
        assert client.query("SELECT").to_arrow().equals(table)


@pytest.mark.parametrize("kind", [ViewNotFound, StatementRefused, QueryError, HomeDamaged])
def test_an_error_is_raised_here_as_it_was_there(client: LocalClient, stub: Stub, kind: type[QueryError]) -> None:
    stub.error = kind("no `x`", detail="there are: y", hint="try y")
    with pytest.raises(kind) as caught:
        client.query("SELECT")
    assert type(caught.value) is kind
    assert (caught.value.message, caught.value.detail, caught.value.hint) == ("no `x`", "there are: y", "try y")
    stub.error = None
    assert len(client.query("SELECT")) == 2


def test_an_unexpected_failure_is_an_answer_too(client: LocalClient, stub: Stub) -> None:
    stub.error = ZeroDivisionError("secret inside")
    with pytest.raises(QueryError, match="unexpected fault") as caught:
        client.query("SELECT")
    assert "secret" not in str(caught.value) and "ZeroDivisionError" not in str(caught.value)


def test_readers_are_answered_at_the_same_time(server: LocalServer, tmp_path: Path, stub: Stub) -> None:
    """Eight readers meet inside `query`: were they answered one by one, none would get out."""
    together = threading.Barrier(8, timeout=60)
    plain = stub.query
    stub.query = lambda sql, **how: (together.wait(), plain(sql, **how))[1]  # type: ignore[method-assign]
    found: list[int] = []

    def ask() -> None:
        client = LocalClient(tmp_path)
        found.append(len(client.query("SELECT")))
        client.close()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [2] * 8


def test_only_the_owner_may_connect(server: LocalServer, tmp_path: Path) -> None:
    assert stat.S_IMODE(os.stat(tmp_path / SOCKET).st_mode) == 0o600


def test_a_home_with_a_long_path_is_served_too(tmp_path: Path, stub: Stub) -> None:
    home = tmp_path.joinpath(*["a-rather-long-name-for-a-folder"] * 5)
    home.mkdir(parents=True)
    server = LocalServer(home, stub)
    assert (home / SOCKET).is_symlink() and stat.S_IMODE(os.stat(home / SOCKET).st_mode) == 0o600
    target = (home / SOCKET).resolve()
    client = LocalClient(home)
    assert len(client.query("SELECT")) == 2
    client.close()
    server.close()
    assert not target.exists() and not target.parent.exists() and not os.path.lexists(home / SOCKET)


def test_a_socket_left_by_a_dead_process_is_replaced(tmp_path: Path, stub: Stub) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / SOCKET))
    dead.close()
    with pytest.raises(OSError, match="refused"):
        LocalClient(tmp_path)
    server = LocalServer(tmp_path, stub)
    client = LocalClient(tmp_path)
    assert client.flows()
    client.close()
    server.close()


def test_after_the_server_has_gone_a_reader_is_told(tmp_path: Path, stub: Stub) -> None:
    server = LocalServer(tmp_path, stub)
    client = LocalClient(tmp_path)
    assert client.flows()
    server.close()
    assert not (tmp_path / SOCKET).exists()
    with pytest.raises(QueryError):
        client.query("SELECT")
    client.close()
    with pytest.raises(OSError):
        LocalClient(tmp_path)


def test_closing_wakes_the_thread_that_waits_for_callers(
    tmp_path: Path, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However seldom it looks up by itself: homes are closed often, and quickly."""
    forever = socketserver.BaseServer.serve_forever
    monkeypatch.setattr(local._Server, "serve_forever", lambda self: forever(self, poll_interval=3600))
    made = LocalServer(tmp_path, stub)
    closing = threading.Thread(target=made.close, daemon=True)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()


def test_closing_waits_for_an_answer_that_is_under_way(tmp_path: Path) -> None:
    """The store cannot be closed under a query; one that comes later is refused."""
    asked, go = threading.Event(), threading.Event()

    class Slow(Stub):
        def query(self, sql: str, *, failed_views: str = "error") -> Result:
            asked.set()
            assert go.wait(30)
            return super().query(sql)

    made, found = LocalServer(tmp_path, Slow()), []
    first, second = LocalClient(tmp_path), LocalClient(tmp_path)
    assert second.flows()
    asking = threading.Thread(target=lambda: found.append(first.query("SELECT").to_dicts()), daemon=True)
    asking.start()
    assert asked.wait(30)
    closing = threading.Thread(target=made.close, daemon=True)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    go.set()
    closing.join(30)
    asking.join(30)
    assert not closing.is_alive() and len(found) == 1
    with pytest.raises(ConnectionLost):
        second.flows()
    first.close()
    second.close()
