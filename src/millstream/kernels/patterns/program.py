"""Compiles a pattern for the search: to a regular expression over symbols, or to a program of small steps.

**Regular expression.** If conditions do not depend on rows matched before, a row is one character that encodes which
variables it satisfies, and Python's `re` prefers alternatives as the SQL standard does. If more rows may follow the
known rows of a key, two OPEN characters follow them: every part accepts the first of them as a future row and counts as
satisfied at the second. A match therefore consumes OPEN exactly when an alternative preferred to all others still waits
for rows.

**Program.** Otherwise (and where the expression could take exponential time) a program walks the rows with
backtracking. It gives the same result. `kernels/patterns/search.py` runs both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from millstream.errors import RunError
from millstream.kernels.patterns.terms import Evaluated, Path
from millstream.model.patterns.tree import (
    Choice,
    Excluded,
    Gap,
    Never,
    NotNext,
    Part,
    Repeat,
    Sequence,
    Variable,
    children,
    walk,
)

OPEN = "\x01\x02"
CLOSED = "\x03\x03"
_AT_OPEN = r"(?:\x01|(?=\x02))"
MOST_STEPS = 5_000_000
"""The step limit from one row, after which a pattern is reported to explode."""


# ---------------------------------------------------------------- as a regular expression


@dataclass(frozen=True)
class Symbols:
    """The characters of rows: one for every set of variables that some row satisfies."""

    chars: dict[int, str]

    def like(self, variable: int) -> str:
        """The characters of rows that satisfy a variable."""
        return "".join(c for mask, c in self.chars.items() if mask >> variable & 1)

    def unlike(self, variables: tuple[int, ...]) -> str:
        """The characters of rows that satisfy none of some variables."""
        bits = sum(1 << v for v in variables)
        return "".join(c for mask, c in self.chars.items() if not mask & bits)


@dataclass(frozen=True)
class Expression:
    """A compiled expression. `groups` are the variables (and whether hidden) of its groups, if the groups describe the
    match completely.
    """

    compiled: re.Pattern[str]
    groups: tuple[tuple[int, bool], ...] | None
    runs: tuple[frozenset[str], ...]
    """For each unbounded repetition: the symbols that it accepts."""

    @property
    def tame(self) -> bool:
        """Whether no row can match two unbounded repetitions, for which `re` would try all combinations."""
        return all(not one & other for i, one in enumerate(self.runs) for other in self.runs[i + 1 :])


def is_safe(part: Part) -> bool:
    """Whether `re` cannot take exponential time: no unbounded repetition is nested in another one."""
    return _height(part) <= 1


def _height(part: Part) -> int:
    if isinstance(part, Repeat):
        gap = isinstance(part.part, Gap) and part.part.unlike  # what follows it cannot begin with such a row
        return _height(part.part) + (1 if _is_long(part) and not gap else 0)
    return max(map(_height, children(part)), default=0)


def _is_long(part: Repeat) -> bool:
    return part.most is None or part.most > 10


def expression(part: Part, numbers: dict[str, int], symbols: Symbols) -> Expression:
    """Write a pattern as a regular expression over symbols."""
    writer = _Writer(numbers, symbols)
    text = writer.written(part, first=True)
    return Expression(re.compile(text), tuple(writer.groups) if writer.tells else None, tuple(writer.runs))


@dataclass
class _Writer:
    """Writes an expression, with one group for all rows that a variable matches at one place."""

    numbers: dict[str, int]
    symbols: Symbols
    groups: list[tuple[int, bool]] = field(default_factory=list)
    tells: bool = True
    """Whether the groups describe the match completely: none of them matches more than once."""
    runs: list[frozenset[str]] = field(default_factory=list)

    def written(self, part: Part, *, first: bool = False, hidden: bool = False, many: bool = False) -> str:
        """Write a part. `first`: no row was matched before, so the row exists. `many`: the part is in a repetition."""
        if isinstance(part, Variable | Gap):
            return self._captured(part, self._once(part, first=first), hidden, many)
        if isinstance(part, Sequence):
            parts = [self.written(p, first=first and not i, hidden=hidden, many=many) for i, p in enumerate(part.parts)]
            return "".join(parts)
        if isinstance(part, Choice):
            parts = [self.written(p, first=first, hidden=hidden, many=many) for p in part.parts]
            return f"(?:{'|'.join(parts)})"
        if isinstance(part, Excluded):
            return self.written(part.part, first=first, hidden=True, many=many)
        if isinstance(part, NotNext):
            return rf"(?:{_AT_OPEN}|(?![{self.symbols.like(self.numbers[part.name])}\x01\x02]))"
        if isinstance(part, Never):
            return rf"[{self.symbols.unlike((self.numbers[part.name],))}\x01]*(?:(?=\x02)|\Z)"
        if isinstance(part.part, Variable | Gap):
            return self._captured(part.part, self._run(part.part, part, first=first), hidden, many)
        inner = self.written(part.part, hidden=hidden, many=many or part.most != 1)
        if _is_long(part):
            self.runs.append(frozenset(c for p in walk(part) if isinstance(p, Variable) for c in self._chars(p)))
        return f"(?:{inner}){_times(part)}"

    def _captured(self, part: Variable | Gap, text: str, hidden: bool, many: bool) -> str:
        if isinstance(part, Gap):
            return text
        if many:
            self.tells = False
            return text
        self.groups.append((self.numbers[part.name], hidden))
        return f"({text})"

    def _chars(self, part: Variable | Gap) -> str:
        if isinstance(part, Variable):
            return self.symbols.like(self.numbers[part.name])
        return self.symbols.unlike(tuple(self.numbers[n] for n in part.unlike))

    def _once(self, part: Variable | Gap, *, first: bool = False) -> str:
        chars = self._chars(part)
        if first:
            return f"[{chars}]" if chars else "(?!)"
        return rf"(?:[{chars}\x01]|(?=\x02))"

    def _run(self, part: Variable | Gap, times: Repeat, *, first: bool) -> str:
        """Write a repetition of one variable or gap."""
        if _is_long(times) and (isinstance(part, Variable) or not part.unlike):
            self.runs.append(frozenset(self._chars(part)))
        if first and times.least:
            most = None if times.most is None else times.most - 1
            more = Repeat(part, times.least - 1, most, times.reluctant)
            return self._once(part, first=True) + ("" if most == 0 else self._more(part, more))
        return self._more(part, times)

    def _more(self, part: Variable | Gap, times: Repeat) -> str:
        if times.least > 1:
            return f"(?:{self._once(part)}){_times(times)}"
        text = rf"[{self._chars(part)}\x01]{_times(times)}"
        return text if times.least == 0 else rf"(?:{text}|(?=\x02))"


def _times(part: Repeat) -> str:
    return f"{{{part.least},{'' if part.most is None else part.most}}}" + ("?" if part.reluctant else "")


# ---------------------------------------------------------------- as a program

_ROW, _GAP, _NOT, _NEVER, _SPLIT, _JUMP, _DONE = range(7)
FOUND, NONE, WAITS = "found", "none", "waits"


@dataclass
class Program:
    """A pattern as steps: opcode, two arguments, the next step. Decides whether rows from a position match, fail, or
    must wait.
    """

    steps: list[Step]
    bits: list[int]
    """For each row: the variables whose conditions it satisfies, as far as these do not depend on rows matched
    before.
    """
    far: list[Evaluated | None]
    """For each variable: its remaining condition, if any."""
    path: Path
    left: int = MOST_STEPS
    """The remaining number of steps from a row."""
    failed: set[tuple[int, int]] = field(default_factory=set)
    """Steps and rows without a match, if conditions do not depend on the rows matched before."""
    failed_at: tuple[int, bool] = (-1, False)
    """The limit for which they are valid."""

    def attempt(self, start: int, limit: int, *, waits: bool) -> str:
        """Search for a match that begins at a row and ends before `limit`. `waits`: more rows may arrive before it.

        The matched rows are in `path`; if the search waits, they are those of the alternative that waits.
        """
        self.path.cut(0)
        self.left = MOST_STEPS
        seen: set[tuple[int, int]] | None = None
        if all(f is None for f in self.far):
            if self.failed_at != (limit, waits):
                self.failed, self.failed_at = set(), (limit, waits)
            seen = self.failed
        stack: list[tuple[int, int, int]] = [(0, start, 0)]
        while stack:
            at, row, length = stack.pop()
            self.path.cut(length)
            verdict = self._follow(at, row, limit, waits, stack, seen)
            if verdict != NONE:
                self.failed = set()  # some of the positions that were tried are part of the match
                return verdict
        self.path.cut(0)
        return NONE

    def _follow(
        self,
        at: int,
        row: int,
        limit: int,
        waits: bool,
        stack: list[tuple[int, int, int]],
        seen: set[tuple[int, int]] | None,
    ) -> str:
        """Follow one alternative from a step and a row to its end. Other alternatives go onto the stack, the preferred
        one last.

        `seen` are the positions that were tried, if conditions do not depend on the rows matched before.
        """
        steps, bits, far, path = self.steps, self.bits, self.far, self.path
        path_rows, by, left = path.entries, path.by, self.left
        while True:
            left -= 1
            what, one, two, following = steps[at]
            if what == _ROW:
                if row >= limit and waits:
                    return WAITS
                if row >= limit or not bits[row] >> one & 1:
                    break
                by[one].append(row)
                path_rows.append((row, one, two))  # type: ignore[arg-type]
                holds = far[one]
                if holds is not None and holds(path, row) is not True:
                    break
                row += 1
                at = following
            elif what == _SPLIT:
                if seen is not None:
                    if (at, row) in seen:
                        break
                    seen.add((at, row))
                stack.append((two, row, len(path_rows)))  # type: ignore[arg-type]
                at = one
            elif what == _DONE:
                return FOUND
            elif row >= limit and waits:
                return WAITS
            elif row >= limit and what == _GAP:
                break
            elif row >= limit:
                at = following
            elif any(self.fulfils(row, v) for v in self._unwanted(one, two)):
                break
            else:
                row += what != _NOT
                at = at if what == _NEVER else following
        if left < 0:
            raise _explodes()
        self.left = left
        return NONE

    def _unwanted(self, one: int, two: object) -> tuple[int, ...]:
        return two if isinstance(two, tuple) else (one,)

    def fulfils(self, row: int, variable: int) -> bool:
        """Whether a row could match a variable now."""
        if not self.bits[row] >> variable & 1:
            return False
        holds = self.far[variable]
        if holds is None:
            return True
        self.path.by[variable].append(row)
        self.path.entries.append((row, variable, False))
        fulfilled = holds(self.path, row) is True
        self.path.cut(len(self.path.entries) - 1)
        return fulfilled


def _explodes() -> RunError:
    return RunError(
        f"a pattern tried more than {MOST_STEPS:,} ways to match the rows after one",
        hint="use WITHIN, smaller bounds, or conditions that fewer rows satisfy",
    )


Step = tuple[int, int, object, int]


def steps_of(part: Part, numbers: dict[str, int]) -> list[Step]:
    """The steps of a pattern, with jumps resolved."""
    steps = _written(part, numbers)

    def landing(at: int) -> int:
        while steps[at][0] == _JUMP:
            at = steps[at][1]
        return at

    resolved: list[Step] = []
    for i, (what, one, two) in enumerate(steps):
        if what == _SPLIT:
            assert isinstance(two, int)
            resolved.append((what, landing(one), landing(two), i))
        else:
            resolved.append((what, one, two, landing(i + 1) if what != _DONE else i))
    return resolved


def _written(part: Part, numbers: dict[str, int]) -> list[tuple[int, int, object]]:
    """The steps of a pattern in sequence, with jumps."""
    steps: list[tuple[int, int, object]] = []

    def add(part: Part, hidden: bool) -> None:
        if isinstance(part, Variable):
            steps.append((_ROW, numbers[part.name], hidden))
        elif isinstance(part, Gap):
            steps.append((_GAP, 0, tuple(numbers[n] for n in part.unlike)))
        elif isinstance(part, NotNext):
            steps.append((_NOT, numbers[part.name], None))
        elif isinstance(part, Never):
            steps.append((_NEVER, numbers[part.name], None))
        elif isinstance(part, Sequence):
            for inner in part.parts:
                add(inner, hidden)
        elif isinstance(part, Excluded):
            add(part.part, True)
        elif isinstance(part, Choice):
            choose(list(part.parts), hidden)
        else:
            repeat(part, hidden)

    def choose(parts: list[Part], hidden: bool) -> None:
        if len(parts) == 1:
            return add(parts[0], hidden)
        split = hole()
        add(parts[0], hidden)
        out = hole()
        steps[split] = (_SPLIT, split + 1, len(steps))
        choose(parts[1:], hidden)
        steps[out] = (_JUMP, len(steps), None)
        return None

    def repeat(part: Repeat, hidden: bool) -> None:
        for _ in range(part.least):
            add(part.part, hidden)
        if part.most is None:
            split = hole()
            add(part.part, hidden)
            steps.append((_JUMP, split, None))
            steps[split] = forked(split + 1, len(steps), part.reluctant)
            return
        splits = []
        for _ in range(part.most - part.least):
            splits.append(hole())
            add(part.part, hidden)
        for split in splits:
            steps[split] = forked(split + 1, len(steps), part.reluctant)

    def hole() -> int:
        steps.append((_JUMP, 0, None))
        return len(steps) - 1

    def forked(inside: int, behind: int, reluctant: bool) -> tuple[int, int, object]:
        return (_SPLIT, behind, inside) if reluctant else (_SPLIT, inside, behind)

    add(part, False)
    steps.append((_DONE, 0, None))
    return steps
