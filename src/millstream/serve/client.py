"""The client of the socket in a home: sends requests to the process that owns it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import orjson

from millstream.errors import ConnectionLost, MillstreamError, QueryError
from millstream.result import Result
from millstream.serve import wire as wires
from millstream.serve.local import SOCKET
from millstream.serve.replies import (
    PATIENCE,
    Received,
    RemoteSession,
    epochs_of,
    error_from,
    lost,
    refused,
    warnings_of,
)
from millstream.serve.wire import Closed, TooLarge, Wire

T = TypeVar("T")


class LocalClient:
    """A connection to the process that owns a home. Not thread-safe.

    After a connection was lost, the next request reconnects. Interrupted reads are repeated once. When no process
    answers any more, they raise ConnectionLost.
    """

    def __init__(self, home: Path, *, patience: float = PATIENCE) -> None:
        self._home, self._patience = home, patience
        self._last = 0
        self._wire: Wire | None = self._connected()

    def query(self, sql: str, failed_views: str = "error") -> Result:
        """Answer a SELECT; see `Home.query`."""
        head, table = self._again(lambda: self._ask("query", sql, {"failed_views": failed_views}).next())
        if table is None:
            raise QueryError("the process that owns the home replied without a table")
        return Result(table, warnings_of(head), epochs_of(head))

    def views(self) -> list[dict[str, Any]]:
        """List the views."""
        return self._rows("views")

    def flows(self) -> list[dict[str, Any]]:
        """List the flows."""
        return self._rows("flows")

    def watermarks(self) -> list[dict[str, Any]]:
        """List the partitions of all sources."""
        return self._rows("watermarks")

    def checkpoint(self, name: str, to: str | None) -> str:
        """Have the owner save a checkpoint; returns its directory."""
        head, _ = self._ask("checkpoint", more={"name": name, "to": to}).next()
        return str(head["folder"])

    def session(self) -> RemoteSession:
        """Open an SQL session in the process that owns the home. It ends with the connection."""
        return RemoteSession(self._ask)

    def close(self) -> None:
        """Close the connection; wakes a thread that waits for a reply."""
        if self._wire is not None:
            self._wire.close()

    def _rows(self, call: str) -> list[dict[str, Any]]:
        return list(self._again(lambda: self._ask(call).json()))

    def _again(self, ask: Callable[[], T]) -> T:
        """Send a request; if the connection is lost in the meantime, reconnect and send
        it once more. Only for reads.
        """
        try:
            return ask()
        except ConnectionLost:
            self._wire = None
            return ask()

    def _ask(self, call: str, sql: str = "", more: dict[str, Any] | None = None) -> Received:
        """Send a request."""
        if self._wire is None:
            try:
                self._wire = self._connected()
            except OSError:
                raise lost() from None
        self._last += 1
        try:
            head = {**(more or {}), "id": self._last, "call": call}
            self._wire.send(head, sql.encode("utf-8", "surrogatepass"), seconds=self._patience)
        except TooLarge as error:
            raise refused(error) from None
        except (Closed, TimeoutError):
            pass  # an error that was sent before the connection ended can still be read
        return Received(self._wire, self._last, self._patience)

    def _connected(self) -> Wire:
        """Connect and exchange greetings. Raises OSError when there is no server."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        wire = Wire(sock)
        try:
            sock.connect(str((self._home / SOCKET).resolve()))  # no timeout yet: a full queue would be refused
            with suppress(Closed):  # a server that refuses the connection sends the reason first
                wire.send_bytes(wires.greeting(), seconds=self._patience)
            line = wire.line(seconds=self._patience)
            if wires.greeted(line) == wires.VERSION:
                return wire
            if not line:
                raise ConnectionRefusedError
            raise _not_greeted(wire, line)
        except (Closed, TimeoutError) as error:
            wire.close()
            raise ConnectionRefusedError from error
        except BaseException:
            wire.close()
            raise


def _not_greeted(wire: Wire, line: bytes) -> MillstreamError:
    """Return why a server did not return the greeting."""
    if line.startswith(b"{"):
        with suppress(orjson.JSONDecodeError, Closed, TimeoutError):
            greeting = orjson.loads(wire.rest_of_line(line))
            if isinstance(greeting, dict) and "cannot be answered" not in str(greeting.get("error")):  # from version 1
                return error_from(greeting.get("error"))
    return QueryError(
        "the process that owns the home runs another version of Millstream",
        detail=f"it does not support version {wires.VERSION} of the socket protocol",
        hint="end that process and start it with this version",
    )
