"""Replies over the socket: tables in parts, the results of a session, errors as data.

``{"id", "ok": true, "more": true, "said", "text", "rows", ...}`` is the reply to one statement; ``{..., "epoch": 7,
"snapshot": false}`` is one of the changes of a SUBSCRIBE (without a table, it is a keep-alive: nothing has changed);
``{"ok": true, "more": false}`` ends the reply to a request. A table is an Arrow stream in the bodies of frames; all but
the last of them have ``"part": true``. A SUBSCRIBE ends when the client closes the connection or sends another request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import orjson
import pyarrow as pa

from millstream import errors
from millstream.errors import ConnectionLost, MillstreamError, Origin, QueryError
from millstream.live.answer import Answer, Changes
from millstream.result import Result
from millstream.serve.wire import CHUNK, Closed, Malformed, TooLarge, Wire, WireFrame
from millstream.sql.parse.script import SqlScript
from millstream.sql.parse.text import Text

PATIENCE = 300.0
"""Seconds that a client waits for the next frame of a reply, and a server for a client that does not read it."""


_LONGEST_TEXT = 20_000
"""The maximum length of one part of an error."""


class Speaks(Protocol):
    """A session."""

    def execute(self, sql: str | SqlScript, *, name: str = "SQL") -> Iterator[Answer]:
        """Execute statements."""
        ...


class Reply:
    """Writes the frames of the reply to one request."""

    def __init__(self, wire: Wire, id: int | None) -> None:
        self._wire, self._id = wire, id

    def send(self, head: dict[str, Any], table: pa.Table | None = None) -> None:
        """Write a frame, or as many as the table needs."""
        head = {"id": self._id, "ok": True, **head}
        if table is None:
            self._wire.send(head, seconds=PATIENCE)
            return
        parts = _Parts(lambda data, last: self._part(head, data, last=last))
        with pa.PythonFile(parts, mode="w") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        parts.end()

    def send_json(self, value: Any) -> None:
        """Write a frame with a JSON value in its body."""
        self._wire.send({"id": self._id, "ok": True}, orjson.dumps(value), seconds=PATIENCE)

    def error(self, error: MillstreamError) -> None:
        """Write the frame of an error, which ends the reply."""
        self._wire.send({"id": self._id, "ok": False, "error": error_data(error)}, seconds=PATIENCE)

    def answers(self, session: Speaks, sql: str, name: str) -> None:
        """Execute statements and write their replies."""
        for answer in session.execute(sql, name=name):
            table = answer.result.to_arrow() if answer.result is not None else None
            head: dict[str, Any] = {"said": answer.message, "text": answer.text, "rows": table is not None}
            if answer.result is not None:
                head |= {"warnings": list(answer.result.warnings), "epochs": dict(answer.result.epochs)}
            if answer.changes is not None:
                head |= {"changes": True}
            self.send({"more": True, **head}, table)
            if answer.changes is not None:
                self._changes(answer.changes)
        self.send({"more": False})

    def _changes(self, subscription: Iterator[Changes]) -> None:
        for changes in subscription:
            head = {"more": True, "epoch": changes.epoch, "snapshot": changes.snapshot, "resume": changes.resume}
            self.send(head, changes.table)
            if self._wire.is_readable():
                close = getattr(subscription, "close", None)
                if close is not None:
                    close()
                return

    def _part(self, head: dict[str, Any], data: memoryview, *, last: bool) -> None:
        self._wire.send({**head, "table": True, **({} if last else {"part": True})}, data, seconds=PATIENCE)


class _Parts:
    """A writable file that sends its content in chunks."""

    closed = False

    def __init__(self, send: Callable[[memoryview, bool], None]) -> None:
        self._send, self._kept = send, bytearray()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for at in range(0, len(view), CHUNK):
            self._kept += view[at : at + CHUNK]
            while len(self._kept) > CHUNK:
                self._send(memoryview(bytes(self._kept[:CHUNK])), False)
                del self._kept[:CHUNK]
        return len(view)

    def end(self) -> None:
        self._send(memoryview(bytes(self._kept)), True)

    def flush(self) -> None:
        """Do nothing: a table ends with `end`."""

    def close(self) -> None:
        """Do nothing: the connection stays open."""


class Received:
    """Reads the frames of the reply to one request; unread frames of earlier requests are skipped."""

    def __init__(self, wire: Wire, id: int, patience: float = PATIENCE) -> None:
        self._wire, self._id, self._patience = wire, id, patience
        self._ahead: list[WireFrame] = []

    def next(self) -> tuple[dict[str, Any], pa.Table | None]:
        """Read the head of the next frame and the table in it, if there is one. Raises the error that it contains."""
        frame = self._ahead.pop() if self._ahead else self._frame()
        if not frame.head.get("ok"):
            raise error_from(frame.head.get("error"))
        if not frame.head.get("table"):
            return frame.head, None
        body = _Body(frame, self._frame)
        with pa.PythonFile(body, mode="r") as source, pa.ipc.open_stream(source) as reader:
            table = reader.read_all()
        body.finish()
        return frame.head, table

    def json(self) -> Any:
        """Return the value in the body of the only frame."""
        frame = self._frame()
        if not frame.head.get("ok"):
            raise error_from(frame.head.get("error"))
        return orjson.loads(frame.body)

    def push_back(self, head: dict[str, Any]) -> None:
        """Push back a frame without a table, to be read again."""
        self._ahead.append(WireFrame(head))

    def _frame(self) -> WireFrame:
        try:
            while (frame := self._wire.receive(wait=self._patience, seconds=self._patience)) is not None:
                id = frame.head.get("id")
                if id == self._id:
                    return frame
                if id is None and not frame.head.get("ok"):  # an error of the whole connection: it is closed next
                    raise error_from(frame.head.get("error"))
        except TimeoutError:
            self._wire.close()  # later frames answer a request that is no longer pending
            raise QueryError(
                f"the process that owns the home has not answered for {self._patience:g} seconds",
                hint="it is busy or frozen: `millstream doctor` identifies it",
            ) from None
        except Malformed as error:
            self._wire.close()
            raise ConnectionLost(
                "the response of the process that owns the home cannot be read", detail=str(error)
            ) from None
        except Closed:
            pass
        self._wire.close()
        raise lost()


class _Body:
    """A readable file: the bodies of the frames of a table, concatenated."""

    closed = False

    def __init__(self, first: WireFrame, following: Callable[[], WireFrame]) -> None:
        self._frame, self._following, self._at = first, following, 0

    def read(self, number: int) -> bytes:
        found = bytearray()
        while len(found) < number:
            part = self._frame.body[self._at : self._at + number - len(found)]
            found += part
            self._at += len(part)
            if not part and not self._advance():
                break
        return bytes(found)

    def finish(self) -> None:
        while self._advance():
            pass

    def close(self) -> None:
        """Do nothing: the connection stays open."""

    def _advance(self) -> bool:
        if not self._frame.head.get("part"):
            return False
        self._frame, self._at = self._following(), 0
        return True


class RemoteSession:
    """A session in the process that owns the home."""

    def __init__(self, ask: Callable[[str, str, dict[str, Any]], Received]) -> None:
        self._ask = ask

    def execute(self, sql: str | SqlScript, *, name: str = "SQL") -> Iterator[Answer]:
        """Execute statements in the owner. The next statements, or closing the connection, end a SUBSCRIBE."""
        text = sql.text if isinstance(sql, SqlScript) else Text(sql, name)
        received = self._ask("sql", text.sql, {"name": text.name})
        while True:
            head, table = received.next()
            if not head.get("more"):
                return
            if "epoch" in head:
                continue  # of a subscription that is no longer read
            yield Answer(
                str(head.get("said") or ""),
                Result(table, warnings_of(head), epochs_of(head)) if head.get("rows") and table is not None else None,
                str(head.get("text") or ""),
                changes=_changes(received) if head.get("changes") else None,
            )


def _changes(received: Received) -> Iterator[Changes]:
    while True:
        head, table = received.next()
        if "epoch" not in head:
            received.push_back(head)
            return
        yield Changes(head["epoch"], table, bool(head.get("snapshot")), str(head.get("resume") or ""))


def warnings_of(head: dict[str, Any]) -> tuple[str, ...]:
    """The warnings in the head of a frame."""
    found = head.get("warnings")
    return tuple(str(w) for w in found) if isinstance(found, list) else ()


def epochs_of(head: dict[str, Any]) -> dict[str, int]:
    """The epochs in the head of a frame: flow -> number. An owner of an earlier version does not send them."""
    found = head.get("epochs")
    return {str(f): n for f, n in found.items() if isinstance(n, int)} if isinstance(found, dict) else {}


def lost() -> ConnectionLost:
    """Return the error for a lost connection."""
    return ConnectionLost("the process that owns the home has closed the connection or has ended", hint="try again")


def error_data(error: MillstreamError) -> dict[str, Any]:
    """Convert an error to data."""
    where = error.origin
    return {
        "kind": type(error).__name__,
        "message": error.message[:_LONGEST_TEXT],
        "detail": error.detail and error.detail[:_LONGEST_TEXT],
        "hint": error.hint and error.hint[:_LONGEST_TEXT],
        "origin": None if where is None else [where.file, where.line, where.column, where.excerpt[:_LONGEST_TEXT]],
    }


def error_from(data: Any) -> MillstreamError:
    """Convert data to the error that it represents."""
    if not isinstance(data, dict) or not isinstance(data.get("message"), str):
        return QueryError("the process that owns the home answered with an error that cannot be read")
    kind = getattr(errors, str(data.get("kind")), QueryError)
    if not (isinstance(kind, type) and issubclass(kind, MillstreamError)):
        kind = QueryError
    where = data.get("origin")
    error: MillstreamError = kind(data["message"], detail=data.get("detail"), hint=data.get("hint"))
    error.origin = Origin(*where) if isinstance(where, list) and len(where) == 4 else None
    return error


def refused(error: TooLarge) -> QueryError:
    """Return the error for a request that exceeds the limits."""
    return QueryError(
        "the request is too large",
        detail=str(error),
        hint="send the statements one by one, or the rows in several INSERTs",
    )
