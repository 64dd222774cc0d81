"""The directory of a home: created if missing, and refused if it is something else or of a newer version. Errors of the
operating system about its files become Millstream errors.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from millstream import paths
from millstream.errors import DefinitionError, DiskFull, HomeDamaged, HomeTooNew
from millstream.log.storage.disk import UNREADABLE
from millstream.settings import FILE as SETTINGS_FILE
from millstream.state.durable import write_durably
from millstream.store.files import STORE_FILE, STORE_FILES

FORMAT = 1
FOLDERS = ("flows", "tables", "log", "checkpoints", "repair", "shadow", "logs", "tmp")
FILES = (paths.MARKER, "lock", "catalog.json", "catalog.json.copy", "state.json", "state.json.copy", *STORE_FILES)
"""The contents of a home; each exists once there is something to keep."""
NEW = orjson.dumps({"format": FORMAT})
HINT = "`millstream repair` says what can be done"


def was_home(path: Path) -> bool:
    """Whether a directory without a readable millstream.json has the files of a home."""
    return any((path / part).exists() for part in (STORE_FILE, "flows", "log", "catalog.json"))


@contextmanager
def files_named(home: Path) -> Iterator[None]:
    """Report a file of the home that cannot be opened, read or replaced as damage, with its name."""
    try:
        yield
    except OSError as error:
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
        if path is None or not path.is_relative_to(home) or error.errno == errno.ENOSPC:
            raise
        if error.errno == errno.EROFS:
            raise HomeDamaged(
                f"the disk of the home {home} is mounted read-only",
                detail="nothing was changed; `millstream query`, `views` and `log read` work there",
                hint="mount it for writing, or copy the home to another disk",
            ) from error
        raise HomeDamaged(
            f"the file {path} cannot be used", detail=UNREADABLE.get(error.errno or 0, error.strerror), hint=HINT
        ) from error


def make_home(path: Path) -> None:
    """Create a home, unless it exists."""
    if "\\" in str(path):
        raise DefinitionError(
            f"a home cannot be in {path}",
            detail="the store cannot open files below a backslash",
            hint="use another path",
        )
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (path / paths.MARKER).exists():
            refuse_other(path)
            write_durably(path / paths.MARKER, NEW)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(f"no space left to create the home {path}") from None
        raise HomeDamaged(
            f"{path} cannot be used as a home: {(error.strerror or str(error)).lower()}",
            hint="name a directory that can be created and written to",
        ) from None


def refuse_other(path: Path) -> None:
    """Refuse an existing path that is neither a home nor an empty directory."""
    try:
        in_use = any(p.name not in ("lock", SETTINGS_FILE) for p in path.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise HomeDamaged(
            f"{path} cannot be used as a home: {(error.strerror or str(error)).lower()}", hint="name a directory"
        ) from None
    if in_use and not (path / paths.MARKER).exists():
        if was_home(path):
            raise HomeDamaged(f"the file {path / paths.MARKER} is missing", hint=HINT)
        raise HomeDamaged(
            f"{path} is not empty and is not a Millstream home",
            hint="name an empty or new directory, or one that Millstream created",
        )


def check_layout(home: Path) -> None:
    """Refuse a home with a file in place of a directory, a directory in place of a file,
    or a link in place of either.
    """
    for names, fits, what in ((FOLDERS, Path.is_dir, "folder"), (FILES, Path.is_file, "file")):
        for path in (home / n for n in names):
            if path.is_symlink():
                raise paths.linked(path)
            if os.path.lexists(path) and not fits(path):
                raise HomeDamaged(
                    f"{path} is not a {what}, as it is in every home",
                    detail="nothing was touched",
                    hint="move it away; then `millstream repair` says what is missing",
                )


def check_format(path: Path) -> None:
    """Refuse a home that is damaged or was written by a newer version, before anything in it is touched."""
    check_layout(path.parent)
    try:
        version = int(orjson.loads(path.read_bytes())["format"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        detail = error.strerror if isinstance(error, OSError) else None
        raise HomeDamaged(f"{path} cannot be read", detail=detail, hint=HINT) from None
    if version > FORMAT:
        raise HomeTooNew(
            f"the home {path.parent} has format {version}, and this Millstream knows formats up to {FORMAT}",
            detail="it was written by a newer version; nothing in it was touched",
            hint="upgrade: pip install --upgrade millstream",
        )
