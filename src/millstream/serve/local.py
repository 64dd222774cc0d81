"""Readers on the same machine: a Unix socket in the home, open to the owner of the home only.

A request is one line of JSON, ``{"call": "query", "sql": "SELECT ..."}`` (or ``views``, ``flows``, ``watermarks``; or
``checkpoint`` with a name). The answer is one line of JSON and, for a query, an Arrow stream behind it:
``{"ok": true, "bytes": 1234}``, or ``{"ok": false, "error": {...}}``.

``{"call": "sql", "sql": "..."}`` carries out statements in the session of this connection (see `spoken.py`).
"""

from __future__ import annotations

import os
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson

from millstream import paths
from millstream.errors import MillstreamError, QueryError
from millstream.result import Result, plain
from millstream.serve import spoken
from millstream.serve.spoken import PATIENCE, RemoteSession, Speaks

SOCKET = "query.sock"
LISTINGS = ("views", "flows", "watermarks")
"""Calls without an argument, whose answer is a list of rows; the methods of a home have the same names."""

_LONGEST = 100
_MAX_REQUEST = 1 << 20
GRACE = 10
"""Seconds that answers under way are waited for when a home is closed."""

T = TypeVar("T")


class Reads(Protocol):
    """What a reader may ask of a home."""

    def query(self, sql: str) -> Result:
        """Answer a SELECT."""
        ...

    def views(self) -> list[dict[str, Any]]:
        """The views."""
        ...

    def flows(self) -> list[dict[str, Any]]:
        """The flows."""
        ...

    def watermarks(self) -> list[dict[str, Any]]:
        """The partitions of all sources."""
        ...

    def checkpoint(self, name: str, to: str | None) -> Path:
        """Keep a checkpoint."""
        ...

    def session(self) -> Speaks:
        """A session of SQL."""
        ...


class LocalServer:
    """Answers readers in threads of its own until it is closed."""

    def __init__(self, home: Path, reads: Reads) -> None:
        self._link = home / SOCKET
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        path = self._link
        if len(os.fsencode(path)) > _LONGEST:  # a socket's name has a bound that a home's path has not
            self._folder = tempfile.TemporaryDirectory(prefix="millstream-")
            path = Path(self._folder.name) / SOCKET
        paths.delete_file(self._link, missing_ok=True, link_ok=True)
        self._server = _Server(str(path), _Handler)
        self._server.reads = reads
        os.chmod(path, 0o600)
        if path != self._link:
            self._link.symlink_to(path)
        threading.Thread(target=self._server.serve_forever, name="millstream-readers", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        with suppress(OSError):  # wakes the thread that waits for callers: it looks up twice a second otherwise
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()
        self._server.finish()
        del self._server.reads  # a reader that stays connected must not keep the store open
        paths.delete_file(self._link, missing_ok=True, link_ok=True)
        if self._folder is not None:
            self._folder.cleanup()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    reads: Reads

    def __init__(self, path: str, handler: type[socketserver.BaseRequestHandler]) -> None:
        self._changed, self._asked, self._closing = threading.Condition(), 0, False
        super().__init__(path, handler)

    def ask(self, question: Callable[[Reads], T]) -> T:
        """What the home answers, unless it is being closed."""
        with self._changed:
            if self._closing:
                raise QueryError("the process that owns the home is closing it", hint="try again")
            self._asked += 1
        try:
            return question(self.reads)
        finally:
            with self._changed:
                self._asked -= 1
                self._changed.notify_all()

    def finish(self) -> None:
        """Wait for the answers under way, and take no more questions: a store in use cannot be closed."""
        with self._changed:
            self._closing = True
            self._changed.wait_for(lambda: not self._asked, GRACE)


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    session: Speaks | None = None

    def handle(self) -> None:
        while line := self.rfile.readline(_MAX_REQUEST):
            try:
                self._answer(orjson.loads(line))
            except MillstreamError as error:
                self._error(error)
            except (BrokenPipeError, ConnectionResetError):
                return
            except Exception as error:  # noqa: BLE001 - a reader must get an answer, not a closed socket
                self._error(QueryError(f"the request cannot be answered: {type(error).__name__}"))

    def _answer(self, request: dict[str, Any]) -> None:
        call = request.get("call")
        if call == "query":
            table = self.server.ask(lambda reads: reads.query(str(request["sql"])).arrow())
            spoken.frame(self.wfile, {"ok": True}, table)
        elif call == "sql":
            self.server.ask(lambda reads: self._speak(reads, str(request["sql"]), str(request.get("name", "SQL"))))
        elif call == "checkpoint":
            folder = self.server.ask(lambda reads: reads.checkpoint(str(request["name"]), request.get("to")))
            self.wfile.write(orjson.dumps({"ok": True, "folder": str(folder)}) + b"\n")
        elif call in LISTINGS:
            rows = self.server.ask(lambda reads: getattr(reads, call)())
            self.wfile.write(orjson.dumps({"ok": True, "rows": [plain(r) for r in rows]}) + b"\n")
        else:
            raise QueryError(f"unknown call {call!r}")

    def _speak(self, reads: Reads, sql: str, name: str) -> None:
        if self.session is None:
            self.session = reads.session()
        spoken.answer(self.wfile, self.session, sql, name)

    def _error(self, error: MillstreamError) -> None:
        self.wfile.write(orjson.dumps({"ok": False, "error": spoken.told(error)}) + b"\n")


class LocalClient:
    """Asks the process that owns a home."""

    def __init__(self, home: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str((home / SOCKET).resolve()))
            self._socket.settimeout(PATIENCE)  # (before, a full queue of callers would be refused instead of waiting)
        except OSError:
            self._socket.close()
            raise
        self._file = self._socket.makefile("rwb")

    def query(self, sql: str) -> Result:
        """Answer a SELECT."""
        table = spoken.table_of(self._file, self._ask({"call": "query", "sql": sql}))
        assert table is not None
        return Result(table)

    def views(self) -> list[dict[str, Any]]:
        """The views."""
        return list(self._ask({"call": "views"})["rows"])

    def flows(self) -> list[dict[str, Any]]:
        """The flows."""
        return list(self._ask({"call": "flows"})["rows"])

    def watermarks(self) -> list[dict[str, Any]]:
        """The partitions of all sources."""
        return list(self._ask({"call": "watermarks"})["rows"])

    def checkpoint(self, name: str, to: str | None) -> str:
        """Have the home keep a checkpoint; returns its folder."""
        return str(self._ask({"call": "checkpoint", "name": name, "to": to})["folder"])

    def session(self) -> RemoteSession:
        """A session of SQL in the process that owns the home."""
        return RemoteSession(self._file)

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):  # wakes a thread that is reading
            self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):  # what was not sent to a process that has died
            self._file.close()
        self._socket.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with suppress(OSError):  # one who has gone away is noticed when there is no answer
            self._file.write(orjson.dumps(request) + b"\n")
            self._file.flush()
        return spoken.read(self._file)
