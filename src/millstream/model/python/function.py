"""Python functions that expressions may call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Function:
    """A function of a row's values, called value by value on the executors. It must be deterministic."""

    name: str
    call: Callable[..., Any]
    returns: str
    """The SQL type of what it gives."""
