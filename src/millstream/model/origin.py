"""Finds the line of user code for error messages."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from types import FrameType

from millstream.errors import Origin

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def here() -> Origin | None:
    """The innermost frame of user code; None if there is none, as on the command line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return Origin(_shorten(frame.f_code.co_filename), frame.f_lineno)
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=1024)
def is_users(file: str) -> bool:
    """Whether a file is user code: not part of this package, Python itself, a library or a command."""
    if file.startswith("<frozen "):
        return False
    places = (_PACKAGE, *_libraries())
    real = os.path.realpath(file)  # a command may be started through a symlink, as installers create them
    return not os.path.abspath(file).startswith(places) and not real.startswith(places)


@functools.cache
def _libraries() -> tuple[str, ...]:
    """The folders of Python, of installed packages and of their commands."""
    named = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    paths = {sysconfig.get_path(name) for name in named}
    paths |= {sysconfig.get_path(name, vars={"base": sys.base_prefix, "platbase": sys.base_prefix}) for name in named}
    paths |= {p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")}
    paths.add(os.path.dirname(functools.__file__))
    return tuple(sorted({place(p) + os.sep for p in paths if p for place in (os.path.abspath, os.path.realpath)}))


def _shorten(file: str) -> str:
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    return file if relative.startswith("..") else relative
