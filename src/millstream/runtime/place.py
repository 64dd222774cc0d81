"""The directory of a home: made where there is none, and refused where it is something else or of a newer version."""

from __future__ import annotations

import errno
from pathlib import Path

import orjson

from millstream.errors import DiskFull, HomeDamaged, HomeTooNew
from millstream.state.run import write_durably

FORMAT = 1


def make_home(path: Path) -> None:
    """Make a home, unless there is one."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (path / "millstream.json").exists():
            if any(p.name != "lock" for p in path.iterdir()):
                raise HomeDamaged(
                    f"{path} is not empty and is not a Millstream home",
                    hint="name an empty or new directory, or one that Millstream has made",
                )
            write_durably(path / "millstream.json", orjson.dumps({"format": FORMAT}))
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise HomeDamaged(f"{path} cannot be used as a home: {error.strerror}") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(f"no space left to make the home {path}") from None
        raise


def check_format(path: Path) -> None:
    """Refuse a home that is damaged or was written by a newer version, before anything in it is touched."""
    try:
        found = orjson.loads(path.read_bytes())["format"]
    except (ValueError, KeyError, TypeError):
        raise HomeDamaged(f"{path} cannot be read", hint="is this a Millstream home?") from None
    if found > FORMAT:
        raise HomeTooNew(
            f"the home {path.parent} has format {found}, and this Millstream knows formats up to {FORMAT}",
            detail="it was written by a newer version; nothing in it was touched",
            hint="upgrade: pip install --upgrade millstream",
        )
