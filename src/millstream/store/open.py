"""Opens the file of the store: its settings, its system tables, and DuckDB's file errors as Millstream errors."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from time import sleep

import duckdb

from millstream import paths
from millstream.errors import DiskFull, HomeDamaged, HomeInUse, MillstreamError

_SYSTEM = """
CREATE SCHEMA IF NOT EXISTS millstream;
CREATE TABLE IF NOT EXISTS millstream.flows (flow VARCHAR PRIMARY KEY, token BIGINT NOT NULL, owner VARCHAR);
CREATE TABLE IF NOT EXISTS millstream.epochs (
    flow VARCHAR, number BIGINT, token BIGINT, plan VARCHAR, slices VARCHAR, clock VARCHAR, version VARCHAR,
    progress VARCHAR, committed_at TIMESTAMPTZ);
CREATE TABLE IF NOT EXISTS millstream.views (
    name VARCHAR, flow VARCHAR, kind VARCHAR, fingerprint VARCHAR, retention BIGINT);
CREATE TABLE IF NOT EXISTS millstream.failures (flow VARCHAR PRIMARY KEY, said VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS millstream.generations (flow VARCHAR PRIMARY KEY, generation BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS millstream.tables (name VARCHAR, version BIGINT, arrow BLOB);
CREATE TABLE IF NOT EXISTS millstream.taken (name VARCHAR, writer VARCHAR, epoch BIGINT);
CREATE TABLE IF NOT EXISTS millstream.written (name VARCHAR, writer VARCHAR, keys BLOB);
CREATE TABLE IF NOT EXISTS millstream.catalog (content BLOB NOT NULL);
"""

_READ_ONLY = "the disk of the store is mounted read-only"
_HINT = "`millstream repair` says what can be done"

Settings = dict[str, str | bool | int | float | list[str]]

PAUSE, PAUSES = 0.05, 100
"""How long the owner of a home waits for its readers: seconds per attempt, and the number of attempts."""


def opened(path: Path, *, read_only: bool, temp: Path | None) -> duckdb.DuckDBPyConnection:
    """Connect to the store, creating it if it does not exist. `temp` is where large queries spill to."""
    settings: Settings = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    if temp is not None:
        settings["temp_directory"] = str(temp)
        settings["max_temp_directory_size"] = f"{shutil.disk_usage(path.parent).free // 2}B"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    settings["memory_limit"] = f"{memory // 2}B"  # of all work together; queries have lower limits
    try:
        fresh = not read_only and not path.exists()
        if fresh:
            _make(path)
        connection = _connected(path, read_only, settings)
        if not read_only and not fresh:
            connection.execute(_SYSTEM)  # an older store may lack a table
    except duckdb.Error as error:
        raise _not_opened(path, error) from None
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET python_enable_replacements = false")
    connection.execute("SET enable_external_access = false")  # no query reads a file, whatever its text
    return connection


def reopened(path: Path, *, temp: Path | None) -> duckdb.DuckDBPyConnection:
    """Reconnect to a store that failed. On a disk that became read-only, queries are still answered."""
    try:
        return opened(path, read_only=False, temp=temp)
    except HomeDamaged as error:
        if error.message != _READ_ONLY:
            raise
        return opened(path, read_only=True, temp=None)


def _connected(path: Path, read_only: bool, settings: Settings) -> duckdb.DuckDBPyConnection:
    """Connect. The owner retries while the file is locked: a reader that found no owner holds it for one query."""
    for _ in range(0 if read_only else PAUSES):
        try:
            return duckdb.connect(str(path), config=settings)
        except duckdb.Error as error:
            if not _is_locked(error):
                raise
            sleep(PAUSE)
    return duckdb.connect(str(path), read_only=read_only, config=settings)


_LOCKED = (
    "could not set lock",  # by another process
    "different configuration than existing",  # by a reader in this process
    "unique file handle conflict",  # by a reader in this process that is being opened or closed at this moment
)


def _is_locked(error: duckdb.Error) -> bool:
    message = str(error).lower()
    return any(text in message for text in _LOCKED)


_empty: list[bytes] = []
"""The file of an empty store, once this process has created one: copying it is faster than creating another."""


def _make(path: Path) -> None:
    """Create a store atomically: a start that dies halfway, for example on a full disk, leaves nothing that looks like
    one.
    """
    unfinished = path.with_name(f".{path.name}.new")
    _remove(unfinished)
    try:
        if not (_empty and _copied(_empty[0], unfinished)):
            with duckdb.connect(str(unfinished)) as connection:
                connection.execute(_SYSTEM)
                connection.execute("CHECKPOINT")
            _empty[:] = [unfinished.read_bytes()]
        paths.rename(unfinished, path)
    except duckdb.Error:
        _remove(unfinished)
        raise


def _copied(content: bytes, file: Path) -> bool:
    """Whether a file could be written; if not, DuckDB reports why."""
    try:
        with os.fdopen(paths.open_file(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), "wb") as new:
            new.write(content)
            new.flush()
            os.fsync(new.fileno())
    except OSError:
        _remove(file)
        return False
    return True


def _remove(file: Path) -> None:
    for part in (file, file.with_name(file.name + ".wal")):
        paths.delete_file(part, missing_ok=True)


def copy_files(path: Path, to: Path) -> None:
    """Copy the file of an open store, and the WAL next to it. A subprocess copies: closing a file here would release
    DuckDB's lock on it.
    """
    for suffix in ("", ".wal"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            done = subprocess.run(
                ["cp", "--", str(part), str(to) + suffix], capture_output=True, text=True, check=False
            )
            if done.returncode:
                kind = DiskFull if "No space left" in done.stderr else HomeDamaged
                raise kind("the store cannot be copied", detail=done.stderr.strip())


def is_damage(error: duckdb.Error) -> bool:
    """Whether an error means that the file of the store is damaged."""
    if isinstance(error, duckdb.ProgrammingError | duckdb.DataError):  # an error of the query, whatever its text
        return False
    return isinstance(error, duckdb.FatalException) or any(w in str(error) for w in ("orrupt", "checksum"))


def failed(error: duckdb.Error) -> MillstreamError:
    """Return the error for a failure of the file of an open store."""
    message = str(error)
    if "No space left" in message or "out of disk" in message.lower():
        return DiskFull(
            "no space left for the store", hint="free some space and start again; nothing committed is lost"
        )
    if "read-only" in message.lower():
        return HomeDamaged(
            _READ_ONLY,
            detail="it may have become so because of an error; what was committed is kept",
            hint="end this process, mount the disk for writing, and start again",
        )
    return HomeDamaged("the store failed", detail=message.splitlines()[0], hint=_HINT)


def _not_opened(path: Path, error: duckdb.Error) -> MillstreamError:
    known, message = failed(error), str(error).splitlines()[0]
    if _is_locked(error):
        return HomeInUse(
            f"the store {path} is open in another process", detail=message, hint="end that process, or wait for it"
        )
    if isinstance(known, DiskFull) or known.message == _READ_ONLY:
        return known
    return HomeDamaged(f"the store {path} cannot be opened", detail=message, hint=_HINT)
