"""The nodes of an explanation, and helpers that write names and SQL as a user would. `plan/explain/` builds on them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLAIN_NAME = re.compile(r"`([A-Za-z_]\w*)`")


@dataclass(frozen=True)
class Node:
    """A part of the plan: its kind, its name, an ordered list of facts, and its children."""

    kind: str
    name: str
    facts: tuple[tuple[str, str], ...] = ()
    children: tuple[Node, ...] = ()


def plain(sql: str) -> str:
    """SQL as a user would write it: quotes only where they are needed."""
    return _PLAIN_NAME.sub(r"\1", sql)


def named(name: str, what: str) -> str:
    """A column and its expression, or only the name if they are equal."""
    return name if name == what else f"{name} = {what}"


def shown_name(column: str) -> str:
    """The name of a column that an operator generated (``$by0``, ``@sum``), without its prefix."""
    return column.lstrip("$@")
