"""The server for readers on the same machine: a Unix socket in the home, accessible only to the user that owns the
home.

`wire.py` defines the frames. A request is ``{"id": 7, "call": "query"}`` with the SQL in its body; the other calls are
``views``, ``flows`` and ``watermarks``, ``checkpoint`` with a name, and ``sql``, which executes statements in the
session of the connection (see `replies.py`).
"""

from __future__ import annotations

import logging
import os
import socket
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from millstream import paths
from millstream.budget import counted_until_sent
from millstream.errors import MillstreamError, QueryError
from millstream.limits import interruptible
from millstream.result import Result, plain
from millstream.serve import wire as wires
from millstream.serve.replies import Reply, Speaks, error_data, refused
from millstream.serve.wire import Closed, Malformed, TooLarge, Wire, WireFrame

SOCKET = "query.sock"
LISTINGS = ("views", "flows", "watermarks")
"""Calls without an argument that return a list of rows; the methods of a home have the same names."""

_LONGEST = 100
GRACE = 10
"""Seconds to wait for pending replies when a home is closed."""


@dataclass(frozen=True)
class ServerBounds:
    """The limits of a server for its clients."""

    connections: int = 256
    """The maximum number of open connections."""
    greeting_seconds: float = 10.0
    frame_seconds: float = wires.FRAME_SECONDS
    clock: wires.Clock = time.monotonic
    """Measures the deadlines."""


class HomeRequests(Protocol):
    """The requests that a reader may send to a home."""

    def query(self, sql: str, *, failed_views: str = "error") -> Result:
        """Answer a SELECT."""
        ...

    def views(self) -> list[dict[str, Any]]:
        """List the views."""
        ...

    def flows(self) -> list[dict[str, Any]]:
        """List the flows."""
        ...

    def watermarks(self) -> list[dict[str, Any]]:
        """List the partitions of all sources."""
        ...

    def checkpoint(self, name: str, to: str | None) -> Path:
        """Save a checkpoint."""
        ...

    def session(self) -> Speaks:
        """Open an SQL session."""
        ...


class LocalServer:
    """Answers readers in separate threads until it is closed."""

    def __init__(self, home: Path, reads: HomeRequests, *, bounds: ServerBounds | None = None) -> None:
        self._link = home / SOCKET
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        path = self._link
        if len(os.fsencode(path)) > _LONGEST:  # a socket path has a length limit that the path of a home does not have
            self._folder = tempfile.TemporaryDirectory(prefix="millstream-")
            path = Path(self._folder.name) / SOCKET
        paths.delete_file(self._link, missing_ok=True, link_ok=True)
        self._server = _Server(str(path), bounds or ServerBounds())
        self._server.reads = reads
        os.chmod(path, 0o600)
        if path != self._link:
            self._link.symlink_to(path)
        threading.Thread(target=self._server.serve_forever, name="millstream-readers", daemon=True).start()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._server.open_connections

    def close(self) -> None:
        """Stop answering."""
        with suppress(OSError):  # wakes the thread that accepts connections: otherwise it polls twice a second
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()
        self._server.finish()
        del self._server.reads  # a thread that ends late must not keep the store open
        paths.delete_file(self._link, missing_ok=True, link_ok=True)
        if self._folder is not None:
            self._folder.cleanup()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 128
    reads: HomeRequests

    def __init__(self, path: str, bounds: ServerBounds) -> None:
        self.bounds = bounds
        self._changed, self._asked, self._closing = threading.Condition(), 0, False
        self._open: set[socket.socket] = set()
        super().__init__(path, _Handler)

    @property
    def open_connections(self) -> int:
        with self._changed:
            return len(self._open)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in a separate thread, unless there are too many."""
        with self._changed:
            full = len(self._open) >= self.bounds.connections
            if not full:
                self._open.add(request)
        if full:
            most = self.bounds.connections
            refuse(
                Wire(request),
                QueryError(f"{most} readers are connected already", hint="close one of them, then try again"),
            )
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The connection has ended."""
        super().shutdown_request(request)
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a broken connection is not an error of the server."""

    @contextmanager
    def answering(self) -> Iterator[HomeRequests]:
        """Return the target of one request while it is answered. Refused while the home is being closed."""
        with self._changed:
            if self._closing:
                raise QueryError("the process that owns the home is closing it", hint="try again")
            self._asked += 1
        try:
            yield self.reads
        finally:
            with self._changed:
                self._asked -= 1
                self._changed.notify_all()

    def finish(self) -> None:
        """Wait for pending replies, accept no more requests (a store in use cannot be closed), and close the
        connections.
        """
        with self._changed:
            self._closing = True
            self._changed.wait_for(lambda: not self._asked, GRACE)
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._open, GRACE)


class _Handler(socketserver.BaseRequestHandler):
    server: _Server
    session: Speaks | None = None

    def handle(self) -> None:
        bounds = self.server.bounds
        self.wire = Wire(self.request, clock=bounds.clock)
        with suppress(Closed, TimeoutError):
            if self._greet():
                while (frame := self._receive(bounds.frame_seconds)) is not None:
                    self._one(frame)

    def _greet(self) -> bool:
        """Exchange greetings; False when the other side uses another version of the protocol."""
        seconds = self.server.bounds.greeting_seconds
        line = self.wire.line(seconds=seconds)
        if not line:
            return False
        version = wires.greeted(line)
        if version == wires.VERSION:
            self.wire.send_bytes(wires.greeting(), seconds=seconds)
            return True
        theirs = "an older version, or is not a Millstream client" if version is None else f"protocol version {version}"
        refuse(
            self.wire,
            QueryError(
                f"the process that owns the home uses protocol version {wires.VERSION}, the client {theirs}",
                hint="use the same version of Millstream for both",
            ),
        )
        return False

    def _receive(self, seconds: float) -> WireFrame | None:
        """Receive the next request; None when there will be none."""
        try:
            return self.wire.receive(wait=None, seconds=seconds)
        except TooLarge as error:
            Reply(self.wire, error.id).error(refused(error))
        except Malformed as error:
            Reply(self.wire, None).error(QueryError("the request cannot be read", detail=str(error)))
        except TimeoutError:
            problem = f"the request was not complete after {seconds:g} seconds"
            Reply(self.wire, None).error(QueryError(problem, hint="send it whole"))
        return None

    def _one(self, frame: WireFrame) -> None:
        reply = Reply(self.wire, wires.id_of(frame.head))
        try:
            if wires.id_of(frame.head) is None:
                raise QueryError("the request cannot be read", detail="its head is not a JSON object with an id")
            with self.server.answering() as reads, interruptible(self.wire.is_gone), counted_until_sent():
                self._answer(reply, frame, reads)
        except MillstreamError as error:
            reply.error(error)
        except TooLarge as error:
            reply.error(QueryError("the response is too large", detail=str(error)))
        except (Closed, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - a reader must get an answer, not a closed socket
            _log_unexpected(error)
            reply.error(
                QueryError(
                    "the request failed: an unexpected fault in the process that owns the home",
                    hint="this is a bug in Millstream; the log of that process has details",
                )
            )

    def _answer(self, reply: Reply, frame: WireFrame, reads: HomeRequests) -> None:
        call = frame.head.get("call")
        if call == "query":
            result = reads.query(_text(frame), failed_views=_string(frame, "failed_views", "error"))
            reply.send({"warnings": list(result.warnings), "epochs": dict(result.epochs)}, result.to_arrow())
        elif call == "sql":
            reply.answers(self._session(reads), _text(frame), _string(frame, "name", "SQL"))
        elif call == "checkpoint":
            name, to = _string(frame, "name", None), frame.head.get("to")
            if to is not None and not isinstance(to, str):
                raise QueryError("the request cannot be read", detail="`to` is not a string")
            reply.send({"folder": str(reads.checkpoint(name, to))})
        elif isinstance(call, str) and call in LISTINGS:
            reply.send_json([plain(r) for r in getattr(reads, call)()])
        else:
            raise QueryError(f"unknown call {str(call)[:60]!r}")

    def _session(self, reads: HomeRequests) -> Speaks:
        if self.session is None:
            self.session = reads.session()
        return self.session


def refuse(wire: Wire, error: MillstreamError) -> None:
    """Refuse a connection in a way that clients of every version can read."""
    with suppress(Closed, TimeoutError):
        wire.send_bytes(orjson.dumps({"ok": False, "error": error_data(error)}) + b"\n", seconds=1)


def _text(frame: WireFrame) -> str:
    try:
        return frame.body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise QueryError(
            "the statement is not UTF-8 text", detail=f"byte {error.start:,} is the first that is wrong"
        ) from None


def _string(frame: WireFrame, name: str, default: str | None) -> str:
    found = frame.head.get(name, default)
    if not isinstance(found, str):
        raise QueryError("the request cannot be read", detail=f"`{name}` is not a string")
    return found


def _log_unexpected(error: Exception) -> None:
    logging.getLogger("millstream").error("a request of a reader failed", exc_info=error)
