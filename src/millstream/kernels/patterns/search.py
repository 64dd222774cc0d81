"""The search: finds the rows of every key that match a pattern, and the rows at which a match may still begin.

Rows of a key are adjacent and ordered. A search begins at each row that may begin a match, in order; its result decides
where the next search begins. If a search must wait for future rows, the key waits too, unless the pattern resumes at
the next row in any case: then the later rows are searched without waiting. The pattern kernel emits the matches and
keeps the waiting rows.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import polars as pl

from millstream.kernels.patterns.program import (
    CLOSED,
    FOUND,
    NONE,
    OPEN,
    WAITS,
    Expression,
    Program,
    Symbols,
    expression,
    is_safe,
    steps_of,
)
from millstream.kernels.patterns.terms import NotVector, Path, all_of, column, columns_of
from millstream.model.patterns.pattern import PAST_LAST, TO_NEXT
from millstream.model.patterns.tree import Part, Sequence, Variable, children, takes_nothing
from millstream.model.types.values import plain_values
from millstream.plan.operators.patterns.pattern import PatternMatch
from millstream.plan.operators.patterns.terms import Term

_FIRST_CHAR = 0x100
_SURROGATES = 0xD800
_LONG = 2_000
"""If one repetition can match this many rows, a program is faster, because it remembers where it has failed."""


@dataclass(frozen=True)
class PatternRows:
    """The known rows of the keys to search."""

    frame: pl.DataFrame
    starts: np.ndarray
    """The first row of each key."""
    ends: np.ndarray
    ready: np.ndarray
    """For each key: the end of the rows that can be decided. Rows after it wait for further rows."""
    times: np.ndarray
    may_begin: np.ndarray
    """For each row: whether a match may begin there."""
    passed: int
    """Future rows are not before this time."""
    closed: bool
    """Whether no more rows arrive."""

    @property
    def keys(self) -> np.ndarray:
        """The number of each row's key."""
        return np.repeat(np.arange(len(self.starts)), self.ends - self.starts)


@dataclass
class FoundMatches:
    """Matches in the order they were found, with the rows they consist of."""

    first: list[int] = field(default_factory=list)
    """The first row of each match."""
    timed_out: list[bool] = field(default_factory=list)
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    """For each row of a match: its position, the match, the variable, and whether it is hidden."""
    match: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    variable: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    hidden: np.ndarray = field(default_factory=lambda: np.empty(0, bool))
    waiting: list[int] = field(default_factory=list)
    """Rows at which a match may still begin but cannot be decided yet."""


def search(match: PatternMatch, rows: PatternRows) -> FoundMatches:
    """Find all matches that can be decided now."""
    masks, far = _masks(match, rows)
    numbers = {n: i for i, n in enumerate(match.variables)}
    if not any(far) and is_safe(match.pattern):
        text, symbols = _text(rows, masks, apart=match.skip != TO_NEXT)
        compiled = expression(match.pattern, numbers, symbols)
        way = _ByExpression(text, compiled, rows)
        if compiled.tame and (match.within is not None or _longest(text, compiled) < _LONG):
            if compiled.groups is None:
                steps = steps_of(match.pattern, numbers)
                program = Program(steps, masks.tolist(), [None] * len(numbers), Path(len(numbers)))
                return _walk(match, rows, masks, _ByBoth(way, _ByProgram(program, rows)))
            if match.within is None and match.skip == PAST_LAST:
                return _at_once(way, rows)
            return _walk(match, rows, masks, way)
    values = _values(rows.frame, [t for terms in far for t in terms])
    whole = {n for n in values if rows.frame.schema[n].is_integer()}
    conditions = [all_of(terms, values, whole) for terms in far]
    program = Program(steps_of(match.pattern, numbers), masks.tolist(), conditions, Path(len(numbers)))
    return _walk(match, rows, masks, _ByProgram(program, rows))


def _longest(text: str, compiled: Expression) -> int:
    """The most rows that an unbounded repetition can match. (A long one would be tried from each of its rows.)"""
    most = 0
    chars = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    for run in compiled.runs:
        others = np.flatnonzero(~np.isin(chars, np.array([ord(c) for c in run], dtype=np.uint32)))
        most = max(most, int(np.diff(others, prepend=-1).max(initial=0)) - 1)
    return most


def _masks(match: PatternMatch, rows: PatternRows) -> tuple[np.ndarray, list[tuple[Term, ...]]]:
    """For each row, the variables that it satisfies; for each variable, the conditions that depend on rows matched
    before.
    """
    count = len(rows.frame)
    masks = np.zeros(count, dtype=np.int64)
    place = np.arange(count) - np.repeat(rows.starts, rows.ends - rows.starts)
    left = np.repeat(rows.ends, rows.ends - rows.starts) - np.arange(count) - 1
    far: list[tuple[Term, ...]] = []
    for i, condition in enumerate(match.conditions):
        fulfilled = np.ones(count, dtype=bool)
        for name in condition.native:
            fulfilled &= rows.frame[name].fill_null(False).to_numpy()
        late = list(condition.far)
        for term in condition.near:
            try:
                fulfilled &= column(term, rows.frame, place, left).fill_null(False).to_numpy()
            except NotVector:
                late.append(term)
        far.append(tuple(late))
        masks |= fulfilled.astype(np.int64) << i
    return masks, far


def _values(frame: pl.DataFrame, terms: list[Term]) -> dict[str, list[Any]]:
    by_column = {}
    for name in columns_of(list(terms)):
        values = frame[name]
        by_column[name] = plain_values(
            values.cast(pl.Datetime("us")) if isinstance(values.dtype, pl.Datetime) else values
        )
    return by_column


def _begins(part: Part, numbers: dict[str, int]) -> int:
    """The variables that the first row of a match can satisfy, as a mask."""
    if isinstance(part, Variable):
        return 1 << numbers[part.name]
    mask = 0
    for inner in children(part):
        mask |= _begins(inner, numbers)
        if isinstance(part, Sequence) and not takes_nothing(inner):
            break
    return mask


# ---------------------------------------------------------------- the ways to judge a row


class _ByProgram:
    """Searches row by row, with the program."""

    def __init__(self, program: Program, rows: PatternRows) -> None:
        self.program = program
        self.key = -1
        self.starts, self.ends = rows.starts.tolist(), rows.ends.tolist()
        self.paths: list[list[tuple[int, int, bool]]] = []

    def attempt(self, start: int, limit: int, key: int, waits: bool) -> str:
        """Decide the rows from a position on."""
        path = self.program.path
        if key != self.key:
            self.key, path.low, path.high = key, self.starts[key], self.ends[key]
        return self.program.attempt(start, limit, waits=waits)

    def was_on_the_way(self, start: int, limit: int, key: int) -> bool:
        """Whether rows up to a limit were the beginning of a match, if more rows could have arrived."""
        return self.attempt(start, limit, key, True) == WAITS

    def keep(self) -> None:
        """Record the rows of the last attempt."""
        self.paths.append(self.program.path.entries.copy())

    def last_of(self, variable: int | None, *, first: bool = False) -> int | None:
        """The last (or first) row of a variable, or of all, in the last attempt."""
        path_rows = self.program.path.entries
        of = path_rows if variable is None else [t for t in path_rows if t[1] == variable]
        return (of[0] if first else of[-1])[0] if of else None

    def spread(self, matches: FoundMatches) -> FoundMatches:
        """The matches, with all recorded rows."""
        count = sum(map(len, self.paths))
        values = (v for path_rows in self.paths for one in path_rows for v in one)
        all_of = np.fromiter(values, np.int64, 3 * count).reshape(-1, 3)
        matches.rows, matches.variable, matches.hidden = all_of[:, 0], all_of[:, 1], all_of[:, 2].astype(bool)
        matches.match = np.repeat(np.arange(len(self.paths)), [len(t) for t in self.paths])
        return matches


class _ByExpression:
    """Searches rows as symbols in one text: those of a key are adjacent, followed by OPEN or CLOSED."""

    def __init__(self, text: str, compiled: Expression, rows: PatternRows) -> None:
        self.text, self.expression = text, compiled
        self.groups = compiled.groups or ()
        self.judge = compiled.compiled.match
        unready = rows.ends - rows.ready
        self.shift: list[int] = (2 * np.arange(len(unready)) - np.cumsum(unready) + unready).tolist()
        """For each key: the offset from its rows to their positions in the text."""
        self.last: Any = None
        self.moved = self.limit = 0
        self.registers: list[tuple[tuple[int, int], ...]] = []
        self.borders: list[tuple[int, int]] = []

    def attempt(self, start: int, limit: int, key: int, waits: bool) -> str:
        """Decide the rows from a position on."""
        self.moved = shift = self.shift[key]
        self.limit = limit
        self.last = hit = self.judge(self.text, start + shift, limit + shift + (2 if waits else 0))
        if hit is None:
            return NONE
        return WAITS if waits and hit.end() == limit + shift + 1 else FOUND

    def was_on_the_way(self, start: int, limit: int, key: int) -> bool:
        """Whether rows up to a limit were the beginning of a match, if more rows could have arrived."""
        shift = self.shift[key]
        self.last = self.judge(self.text[start + shift : limit + shift] + OPEN)
        self.moved, self.limit = -start, limit
        return self.last is not None and self.last.end() == limit - start + 1

    def keep(self) -> None:
        """Record the rows of the last attempt."""
        self.registers.append(self.last.regs)
        self.borders.append((self.moved, self.limit))

    def last_of(self, variable: int | None, *, first: bool = False) -> int | None:
        """The last (or first) row of a variable, or of all, in the last attempt."""
        spans = [
            span
            for (of, _), span in zip(self.groups, self.last.regs[1:], strict=True)
            if (variable is None or of == variable) and span[0] < span[1]
        ]
        if not spans:
            return None
        return int(spans[0][0] if first else spans[-1][1] - 1) - self.moved

    def spread(self, matches: FoundMatches) -> FoundMatches:
        """The matches, with all recorded rows."""
        borders = np.array(self.borders, dtype=np.int64).reshape(-1, 2)
        return _spread(matches, self.groups, _spans(self.registers, len(self.groups)), borders[:, 0], borders[:, 1])


class _ByBoth:
    """Decides with the expression, then finds the rows of a match with the program."""

    def __init__(self, judging: _ByExpression, telling: _ByProgram) -> None:
        self.judging, self.telling = judging, telling
        self.last = (0, 0, 0, False)

    def attempt(self, start: int, limit: int, key: int, waits: bool) -> str:
        """Decide the rows from a position on."""
        self.last = (start, limit, key, waits)
        return self.judging.attempt(start, limit, key, waits)

    def was_on_the_way(self, start: int, limit: int, key: int) -> bool:
        """Whether rows up to a limit were the beginning of a match, if more rows could have arrived."""
        self.last = (start, limit, key, True)
        return self.judging.was_on_the_way(start, limit, key)

    def keep(self) -> None:
        """Record the rows of the last attempt."""
        self.telling.attempt(*self.last)
        self.telling.keep()

    def last_of(self, variable: int | None, *, first: bool = False) -> int | None:
        """The last (or first) row of a variable, or of all, in the last recorded match."""
        return self.telling.last_of(variable, first=first)

    def spread(self, matches: FoundMatches) -> FoundMatches:
        """The matches, with all recorded rows."""
        return self.telling.spread(matches)


_Way = _ByProgram | _ByExpression | _ByBoth


def _text(rows: PatternRows, masks: np.ndarray, *, apart: bool) -> tuple[str, Symbols]:
    """The decidable rows as symbols, and the symbols. `apart`: rows at which no match may begin satisfy no variable."""
    known, inverse = np.unique(masks, return_inverse=True)
    codes = np.arange(len(known)) + _FIRST_CHAR
    codes[codes >= _SURROGATES] += 0x800
    drawn = codes[inverse]
    if apart:
        drawn[~rows.may_begin] = ord(CLOSED[0])
    lengths = rows.ready - rows.starts
    text = np.empty(int(lengths.sum()) + 2 * len(lengths), dtype="<u4")
    behind = np.cumsum(lengths + 2)
    mark = CLOSED if rows.closed else OPEN
    text[behind - 2], text[behind - 1] = ord(mark[0]), ord(mark[1])
    place = np.arange(len(masks)) - np.repeat(rows.starts, rows.ends - rows.starts)
    there = place < np.repeat(lengths, rows.ends - rows.starts)
    at = np.repeat(behind - lengths - 2, rows.ends - rows.starts) + place
    text[at[there]] = drawn[there]
    chars = {int(m): chr(c) for m, c in zip(known.tolist(), codes.tolist(), strict=True)}
    return text.tobytes().decode("utf-32-le"), Symbols(chars)


def _spans(regs: list[tuple[tuple[int, int], ...]], groups: int) -> np.ndarray:
    """For each match and group (the whole match first): begin and end in the text."""
    numbers = chain.from_iterable(chain.from_iterable(regs))
    return np.fromiter(numbers, np.int64, len(regs) * 2 * (groups + 1)).reshape(-1, groups + 1, 2)


def _spread(
    matches: FoundMatches, groups: tuple[tuple[int, bool], ...], regs: np.ndarray, moved: np.ndarray, limit: np.ndarray
) -> FoundMatches:
    """The matches, with the rows that groups of the expression matched."""
    there = regs[:, 1:, 0] >= 0
    low = np.where(there, regs[:, 1:, 0] - moved[:, None], 0)
    high = np.where(there, np.minimum(regs[:, 1:, 1] - moved[:, None], limit[:, None]), 0)
    lengths = np.maximum(high - low, 0)
    flat = lengths.ravel()
    begins = np.repeat(low.ravel() - (np.cumsum(flat) - flat), flat)
    matches.rows = begins + np.arange(len(begins))
    matches.match = np.repeat(np.arange(len(regs)), lengths.sum(axis=1))
    matches.variable = np.repeat(np.tile(np.array([v for v, _ in groups], dtype=np.int64), len(regs)), flat)
    matches.hidden = np.repeat(np.tile(np.array([h for _, h in groups], dtype=bool), len(regs)), flat)
    return matches


# ---------------------------------------------------------------- from row to row


def _at_once(way: _ByExpression, rows: PatternRows) -> FoundMatches:
    """Find all matches in one pass over the text."""
    regs = _spans([m.regs for m in way.expression.compiled.finditer(way.text)], len(way.groups))
    chars = np.frombuffer(way.text.encode("utf-32-le"), dtype="<u4")
    shift = np.array(way.shift, dtype=np.int64)
    begins = rows.starts + shift
    """Where the rows of a key begin in the text."""
    moved = shift[np.searchsorted(begins, regs[:, 0, 0], side="right") - 1]
    first = regs[:, 0, 0] - moved
    waits = chars[regs[:, 0, 1] - 1] == ord(OPEN[0])
    matches = FoundMatches(
        waiting=first[waits & (chars[regs[:, 0, 0]] > ord(CLOSED[0]))].tolist()
    )  # else there is no row
    matches.first = first[~waits].tolist()
    matches.timed_out = [False] * len(matches.first)
    ends = np.full(len(matches.first), len(rows.frame), dtype=np.int64)
    return _spread(matches, way.groups, regs[~waits], moved[~waits], ends)


def _walk(match: PatternMatch, rows: PatternRows, masks: np.ndarray, way: _Way) -> FoundMatches:
    """Find all matches, from row to row."""
    numbers = {n: i for i, n in enumerate(match.variables)}
    can = rows.may_begin & (masks & _begins(match.pattern, numbers) != 0)
    can &= np.arange(len(can)) < np.repeat(rows.ready, rows.ends - rows.starts)
    begin = np.flatnonzero(can)
    matches, times = FoundMatches(), rows.times.tolist()
    ready, ends = rows.ready.tolist(), rows.ends.tolist()
    resume, blocked = 0, -1
    overlapping = match.skip == TO_NEXT
    for start, key in zip(begin.tolist(), rows.keys[begin].tolist(), strict=True):
        if start < resume or key == blocked:
            continue
        limit, waits = _limit(match, rows, start, times, ready[key], ends[key])
        verdict = way.attempt(start, limit, key, waits)
        if verdict == WAITS:
            matches.waiting.append(start)
            blocked = blocked if overlapping else key
            continue
        timed_out = verdict == NONE and match.timeouts and way.was_on_the_way(start, limit, key)
        if verdict == NONE and not timed_out:
            continue
        way.keep()
        matches.first.append(start)
        matches.timed_out.append(timed_out)
        if not timed_out and not overlapping:
            resume = max(start + 1, _after(match, way, numbers))
    return way.spread(matches)


def _limit(
    match: PatternMatch, rows: PatternRows, start: int, times: list[int], ready: int, end: int
) -> tuple[int, bool]:
    """The row after which a match from here must have ended, and whether rows may still arrive before it."""
    if match.within is None:
        return ready, not rows.closed
    over = times[start] + match.within
    if times[ready - 1] >= over:
        return bisect_left(times, over, start, ready), False
    if ready < end and times[ready] < over:
        return ready, True  # known rows that cannot be decided yet
    return ready, rows.passed < over and not rows.closed


def _after(match: PatternMatch, way: _Way, numbers: dict[str, int]) -> int:
    """The first row at which the next match may begin. If the variable to skip to has no row, the next row."""
    skip = match.skip
    if skip.variable is None:
        last = way.last_of(None)
        return 0 if last is None else last + 1
    return way.last_of(numbers[skip.variable], first=skip.to == "to first") or 0
