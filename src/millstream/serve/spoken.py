"""SQL over a socket: the answers of a session as frames.

A frame is one line of JSON and, if it says ``bytes``, an Arrow stream behind it. ``{"more": true, "said": ..., "text":
..., "rows": true}`` is an answer; ``{"more": true, "epoch": 7, "snapshot": false}`` one of the changes of a SUBSCRIBE
(without bytes: nothing has changed, but the line is alive); ``{"ok": true, "more": false}`` ends the statements. Who
listens to changes ends that by hanging up.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedIOBase
from typing import Any, Protocol

import orjson
import pyarrow as pa

from millstream import errors
from millstream.errors import MillstreamError, Origin, QueryError
from millstream.live.answer import Answer, Changes
from millstream.result import Result

PATIENCE = 300
"""Seconds that a reader waits for an answer; a query has no limit of its own."""


class Speaks(Protocol):
    """A session."""

    def execute(self, sql: str, *, name: str = "SQL") -> Iterator[Answer]:
        """Carry out statements."""
        ...


def answer(out: BufferedIOBase, session: Speaks, sql: str, name: str) -> None:
    """Carry out statements and write the frames of their answers."""
    for given in session.execute(sql, name=name):
        table = given.result.arrow() if given.result is not None else None
        frame(out, {"ok": True, "more": True, "said": given.said, "text": given.text, "rows": table is not None}, table)
        if given.changes is not None:
            for changes in given.changes:
                frame(
                    out, {"ok": True, "more": True, "epoch": changes.epoch, "snapshot": changes.snapshot}, changes.table
                )
    out.write(orjson.dumps({"ok": True, "more": False}) + b"\n")
    out.flush()


def frame(out: BufferedIOBase, head: dict[str, Any], table: pa.Table | None) -> None:
    """Write a frame: its head, and the table behind it."""
    if table is None:
        out.write(orjson.dumps(head) + b"\n")
    else:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue()
        out.write(orjson.dumps({**head, "bytes": data.size}) + b"\n")
        out.write(data)
    out.flush()


class RemoteSession:
    """A session in the process that owns the home."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._ahead: list[dict[str, Any]] = []
        """A frame that was read by the one before it."""
        self._busy = False

    def execute(self, sql: str, *, name: str = "SQL") -> Iterator[Answer]:
        """Carry out statements there. The changes of a SUBSCRIBE end when the connection is closed."""
        self._finish()
        self._file.write(orjson.dumps({"call": "sql", "sql": sql, "name": name}) + b"\n")
        self._file.flush()
        self._busy = True
        while (head := self._next())["more"]:
            table = table_of(self._file, head)
            if "epoch" in head:
                continue  # of a subscription that nobody reads any more
            result = Result(table) if head.get("rows") and table is not None else None
            changes = self._changes() if not head["said"] and not head["text"] and result is None else None
            yield Answer(head["said"], result, head["text"], changes=changes)

    def _finish(self) -> None:
        """Read what is left of the statements before."""
        while self._busy:
            try:
                table_of(self._file, self._next())
            except MillstreamError:
                return

    def _changes(self) -> Iterator[Changes]:
        while True:
            head = self._next()
            if "epoch" not in head:
                self._ahead.append(head)
                return
            yield Changes(head["epoch"], table_of(self._file, head), head["snapshot"])

    def _next(self) -> dict[str, Any]:
        if self._ahead:
            return self._ahead.pop()
        self._busy = False  # unless this frame says so
        head = read(self._file)
        self._busy = head["more"]
        return head


def read(file: Any) -> dict[str, Any]:
    """The head of the next frame; raises the error that it tells of."""
    try:
        line = file.readline()
    except TimeoutError:
        raise QueryError(
            f"the process that owns the home has not answered for {PATIENCE} seconds",
            hint="it is busy or frozen: `millstream doctor` says who it is",
        ) from None
    except OSError:
        line = b""
    if not line:
        raise QueryError("the process that owns the home has gone away", hint="try again")
    head: dict[str, Any] = orjson.loads(line)
    if not head["ok"]:
        raise meant(head["error"])
    return head


def table_of(file: Any, head: dict[str, Any]) -> pa.Table | None:
    """The table behind the head of a frame, if there is one."""
    if "bytes" not in head:
        return None
    with pa.ipc.open_stream(file.read(head["bytes"])) as reader:
        return reader.read_all()


def told(error: MillstreamError) -> dict[str, Any]:
    """An error as data."""
    where = error.origin
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "detail": error.detail,
        "hint": error.hint,
        "origin": None if where is None else [where.file, where.line, where.column, where.excerpt],
    }


def meant(said: dict[str, Any]) -> MillstreamError:
    """The error that data tells of."""
    kind = getattr(errors, said["kind"], QueryError)
    where = said.get("origin")
    found: MillstreamError = kind(said["message"], detail=said["detail"], hint=said["hint"])
    found.origin = None if where is None else Origin(*where)
    return found
