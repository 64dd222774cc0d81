"""Ownership of a home: one process at a time, by a lock that the system releases when the process dies.

A frozen process (SIGSTOP, a hung disk) keeps the lock. Therefore the owner also writes a heartbeat to the lock file,
every second. A process that wants to take over waits until the lock is free, or until the heartbeat has been silent for
the lease time; then it kills the frozen owner, exactly that process and its Java process, before it opens the home.
A process that lost a flow to another one is refused at its next commit (`store/duckdb.py`).
The first line of the file is the process id; the second holds the other properties as JSON:

    4711
    {"pid": 4711, "started": 8812345, "boot": "0c1f...", "host": "mill", "since": "2026-01-01T00:00:00Z",
     "token": 3, "beat": 12345.678}

`started` is when the process began and `beat` is its last heartbeat, both by clocks that all processes of one host
share and that cannot be set.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

import orjson

from millstream import processes
from millstream.errors import DiskFull, HomeInUse, LeaseLost

LEASE_SECONDS = 5.0
"""The time without a heartbeat after which an owner counts as frozen."""
BEAT_SECONDS = 1.0
WATCH_SECONDS = 2.0
"""The longest time for which a heartbeat must also be observed to be silent before its owner is killed."""
POLL_SECONDS = 0.05
END_SECONDS = 30.0

_LENGTH = 512
_READ = "read it with `millstream query` or ms.connect(...), which go through that process; or stop it first"


@dataclass(frozen=True)
class HomeOwner:
    """What a lock file states about the process that holds the lock."""

    pid: int
    started: int | None = None
    boot: str = ""
    host: str = ""
    since: str = ""
    token: int = 0
    beat: float = 0.0

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine, since the last boot."""
        return self.host == socket.gethostname() and self.boot == processes.boot()

    @property
    def silence(self) -> float | None:
        """Seconds since its last heartbeat; None when that cannot be determined from here."""
        return max(0.0, time.monotonic() - self.beat) if self.is_here and self.beat else None

    def describe(self, lease: float = LEASE_SECONDS) -> str:
        """Describe the owner: its process, since when it owns the home, and whether it is alive."""
        parts = [f"process {self.pid}"]
        if self.host and not self.is_here:
            parts.append(f"on {self.host}")
        if self.since:
            parts.append(f"since {self.since}")
        silence = self.silence
        if silence is not None:
            parts.append("(alive)" if silence <= lease else f"(frozen: last heard {silence:.0f} seconds ago)")
        return " ".join(parts)


def owner_of(path: Path) -> HomeOwner | None:
    """Read the owner from a lock file; None when the file is unreadable."""
    try:
        note = orjson.loads(path.read_bytes().strip().splitlines()[-1])
        return HomeOwner(note) if isinstance(note, int) else HomeOwner(**note)
    except (OSError, ValueError, TypeError, IndexError):
        return None


class HomeLock:
    """The lock of a home, held from creation until `release`. Refuses (HomeInUse) a second owner."""

    def __init__(self, path: Path, *, beat: float = BEAT_SECONDS) -> None:
        self._path = path
        file = _locked(path)
        if file is None:
            raise in_use(path)
        self._file = file
        self._beat = beat
        before = owner_of(path)
        self.owner = _me((before.token if before is not None else 0) + 1)
        try:
            self._write(self.owner)
        except OSError as error:
            file.close()
            if error.errno == errno.ENOSPC:
                raise DiskFull(f"no space left for the lock {path}", hint="free some space and start again") from None
            raise
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="millstream-heartbeat", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Release the home."""
        self._released.set()
        self._thread.join()
        self._file.close()

    def check(self) -> None:
        """Refuse (LeaseLost) to continue when the path leads to a different home than the locked one: it was moved
        while it was in use, or another one was put in its place.
        """
        try:
            there = os.stat(self._path, follow_symlinks=False)
        except OSError:
            there = None
        if there is None or not os.path.samestat(there, os.fstat(self._file.fileno())):
            raise LeaseLost(
                f"the home {self._path.parent} was moved or replaced while this process used it",
                detail=f"the lock {self._path} is {'gone' if there is None else 'not the one that it holds'}; "
                "nothing more is written there",
                hint="stop this process, and start it again with the path that the home has now",
            )

    def _keep(self) -> None:
        while not self._released.wait(self._beat):
            with suppress(OSError):  # with a failing disk, the owner counts as frozen until it recovers
                self._write(replace(self.owner, beat=time.monotonic()))

    def _write(self, owner: HomeOwner) -> None:
        text = b"%d\n%s" % (owner.pid, orjson.dumps(asdict(owner)))
        os.pwrite(self._file.fileno(), text.ljust(_LENGTH) + b"\n", 0)  # in one piece, over the previous one


def wait_for(
    path: Path,
    *,
    lease: float = LEASE_SECONDS,
    give_up: Callable[[], bool] = lambda: False,
    meanwhile: Callable[[], object] = lambda: None,
) -> HomeLock | None:
    """Wait for the lock of a home until it is free or its owner is frozen; a frozen owner is killed. None when
    `give_up` returns true.

    `meanwhile` is called repeatedly while another process owns the home.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    heard, since = None, time.monotonic()
    while not give_up():
        try:
            return HomeLock(path)
        except HomeInUse:
            owner = owner_of(path)
        beat = None if owner is None else (owner.pid, owner.beat)
        if beat != heard:
            heard, since = beat, time.monotonic()
        watched = time.monotonic() - since
        if owner is not None and (owner.silence or 0.0) > lease and watched >= min(WATCH_SECONDS, lease):
            fence(path, owner)
        meanwhile()
        time.sleep(POLL_SECONDS)  # the lock of another process is polled: there is no event to wait on
    return None


def fence(path: Path, owner: HomeOwner) -> None:
    """Kill a frozen owner and wait for its death; refuses where that cannot be done safely."""
    if owner.pid == os.getpid():
        raise in_use(path)
    if not owner.is_here or owner.started is None:
        raise HomeInUse(
            f"the home {path.parent} is in use by {owner.describe()}, and only a process of the same host can end it",
            hint=f"end it there, on {owner.host or 'its host'}, and try again",
        )
    try:
        ended = processes.end(owner.pid, owner.started, END_SECONDS)
    except PermissionError:
        raise HomeInUse(
            f"the home {path.parent} is in use by {owner.describe()}, which belongs to another user",
            hint=f"end it as that user or as root: kill -9 {owner.pid}",
        ) from None
    free = _locked(path)
    if free is not None:  # also when it has just ended by itself
        free.close()
    elif not ended:
        raise HomeInUse(
            f"the home {path.parent} is in use by {owner.describe()}, which cannot be seen or ended from here",
            detail="it may run in another container, or hang in the system",
            hint="end it where it runs, and try again",
        )


def in_use(path: Path) -> HomeInUse:
    """Return the error for a home in use: by whom, since when, and whether the owner is alive."""
    owner = owner_of(path)
    if owner is None:
        return HomeInUse(f"the home {path.parent} is in use by process unknown", hint=_READ)
    frozen = (owner.silence or 0.0) > LEASE_SECONDS
    hint = "take it over, which ends that process: `millstream run --take-over`" if frozen else _READ
    return HomeInUse(f"the home {path.parent} is in use by {owner.describe()}", hint=hint)


def _locked(path: Path) -> FileIO | None:
    file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def _me(token: int) -> HomeOwner:
    since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    pid = os.getpid()
    return HomeOwner(
        pid, processes.started(pid), processes.boot(), socket.gethostname(), since, token, time.monotonic()
    )
