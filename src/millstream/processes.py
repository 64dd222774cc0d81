"""Processes of this machine: identifies one exactly and kills only that one. Linux only; elsewhere none is known."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from functools import cache
from pathlib import Path

_PROC = Path("/proc")


@cache
def boot() -> str:
    """An identifier of this boot of the system; empty where it is unknown."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def started(pid: int) -> int | None:
    """The start time of a process, in ticks since boot; None when it does not exist or has ended."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in ("Z", "X") else int(fields[19])


def children(pid: int) -> dict[int, int]:
    """The child processes of a process, with their start times."""
    parents = {}
    for entry in _PROC.iterdir() if _PROC.is_dir() else ():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields is not None and int(fields[1]) == pid and fields[0] not in ("Z", "X"):
                parents[int(entry.name)] = int(fields[19])
    return parents


def name(pid: int) -> str:
    """The short name of a process."""
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def end(pid: int, since: int, wait: float) -> bool:
    """Kill (SIGKILL) the process with this start time, and its Java process, and wait for their death.

    False when there is no such process, or it does not die. A process that reused its id is left alone.
    """
    java = {c: began for c, began in children(pid).items() if name(c) == "java"}
    done = _end(pid, since, wait)
    for child, began in java.items():
        with suppress(PermissionError):
            _end(child, began, wait)
    return done


def terminate(pid: int, since: int, wait: float) -> bool:
    """Ask the process with this start time to end (SIGTERM), and wait. False when there is no such process, or it does
    not end in time.
    """
    return _end(pid, since, wait, signal.SIGTERM)


def _end(pid: int, since: int, wait: float, how: signal.Signals = signal.SIGKILL) -> bool:
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        handle = os.pidfd_open(pid)  # from here on it refers to this process and no other
    except ProcessLookupError:
        return False
    try:
        if started(pid) != since:
            return False
        signal.pidfd_send_signal(handle, how)
        ready, _, _ = select.select([handle], [], [], wait)
        return bool(ready)
    except ProcessLookupError:
        return True  # it has just ended by itself
    finally:
        os.close(handle)


def _stat(pid: int) -> list[str] | None:
    """Read the kernel's status of a process, from its state on (the name before that may contain anything)."""
    try:
        return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
