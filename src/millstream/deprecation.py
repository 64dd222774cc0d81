"""Old names that keep working: each use warns once per place in the caller's code, and names what to write instead."""

from __future__ import annotations

import warnings


def deprecated(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that `old` will be removed and `new` takes its place. The warning points to the caller of the caller."""
    warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=stacklevel)
