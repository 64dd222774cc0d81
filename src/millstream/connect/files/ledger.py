"""The ledger of a directory of files: the discovered files, their order, and which of them cannot be read.

It is a file of JSON lines, one per discovered file, appended and fsynced before an epoch may reference it:

    {"n":0,"path":"/data/bids/a.json","size":812,"mtime":1767225600000000}

A problem that is found only when the file is read is appended as a separate line, ``{"n":0,"problem":"..."}``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from millstream import paths
from millstream.errors import HomeDamaged
from millstream.model.types.values import readable


@dataclass(frozen=True)
class FileEntry:
    """A discovered file."""

    path: str
    size: int
    mtime: int
    problem: str | None = None
    """Why it cannot be read."""


def read_line(entries: list[FileEntry], line: bytes) -> None:
    """Parse a line of a ledger. Raises ValueError, KeyError, TypeError or IndexError where it is not one."""
    content = orjson.loads(line)
    number = content["n"]
    if "path" not in content:
        entries[number] = replace(entries[number], problem=str(content["problem"]))
        return
    if number != len(entries):
        raise ValueError(number)
    path = os.fsdecode(bytes.fromhex(content["name"])) if "name" in content else content["path"]
    entries.append(FileEntry(path, content["size"], content["mtime"], content.get("problem")))


def load(ledger: Path) -> list[FileEntry]:
    """Read a ledger for writing; a torn last line (no epoch references it) is cut off."""
    if not ledger.exists():
        return []
    data = ledger.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        paths.truncate(ledger, len(whole))
    entries: list[FileEntry] = []
    for number, line in enumerate(whole.splitlines()):
        try:
            read_line(entries, line)
        except (ValueError, KeyError, TypeError, IndexError):
            raise HomeDamaged(
                f"line {number + 1} of the ledger {ledger} cannot be read",
                hint="`millstream repair` says what can be done",
            ) from None
    return entries


def looked_at(ledger: Path) -> list[FileEntry] | None:
    """The entries of a ledger that another process may own, without a torn last line; None when it cannot be read."""
    entries: list[FileEntry] = []
    try:
        data = ledger.read_bytes()
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            read_line(entries, line)
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return entries


def file_line(number: int, entry: FileEntry) -> bytes:
    """The line of a file. A name that is not UTF-8 is also stored as hexadecimal digits."""
    plain = readable(os.fsencode(entry.path))
    content: dict[str, Any] = {"n": number, "path": plain, "size": entry.size, "mtime": entry.mtime}
    if plain != entry.path:
        content["name"] = os.fsencode(entry.path).hex()
    if entry.problem is not None:
        content["problem"] = entry.problem
    return orjson.dumps(content) + b"\n"


def problem_line(number: int, problem: str) -> bytes:
    """The line of a file that turned out to be damaged."""
    return orjson.dumps({"n": number, "problem": problem}) + b"\n"


def append(ledger: Path, lines: Sequence[bytes]) -> None:
    """Append to a ledger durably."""
    new = not ledger.exists()
    ledger.parent.mkdir(parents=True, exist_ok=True)
    with ledger.open("ab") as file:
        file.write(b"".join(lines))
        file.flush()
        os.fsync(file.fileno())
    if new:
        directory = os.open(ledger.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
