"""The pattern tree: which rows must follow one another. Frozen values, created by `Pattern` and by MATCH_RECOGNIZE.

A part consumes rows in order and has preferences: an alternation prefers its parts in the order listed, and a
repetition prefers as many rows as possible (as few as possible if it is reluctant). The first way that leads to a match
is the match.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.errors import DefinitionError, Unsupported
from millstream.model.origin import here

MOST_TIMES = 1_000
"""The largest bound of a repetition."""
MOST_PARTS = 10_000
"""The most rows that the parts of a pattern may name, with bounded repetitions expanded."""
MOST_VARIABLES = 60


@dataclass(frozen=True)
class Variable:
    """One row that matches the condition of a variable."""

    name: str


@dataclass(frozen=True)
class Sequence:
    """Consecutive parts, without rows between them."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Choice:
    """One of several parts; earlier ones are preferred."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Repeat:
    """A repeated part: from `least` to `most` times (None means unbounded)."""

    part: Part
    least: int
    most: int | None
    reluctant: bool = False


@dataclass(frozen=True)
class Excluded:
    """A part whose rows are matched, but omitted from the output of all rows of a match."""

    part: Part


@dataclass(frozen=True)
class Gap:
    """One row that matches none of these variables; it belongs to no variable."""

    unlike: tuple[str, ...] = ()


@dataclass(frozen=True)
class NotNext:
    """Consumes no row: the next one must not match the condition of a variable."""

    name: str


@dataclass(frozen=True)
class Never:
    """No row may match the condition of a variable until the time of the match has elapsed."""

    name: str


Part = Variable | Sequence | Choice | Repeat | Excluded | Gap | NotNext | Never


def children(part: Part) -> tuple[Part, ...]:
    """The direct children of a part."""
    if isinstance(part, Sequence | Choice):
        return part.parts
    return (part.part,) if isinstance(part, Repeat | Excluded) else ()


def walk(part: Part) -> Iterator[Part]:
    """A part and all parts inside it."""
    yield part
    for inner in children(part):
        yield from walk(inner)


def named(part: Part) -> tuple[str, ...]:
    """The variables that rows can match, in order of appearance."""
    return tuple(dict.fromkeys(p.name for p in walk(part) if isinstance(p, Variable)))


def unwanted(part: Part) -> tuple[str, ...]:
    """The variables that only define which rows must not occur."""
    names = [n for p in walk(part) for n in (p.unlike if isinstance(p, Gap) else ())]
    names += [p.name for p in walk(part) if isinstance(p, NotNext | Never)]
    return tuple(n for n in dict.fromkeys(names) if n not in named(part))


def may_be_empty(part: Part) -> bool:
    """Whether a part can match without any row of a variable."""
    return _matches_without(part, (Variable,))


def takes_nothing(part: Part) -> bool:
    """Whether a part can match without any row at all, including gaps."""
    return _matches_without(part, (Variable, Gap))


def _matches_without(part: Part, kinds: tuple[type, ...]) -> bool:
    """Whether a part can match without any of these kinds of parts."""
    if isinstance(part, kinds):
        return False
    if isinstance(part, Sequence):
        return all(_matches_without(p, kinds) for p in part.parts)
    if isinstance(part, Choice):
        return any(_matches_without(p, kinds) for p in part.parts)
    if isinstance(part, Repeat):
        return part.least == 0 or _matches_without(part.part, kinds)
    return _matches_without(part.part, kinds) if isinstance(part, Excluded) else True


def size(part: Part) -> int:
    """How many rows a part names, with bounded repetitions expanded."""
    if isinstance(part, Repeat):
        return size(part.part) * max(1, part.most if part.most is not None else part.least + 1)
    return sum(map(size, children(part))) or 1


def checked(part: Part) -> Part:
    """The pattern if it is valid; otherwise raises an error that explains why not."""
    if may_be_empty(part):
        raise Unsupported(
            "a pattern that can match no row at all is not supported",
            hint="require at least one row, as in A+ instead of A*",
            origin=here(),
        )
    if not _begins_with_rows(part):
        raise DefinitionError("a pattern begins with a row of a variable, not with a gap or a NOT", origin=here())
    for inner in walk(part):
        if not isinstance(inner, Repeat):
            continue
        if inner.least < 0 or (inner.most is not None and (inner.most < inner.least or inner.most < 1)):
            raise DefinitionError(
                f"a part repeated from {inner.least} to {inner.most} times", hint="e.g. {1, 3}", origin=here()
            )
        if max(inner.least, inner.most or 0) > MOST_TIMES:
            raise Unsupported(f"more than {MOST_TIMES:,} times in a pattern", origin=here())
        if takes_nothing(inner.part) and inner.most != 1:
            raise Unsupported(
                "a repeated part of a pattern that may be empty is not supported",
                hint="repeat a part with at least one row in it: (A | B)* instead of (A? B?)*",
                origin=here(),
            )
    if size(part) > MOST_PARTS or len(named(part)) + len(unwanted(part)) > MOST_VARIABLES:
        raise Unsupported("the pattern is too large", hint="use smaller bounds, or fewer variables", origin=here())
    return part


def _begins_with_rows(part: Part) -> bool:
    """Whether the first row always belongs to a variable."""
    if isinstance(part, Variable):
        return True
    if isinstance(part, Sequence):
        for inner in part.parts:
            if not _begins_with_rows(inner):
                return False
            if not takes_nothing(inner):
                return True
        return True
    if isinstance(part, Choice):
        return all(map(_begins_with_rows, part.parts))
    return _begins_with_rows(part.part) if isinstance(part, Repeat | Excluded) else False


def shown(part: Part) -> str:
    """A pattern in MATCH_RECOGNIZE syntax; gaps have a notation of their own."""
    if isinstance(part, Variable):
        return part.name
    if isinstance(part, Sequence):
        return " ".join(f"({shown(p)})" if isinstance(p, Choice) else shown(p) for p in part.parts)
    if isinstance(part, Choice):
        return " | ".join(map(shown, part.parts))
    if isinstance(part, Excluded):
        return "{- " + shown(part.part) + " -}"
    if isinstance(part, Repeat):
        one = isinstance(part.part, Variable | Gap | Excluded)
        return (shown(part.part) if one else f"({shown(part.part)})") + _times(part)
    if isinstance(part, Gap):
        return "[any]" if not part.unlike else f"[not {' or '.join(part.unlike)}]"
    return f"[next not {part.name}]" if isinstance(part, NotNext) else f"[never {part.name}]"


def _times(part: Repeat) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((part.least, part.most))
    if short is None:
        most = "" if part.most is None else str(part.most)
        short = f"{{{most}}}" if part.most == part.least else f"{{{part.least},{most}}}"
    return short + ("?" if part.reluctant else "")
