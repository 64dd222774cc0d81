"""Deprecation warnings. Each use of a deprecated name warns once per call site and names the replacement."""

from __future__ import annotations

import warnings


def deprecated(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that `old` will be removed in favour of `new`. The warning points to the caller of the caller."""
    warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=stacklevel)
