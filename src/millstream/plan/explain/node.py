"""The nodes of an explanation, and names and SQL as a person would have written them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BOUNDED = re.compile(r"one row, for good\Z|[\d,]+ rows, for good\Z")
_PLAIN_NAME = re.compile(r"`([A-Za-z_]\w*)`")


@dataclass(frozen=True)
class Node:
    """A part of the plan: what kind it is, its name, facts about it in order, and the parts inside."""

    kind: str
    name: str
    facts: tuple[tuple[str, str], ...] = ()
    children: tuple[Node, ...] = ()


def growing(node: Node) -> Iterator[str]:
    """What a plan says of state that is kept for good and not bounded."""
    said = dict(node.facts).get("state", "")
    if node.kind == "kernel" and "for good" in said and not _BOUNDED.match(said):
        yield said
    for child in node.children:
        yield from growing(child)


def plain(sql: str) -> str:
    """SQL as a person would have written it: quotes only where they are needed."""
    return _PLAIN_NAME.sub(r"\1", sql)


def named(name: str, what: str) -> str:
    """A column and what it is computed as, where that is more than its name."""
    return name if name == what else f"{name} = {what}"


def shown_name(column: str) -> str:
    """The name of a column that a stage has made for itself (``$by0``, ``@sum``) without its mark."""
    return column.lstrip("$@")
