"""Writes files that are complete and durable when they appear under their name."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millstream import paths
from millstream.errors import DiskFull

WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


def write_durably(path: Path, data: Any) -> None:
    """Write temp, fsync, rename, directory fsync. A full disk raises its own error."""
    temp = path.with_name(f".{path.name}.tmp")
    with disk_full_named(path):
        try:
            with os.fdopen(paths.open_file(temp, WRITE, 0o666), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            paths.rename(temp, path)
            paths.sync_directory(path.parent)
        except OSError:
            paths.delete_file(temp, missing_ok=True)
            raise


@contextmanager
def disk_full_named(path: Path | str) -> Iterator[None]:
    """Translate the error of a full disk into one that users understand."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise DiskFull(
            f"no space left to write {path}",
            hint="free some space and start the flow again; nothing that was committed is lost",
        ) from error
