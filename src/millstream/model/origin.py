"""Finds the user's own line for error messages."""

from __future__ import annotations

import functools
import os
import sys
from types import FrameType

from millstream.errors import Origin

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def here() -> Origin | None:
    """The innermost frame outside this package, or None at an interactive prompt without one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file != functools.__file__ and not os.path.abspath(file).startswith(_PACKAGE):
            return Origin(_shorten(file), frame.f_lineno)
        frame = frame.f_back
    return None


def _shorten(file: str) -> str:
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    return file if relative.startswith("..") else relative
