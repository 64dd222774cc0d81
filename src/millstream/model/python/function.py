"""Python functions that expressions may call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Function:
    """A scalar function that runs on the executors, one value at a time. It must be deterministic."""

    name: str
    call: Callable[..., Any]
    returns: str
    """The SQL type of its result."""
