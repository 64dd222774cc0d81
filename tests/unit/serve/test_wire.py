"""The socket protocol against hostile and broken clients: each gets an error or an end, all others right answers."""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from millstream.errors import Cancelled, ConnectionLost, QueryError
from millstream.limits import Limits, Watch
from millstream.live.answer import Answer, Changes
from millstream.result import Result
from millstream.serve import wire as wires
from millstream.serve.client import LocalClient
from millstream.serve.local import SOCKET, LocalServer, ServerBounds
from millstream.serve.replies import Received
from millstream.serve.wire import GREETING, LONGEST_BODY, LONGEST_HEAD, MARK, Closed, Wire, greeting


class Echo:
    """A home that answers every question with its text, and every session with its own name."""

    def __init__(self) -> None:
        self.sessions = 0

    def query(self, sql: str, *, failed_views: str = "error") -> Result:
        if sql == "wait":
            stopped = threading.Event()
            with Watch(Limits(0, 0), stopped.set) as watch:
                assert stopped.wait(60)
            watch.check()
        return Result(pa.table({"sql": [sql]}))

    def views(self) -> list[dict[str, Any]]:
        return [{"view": "hot"}]

    flows = watermarks = views

    def checkpoint(self, name: str, to: str | None) -> Path:
        return Path(to or name)

    def session(self) -> Session:
        self.sessions += 1
        return Session(self.sessions)


class Session:
    def __init__(self, number: int) -> None:
        self.number = number

    def execute(self, sql: str, *, name: str = "SQL") -> Iterator[Answer]:
        if sql == "subscribe":
            yield Answer(changes=self._changes())
            return
        for part in sql.split(";"):
            yield Answer(message=f"{self.number} {part}", result=Result(pa.table({"sql": [part]})))

    def _changes(self) -> Iterator[Changes]:
        for epoch in range(1, 1_000_000):
            yield Changes(epoch, pa.table({"op": ["+I"], "n": [epoch]}) if epoch < 3 else None, resume=f"after {epoch}")


@contextmanager
def serving(folder: Path, **bounds: Any) -> Iterator[LocalServer]:
    """A server that is closed at the end, and has then neither threads nor descriptors left."""
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    server = LocalServer(folder, Echo(), bounds=ServerBounds(**bounds))
    try:
        yield server
    finally:
        server.close()
    assert server.connections == 0
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name or thread.name == "millstream-readers":
            thread.join(30)
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == (files, threads)


@contextmanager
def raw(folder: Path, *, greet: bool = True) -> Iterator[socket.socket]:
    """A connection without a client on it."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(str(folder / SOCKET))
        if greet:
            sock.sendall(greeting())
            assert Wire(sock).line(seconds=60) == greeting()
        yield sock


def frame(head: Any, body: bytes = b"", *, mark: bytes = MARK, lengths: tuple[int, int] | None = None) -> bytes:
    text = head if isinstance(head, bytes) else orjson.dumps(head)
    return struct.pack(">4sII", mark, *(lengths or (len(text), len(body)))) + text + body


def all_frames(sock: socket.socket) -> list[dict[str, Any]]:
    """The heads of all frames up to the end of the connection."""
    wire, found = Wire(sock), []
    with suppress(Closed):  # a server that closes with bytes unread resets the connection
        while (got := wire.receive(wait=60, seconds=60)) is not None:
            found.append(got.head)
    return found


def read_to_the_end(sock: socket.socket) -> None:
    with suppress(ConnectionResetError):
        while sock.recv(1 << 16):
            pass


def check_a_good_client(folder: Path, said: str) -> None:
    client = LocalClient(folder)
    assert client.query(said).to_dicts() == [{"sql": said}]
    assert [a.message[2:].strip() for a in client.session().execute(f"a {said};b")][-1].endswith("b")
    assert client.views() == [{"view": "hot"}]
    client.close()


def test_a_statement_of_any_size_up_to_the_bound_is_answered_and_no_answer_is_shifted(tmp_path: Path) -> None:
    with serving(tmp_path):
        client = LocalClient(tmp_path)
        for size in (1, 1 << 20, (1 << 20) + 1, 3 << 20, LONGEST_BODY):
            long = "x" * size
            assert client.query(long).to_arrow()["sql"][0].as_py() == long
            assert client.query("SELECT 3").to_dicts() == [{"sql": "SELECT 3"}]
        with pytest.raises(QueryError, match="too large") as refused:
            client.query("x" * (LONGEST_BODY + 1))
        assert f"{LONGEST_BODY:,}" in str(refused.value.detail)
        assert client.query("SELECT 3").to_dicts() == [{"sql": "SELECT 3"}]
        client.close()


def test_a_giant_gets_one_error_with_its_id_and_then_the_end(tmp_path: Path) -> None:
    head = orjson.dumps({"id": 7, "call": "query"})
    with serving(tmp_path):
        for lengths, id in (
            ((len(head), LONGEST_BODY + 1), 7),
            ((len(head), 2**32 - 1), 7),
            ((LONGEST_HEAD + 1, 0), None),
        ):
            with raw(tmp_path) as sock:
                sock.sendall(frame(head, b"x" * 100, lengths=lengths))
                (only,) = all_frames(sock)
                assert (only["id"], only["ok"]) == (id, False) and "too large" in only["error"]["message"]
        check_a_good_client(tmp_path, "after giants")


def test_pipelined_requests_are_answered_in_order_under_their_ids(tmp_path: Path) -> None:
    with serving(tmp_path), raw(tmp_path) as sock:
        sent = [frame({"id": i, "call": "query"}, f"q{i}".encode()) for i in (5, 3, 9, 2**62)]
        sock.sendall(b"".join([sent[0], frame(b"nonsense"), sent[1], frame({"id": 4, "call": "drop"}), *sent[2:]]))
        sock.shutdown(socket.SHUT_WR)
        found = all_frames(sock)
        assert [(f["id"], f["ok"]) for f in found] == [
            (5, True), (None, False), (3, True), (4, False), (9, True), (2**62, True),
        ]  # fmt: skip


DEEP = b"[" * 100_000
WRONG: list[Any] = [
    b"", b"nonsense", b"[]", b"5", b"null", b"{}", b'"text"', b"\xff\xfe", DEEP, b'{"id": 1, "call": ' + DEEP,
    {"call": "views"}, {"id": "1", "call": "views"}, {"id": -1, "call": "views"}, {"id": True, "call": "views"},
    {"id": 1.5, "call": "views"}, {"id": 1}, {"id": 1, "call": None}, {"id": 1, "call": ["views"]},
    {"id": 1, "call": {"a": 1}}, {"id": 1, "call": "reads"}, {"id": 1, "call": "__class__"},
    {"id": 1, "call": "sql", "name": 5}, {"id": 1, "call": "checkpoint"}, {"id": 1, "call": "checkpoint", "name": []},
    {"id": 1, "call": "checkpoint", "name": "a", "to": 1},
]  # fmt: skip


def test_a_frame_whose_content_is_wrong_gets_an_error_and_the_next_one_an_answer(tmp_path: Path) -> None:
    with serving(tmp_path), raw(tmp_path) as sock:
        for number, head in enumerate(WRONG, 100):
            sock.sendall(
                frame(head) + frame({"id": number, "call": "query"}, b"\xff") + frame({"id": number, "call": "views"})
            )
            wire = Wire(sock)
            heads = [wire.receive(wait=60, seconds=60) for _ in range(3)]
            assert [h.head["ok"] for h in heads if h is not None] == [False, False, True], head
            assert "UTF-8" in heads[1].head["error"]["message"]  # type: ignore[union-attr]


def test_a_conversation_cut_at_any_byte_harms_nobody(tmp_path: Path) -> None:
    whole = greeting() + frame({"id": 1, "call": "sql"}, b"a;b") + frame({"id": 2, "call": "query"}, b"q")
    with serving(tmp_path):
        for at in range(len(whole) + 1):
            with raw(tmp_path, greet=False) as sock:
                sock.sendall(whole[:at])
                sock.shutdown(socket.SHUT_WR)
                read_to_the_end(sock)
        for at in range(0, len(whole), 7):  # hung up without reading
            with raw(tmp_path, greet=False) as sock:
                sock.sendall(whole[:at])
        check_a_good_client(tmp_path, "after cuts")


@pytest.mark.parametrize(
    "line", [b'{"call": "query", "sql": "SELECT 1"}\n', b"MILLSTREAM 1\n", b"MILLSTREAM 3\n", b"GET / HTTP/1.1\n"]
)
def test_a_client_of_another_version_is_told_so_in_a_line_it_can_read(tmp_path: Path, line: bytes) -> None:
    with serving(tmp_path), raw(tmp_path, greet=False) as sock:
        sock.sendall(line)
        with sock.makefile("rb") as file:
            said = orjson.loads(file.readline())
            assert file.read() == b""
        assert said["ok"] is False and "protocol version 2" in said["error"]["message"]


@pytest.mark.parametrize(
    "answer",
    [
        b'{"ok":false,"error":{"kind":"QueryError","message":"the request cannot be answered: JSONDecodeError"}}\n',
        b"MILLSTREAM 3\n",
        b"220 mail ready\n",
    ],
)
def test_a_server_of_another_version_is_told_of_clearly(tmp_path: Path, answer: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / SOCKET))
        server.listen()

        def serve() -> None:
            accepted, _ = server.accept()
            with accepted:
                assert accepted.recv(100).startswith(GREETING)
                accepted.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(QueryError, match="another version of Millstream"):
            LocalClient(tmp_path)
        thread.join()


def test_a_slow_client_is_cut_off_at_the_deadline_and_an_idle_one_is_not(tmp_path: Path) -> None:
    now = [0.0]
    with serving(tmp_path, frame_seconds=30.0, clock=lambda: now[0]), raw(tmp_path) as slow, raw(tmp_path) as idle:
        whole = frame({"id": 1, "call": "views"})
        slow.sendall(whole[:4])
        check_a_good_client(tmp_path, "meanwhile")
        now[0] = 1000.0
        slow.sendall(whole[4:5])  # (the server may have seen the time already)
        (only,) = all_frames(slow)
        assert only["ok"] is False and "not complete after 30 seconds" in only["error"]["message"]
        idle.sendall(whole)
        found = Wire(idle).receive(wait=60, seconds=60)
        assert found is not None and found.head["ok"]


def test_a_client_that_stalls_is_cut_off(tmp_path: Path) -> None:
    with serving(tmp_path, frame_seconds=0.01, greeting_seconds=0.01):
        with raw(tmp_path, greet=False) as sock:
            assert sock.recv(100) == b""
        with raw(tmp_path, greet=False) as sock:
            sock.sendall(greeting())
            assert Wire(sock).line(seconds=60) == greeting()
            sock.sendall(frame({"id": 1, "call": "views"})[:-1])
            (only,) = all_frames(sock)
            assert only["ok"] is False


def test_there_is_a_bound_on_connections(tmp_path: Path) -> None:
    with serving(tmp_path, connections=2):
        first, second = LocalClient(tmp_path), LocalClient(tmp_path)
        with pytest.raises(QueryError, match="2 readers are connected already"):
            LocalClient(tmp_path)
        assert first.query("1").to_dicts() and second.query("2").to_dicts()
        second.close()
        third: LocalClient | None = None
        while third is None:  # its place is free once the server has seen the end
            try:
                third = LocalClient(tmp_path)
            except QueryError:
                assert first.query("1").to_dicts()
        assert third.query("3").to_dicts() == [{"sql": "3"}]
        first.close()
        third.close()


def test_sessions_of_several_connections_do_not_mix(tmp_path: Path) -> None:
    with serving(tmp_path):
        clients = [LocalClient(tmp_path) for _ in range(3)]
        sessions = [c.session() for c in clients]
        begun = [s.execute(f"a{i};b{i}") for i, s in enumerate(sessions)]
        firsts = [next(b).message for b in begun]
        seconds = [next(b).message for b in begun]
        numbers = [f.split()[0] for f in firsts]
        assert sorted(numbers) == ["1", "2", "3"]
        assert firsts == [f"{n} a{i}" for i, n in enumerate(numbers)]
        assert seconds == [f"{n} b{i}" for i, n in enumerate(numbers)]
        left = sessions[0].execute("x;y;z")
        next(left)  # and the rest is never read
        assert clients[0].query("q").to_dicts() == [{"sql": "q"}]
        assert [a.message for a in sessions[0].execute("last")] == [f"{numbers[0]} last"]
        for client in clients:
            client.close()


def test_the_next_request_ends_a_subscription(tmp_path: Path) -> None:
    with serving(tmp_path):
        client = LocalClient(tmp_path)
        session = client.session()
        answer = next(session.execute("subscribe"))
        assert answer.changes is not None
        found = [next(answer.changes) for _ in range(3)]
        assert [(c.epoch, c.resume) for c in found] == [(n, f"after {n}") for n in (1, 2, 3)] and found[2].table is None
        assert [a.message for a in session.execute("then")] == ["1 then"]
        assert client.query("q").to_dicts() == [{"sql": "q"}]
        client.close()


def test_a_question_is_cancelled_when_its_client_hangs_up(tmp_path: Path) -> None:
    seen: list[BaseException] = []
    asked = threading.Event()

    class Watched(Echo):
        def query(self, sql: str, *, failed_views: str = "error") -> Result:
            asked.set()
            try:
                return super().query(sql)
            except Cancelled as error:
                seen.append(error)
                raise

    server = LocalServer(tmp_path, Watched())
    with raw(tmp_path) as sock:
        sock.sendall(frame({"id": 1, "call": "query"}, b"wait"))
        assert asked.wait(60)
    server.close()  # waits for the question
    assert len(seen) == 1


def test_a_large_answer_comes_in_frames_of_bounded_size(tmp_path: Path) -> None:
    with serving(tmp_path), raw(tmp_path) as sock:
        sock.sendall(frame({"id": 1, "call": "query"}, b"x" * (5 << 20)))
        sock.shutdown(socket.SHUT_WR)
        wire, bodies = Wire(sock), []
        while (found := wire.receive(wait=60, seconds=60)) is not None:
            bodies.append(len(found.body))
        assert len(bodies) > 4 and max(bodies) <= wires.CHUNK


def test_a_client_reconnects_after_the_server_was_replaced(tmp_path: Path) -> None:
    server = LocalServer(tmp_path, Echo())
    client = LocalClient(tmp_path)
    assert client.query("1").to_dicts() == [{"sql": "1"}]
    server.close()
    with pytest.raises(ConnectionLost):
        client.query("2")
    server = LocalServer(tmp_path, Echo())
    assert client.query("3").to_dicts() == [{"sql": "3"}] and client.views()
    server.close()
    server = LocalServer(tmp_path, Echo())  # the read is under way when the old connection is found dead
    assert client.query("4").to_dicts() == [{"sql": "4"}]
    server.close()
    server = LocalServer(tmp_path, Echo())
    with pytest.raises(ConnectionLost):  # of statements nobody knows whether they were carried out
        list(client.session().execute("DROP"))
    client.close()
    server.close()


def test_an_answer_of_another_request_is_never_taken() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(frame({"id": 1, "ok": True, "n": 1}) + frame({"id": 2, "ok": True, "n": 2}))
        assert Received(Wire(ours), 2).next()[0]["n"] == 2
        theirs.sendall(frame({"id": 1, "ok": True, "n": 1}))
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionLost):
            Received(Wire(ours), 3).next()


@pytest.mark.parametrize("data", [b"garbage that is long enough", frame(b"{}", lengths=(2, 2**32 - 1)), MARK + b"\x00"])
def test_a_client_survives_a_broken_server(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(QueryError):
            Received(Wire(ours), 1).next()


def attack(chance: random.Random) -> bytes:
    """What a broken or hostile client may send."""
    good = [
        frame(
            {"id": chance.randrange(100), "call": chance.choice(("query", "sql", "views"))},
            b"q" * chance.randrange(300),
        ),
        frame({"id": 1, "call": "sql"}, b"subscribe"),
        frame(chance.choice(WRONG)),
    ]
    data = bytearray(b"".join(chance.choices(good, k=chance.randrange(1, 5))))
    how = chance.randrange(6)
    if how == 0:
        return chance.randbytes(chance.randrange(200))
    if how == 1:
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    if how == 2:
        del data[chance.randrange(len(data)) :]
    if how == 3:
        at = chance.randrange(len(data))
        data[at:at] = chance.randbytes(chance.randrange(1, 20))
    if how == 4:
        data += frame(b"{}", lengths=(chance.randrange(2**32), chance.randrange(2**32)))
    return bytes(data)


def fuzz(folder: Path, number: int, seed: int) -> None:
    chance = random.Random(seed)
    with serving(folder):
        steady = LocalClient(folder)
        for step in range(number):
            with raw(folder, greet=chance.random() < 0.9) as sock:
                with suppress(BrokenPipeError, ConnectionResetError):  # it was cut off before the end of the attack
                    sock.sendall(attack(chance))
                if chance.random() < 0.7:
                    with suppress(OSError):
                        sock.shutdown(socket.SHUT_WR)
                    read_to_the_end(sock)
            assert steady.query(f"{seed} {step}").to_dicts() == [{"sql": f"{seed} {step}"}], f"seed {seed}, step {step}"
            if step % 10 == 0:
                check_a_good_client(folder, f"{seed} {step}")
        steady.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_server_survives_random_attacks(tmp_path: Path, seed: int) -> None:
    fuzz(tmp_path, 100, seed)


@pytest.mark.slow
def test_a_server_survives_many_random_attacks(tmp_path: Path) -> None:
    for seed in range(100, 120):
        fuzz(tmp_path, 1000, seed)
