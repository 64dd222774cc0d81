"""Random queries from the patterns of docs/language.md, so that a pattern is tested as soon as it is documented."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
COLUMNS = {"number": ("k", "v"), "text": ("s",)}
BASES = ("a", "b", "c")

_HOLE = re.compile(r"\{([a-z_]+)(#\d+)?((?: [a-z])*)\}")


@cache
def patterns() -> dict[str, tuple[str, ...]]:
    """The patterns of the page, by the name of their list."""
    found: dict[str, list[str]] = {}
    for name, body in re.findall(r"^```grammar (\w+)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        found.setdefault(name, []).extend(line for line in body.splitlines() if line)
    return {name: tuple(dict.fromkeys(lines)) for name, lines in found.items()}


class Deck:
    """Deals the patterns of each list one after the other, so that few queries have all of them. Each seed goes on
    elsewhere.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._dealt: Counter[str] = Counter()

    def deal(self, name: str) -> str:
        """The next pattern of a list."""
        cards = list(patterns()[name])
        random.Random(name).shuffle(cards)
        step = next(n for n in (7, 5, 3, 1) if len(cards) % n)
        self._dealt[name] += 1
        return cards[(self.seed * step + self._dealt[name]) % len(cards)]


@dataclass
class Making:
    """One random query. `used` has the patterns that are in it."""

    chance: random.Random
    used: list[str] = field(default_factory=list)
    bases: tuple[str, ...] = BASES
    """What FROM may name: sources, tables, or views that are there."""
    deck: Deck | None = None
    """What deals the patterns; else they are chosen at random."""

    def query(self, depth: int) -> str:
        """A query with the columns k, v and s."""
        return self.filled(self.pick("relation"), "relation", depth, ())

    def windowed(self) -> str:
        """A query over the windows of a source."""
        return self.filled(self.pick("windowed"), "relation", 0, ())

    def pick(self, name: str) -> str:
        return self.chance.choice(patterns()[name]) if self.deck is None else self.deck.deal(name)

    def relation(self, depth: int) -> str:
        """Something that may stand in FROM."""
        if depth <= 0 or self.chance.random() < 0.35:
            return self.chance.choice(self.bases)
        return f"({self.query(depth - 1)})"

    def filled(self, pattern: str, kind: str, depth: int, scope: tuple[str, ...]) -> str:
        """A pattern without its choices and holes. `scope` has the relations whose columns expressions read."""
        self.used.append(pattern)
        same: dict[str, str] = {}

        def hole(found: re.Match[str]) -> str:
            name, number, of = found[1], found[2], tuple(found[3].split()) or scope
            made = same.get(found[0]) if number else None
            if made is None:
                made = same[found[0]] = self.hole(name, kind, depth, of)
            return made

        return _HOLE.sub(hole, self.chosen(pattern))

    def hole(self, name: str, kind: str, depth: int, scope: tuple[str, ...]) -> str:
        """What stands in a hole of a pattern of this kind."""
        if name in ("relation", "small", "distinct", "base", "select"):
            if name == "base":
                return self.chance.choice(self.bases)
            if name == "select":
                return self.filled(self.simple(), "relation", min(depth, 1), ())
            if name == "distinct":
                return f"(SELECT DISTINCT k, v, s FROM {self.relation(depth)} d)"
            return self.relation(depth if name == "relation" else min(depth, 1))
        if name in ("column", "text_column"):
            given = COLUMNS["number" if name == "column" else "text"]
            names = [f"{r}.{c}" for r in scope for c in given] if scope else list(given)
            return self.chance.choice(names)
        if name == "literal":
            return str(self.chance.randrange(-2, 5))
        nested = depth if kind not in patterns() or kind in ("relation",) else depth - 1
        if kind == "relation":
            nested = self.chance.choice((0, 1, 1, 2))
        return self.expression(name, nested, scope)

    def expression(self, name: str, depth: int, scope: tuple[str, ...]) -> str:
        """An expression of a kind."""
        if depth <= 0 and name in ("number", "text"):
            plain = "{column}" if name == "number" else "{text_column}"
            return self.filled(plain, name, 0, scope)
        if depth <= 0 and name == "condition":
            return self.filled("{number} > 1", name, 0, scope)
        return self.filled(self.pick(name), name, depth, scope)

    def simple(self) -> str:
        """A pattern of a plain SELECT, for both sides of a set."""
        own_order = ("LIMIT", "DISTINCT ON", "FETCH FIRST")  # which would be taken for that of the whole
        plain = [p for p in patterns()["relation"] if p.startswith("SELECT") and not any(o in p for o in own_order)]
        return self.chance.choice(plain)

    def chosen(self, pattern: str) -> str:
        """A pattern with its options and choices decided."""
        while (start := _option(pattern)) >= 0:
            end, level = start, 0
            for end in range(start, len(pattern)):
                level += {"[": 1, "]": -1}.get(pattern[end], 0)
                if level == 0:
                    break
            inner = pattern[start + 1 : end] if self.chance.random() < 0.5 else ""
            pattern = pattern[:start] + inner + pattern[end + 1 :]
        while (found := _alternatives(pattern)) is not None:
            start, end, several = found
            pattern = pattern[:start] + self.chance.choice(several) + pattern[end:]
        return re.sub("  +", " ", pattern).strip()


def _option(pattern: str) -> int:
    """Where the first part begins that may be left out; ``l[0]`` is an element of an array."""
    found = re.search(r"(?<!\w)\[", pattern)
    return -1 if found is None else found.start()


def _alternatives(pattern: str) -> tuple[int, int, list[str]] | None:
    """The first bracket that holds a choice ``(a | b)``: where it starts and ends, and what there is to choose from."""
    for start, char in enumerate(pattern):
        if char != "(":
            continue
        level, parts, last = 0, [], start + 1
        for at in range(start, len(pattern)):
            if pattern[at] == "(":
                level += 1
            elif pattern[at] == ")":
                level -= 1
                if level == 0:
                    if parts:
                        return start, at + 1, [*parts, pattern[last:at].strip()]
                    break
            elif pattern[at : at + 3] == " | " and level == 1:
                parts.append(pattern[last:at].strip())
                last = at + 3
    return None
