"""The socket protocol, version 2: a greeting, then frames with size limits, ids and deadlines. Both sides use this
module.

Greeting: each side sends one line, ``MILLSTREAM 2``. A server that refuses a connection sends one line of JSON instead,
``{"ok": false, "error": {...}}``, which clients of every version can read.

Frame: the magic ``MSF2``, the length of the head and of the body (4 bytes each, big-endian), the head (a JSON object),
the body. Every request has an ``id``, and every frame of its reply repeats it, so replies cannot be confused. Lengths
are checked before anything is read. After a violation of the frame format the connection is closed, since the next
frame cannot be found. A frame with invalid content is answered with an error, and the connection stays usable.

A connection may be idle for any time. After the first byte of a frame, the rest must arrive before a deadline.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

VERSION = 2
MARK = b"MSF2"
GREETING = b"MILLSTREAM "
LONGEST_GREETING = 200
LONGEST_HEAD = 1 << 20
LONGEST_BODY = 16 << 20
"""The maximum size of a statement, and of one part of a reply, in bytes."""
CHUNK = 1 << 20
"""Bytes of a table per frame."""
FRAME_SECONDS = 30.0
"""Seconds from the first byte of a frame to its last."""

_PREFIX = struct.Struct(">4sII")
_RECEIVED = 1 << 18

Clock = Callable[[], float]


class Malformed(Exception):
    """Bytes that are not a frame: the connection cannot be used any more."""


class TooLarge(Malformed):
    """A frame that exceeds the limits."""

    def __init__(self, message: str, id: int | None = None) -> None:
        super().__init__(message)
        self.id = id


class Closed(Exception):
    """The other side has closed the connection, or it broke."""


@dataclass(frozen=True)
class WireFrame:
    """One frame."""

    head: dict[str, Any]
    body: bytes = field(default=b"", repr=False)


class Wire:
    """One end of a connection. `clock` measures deadlines (monotonic seconds)."""

    def __init__(self, sock: socket.socket, *, clock: Clock = time.monotonic) -> None:
        self._socket, self._clock = sock, clock
        self._deadline: float | None = None

    def send(self, head: dict[str, Any], body: bytes | memoryview = b"", *, seconds: float) -> None:
        """Send a frame. Raises TooLarge before anything is sent, TimeoutError when the other side does not read it."""
        text = orjson.dumps(head)
        if len(text) > LONGEST_HEAD or len(body) > LONGEST_BODY:
            raise TooLarge(too_large(max(len(text), len(body))))
        self.send_bytes(_PREFIX.pack(MARK, len(text), len(body)) + text, seconds=seconds)
        if body:
            self.send_bytes(body, seconds=seconds)

    def send_bytes(self, data: bytes | memoryview, *, seconds: float) -> None:
        """Send raw bytes."""
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(data)
        except TimeoutError:
            raise
        except (OSError, ValueError) as error:
            raise Closed from error

    def receive(self, *, wait: float | None, seconds: float = FRAME_SECONDS) -> WireFrame | None:
        """Receive the next frame; None when the other side closed the connection between frames.

        Waits `wait` seconds for its first byte (None: forever), and `seconds` for the rest.
        """
        self._deadline = None if wait is None else self._clock() + wait
        first = self._read(1, at_end=b"")
        if not first:
            return None
        self._deadline = self._clock() + seconds
        mark, head_length, body_length = _PREFIX.unpack(first + self._read(_PREFIX.size - 1))
        if mark != MARK:
            raise Malformed("the bytes are not those of a frame")
        if head_length > LONGEST_HEAD:
            raise TooLarge(f"the head of a frame has {head_length:,} bytes; at most {LONGEST_HEAD:,} are allowed")
        head = _parsed(self._read(head_length))
        if body_length > LONGEST_BODY:
            raise TooLarge(too_large(body_length), id_of(head))
        return WireFrame(head, self._read(body_length))

    def line(self, *, seconds: float) -> bytes:
        """Receive one short line: a greeting. Empty when the other side closed the connection."""
        self._deadline = self._clock() + seconds
        found = bytearray()
        while not found.endswith(b"\n"):
            byte = self._read(1, at_end=b"")
            if not byte:
                return b""
            found += byte
            if len(found) > LONGEST_GREETING:
                return bytes(found)
        return bytes(found)

    def rest_of_line(self, start: bytes, *, most: int = LONGEST_HEAD) -> bytes:
        """Receive the rest of a longer line: a refusal in JSON."""
        found = bytearray(start)
        while not found.endswith(b"\n") and len(found) < most:
            byte = self._read(1, at_end=b"")
            if not byte:
                break
            found += byte
        return bytes(found)

    def is_readable(self) -> bool:
        """Whether there is something to read now: a request, or the end of the connection."""
        try:
            return bool(_ready(self._socket, select.POLLIN))
        except (OSError, ValueError):
            return True

    def is_gone(self) -> bool:
        """Whether the other side has closed the connection."""
        try:
            return bool(_ready(self._socket, select.POLLRDHUP) & (select.POLLRDHUP | select.POLLHUP | select.POLLERR))
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """Close the connection; wakes a thread that reads from it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._socket.close()

    def _read(self, number: int, *, at_end: bytes | None = None) -> bytes:
        """Read exactly this many bytes before the deadline. Memory grows with the received bytes, not with the
        announced size.
        """
        parts, missing = [], number
        while missing:
            left = None if self._deadline is None else self._deadline - self._clock()
            if left is not None and left <= 0:
                raise TimeoutError
            try:
                self._socket.settimeout(left)
                part = self._socket.recv(min(missing, _RECEIVED))
            except TimeoutError:
                raise
            except (OSError, ValueError) as error:
                raise Closed from error
            if not part:
                if at_end is not None and missing == number:
                    return at_end
                raise Closed
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


def greeting() -> bytes:
    """The line that each side sends first."""
    return GREETING + f"{VERSION}\n".encode()


def greeted(line: bytes) -> int | None:
    """The protocol version of a greeting; None when the line is not a greeting."""
    version = line.removeprefix(GREETING).rstrip(b"\n")
    if not line.startswith(GREETING) or not line.endswith(b"\n") or not version.isdigit():
        return None
    return int(version[:9])


def id_of(head: Any) -> int | None:
    """The id of a request, if it has a valid one."""
    found = head.get("id") if isinstance(head, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 63 else None


def too_large(size: int) -> str:
    """Return the message for a request or a part of a reply that exceeds the limit."""
    return f"it has {size:,} bytes; at most {LONGEST_BODY:,} are allowed"


def _parsed(text: bytes) -> dict[str, Any]:
    """Parse the head of a frame. A head that is not a JSON object has no id and no call,
    and is answered with an error.
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _ready(sock: socket.socket, events: int) -> int:
    poll = select.poll()
    poll.register(sock, events)
    return next((found for _, found in poll.poll(0)), 0)
