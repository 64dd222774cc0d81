"""The pattern builder: ``ms.pattern().then("a", "price > 100").followed_by("b", "price < a.price")``.

A condition is SQL over the columns of the row. ``a.price`` refers to the last row that matched `a`. PREV, NEXT, FIRST,
LAST, COUNT, SUM, MIN, MAX and AVG have the same meaning as in MATCH_RECOGNIZE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from millstream.errors import DefinitionError
from millstream.model.connectors import check_name
from millstream.model.expression import Expr
from millstream.model.origin import here
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
    checked,
    named,
)
from millstream.model.types.duration import Duration

Times = int | tuple[int, int | None]


@dataclass(frozen=True)
class Skip:
    """Where the search resumes after a match: after its last row, at its second row, or at a row of a variable."""

    to: str = "past last row"
    variable: str | None = None

    def __str__(self) -> str:
        return f"{self.to} {self.variable}" if self.variable else self.to


PAST_LAST = Skip()
TO_NEXT = Skip("to next row")


@dataclass(frozen=True, eq=False)
class Pattern:
    """A sequence of rows to match. Each method returns a longer pattern; nothing runs.

    >>> rise = pattern().then("low", "price < 10").followed_by("high", "price > low.price * 2").within("1 hour")
    >>> print(rise)
    low {- [not high]* -} high
    """

    parts: tuple[Part, ...] = ()
    conditions: Mapping[str, str | Expr] = field(default_factory=dict)
    longest: Duration | None = None
    skip: Skip = PAST_LAST
    subsets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    avoided: tuple[str, ...] = ()
    """Variables that no row may match before the next part starts."""

    def then(
        self,
        name: str | Pattern,
        condition: str | Expr | None = None,
        *,
        times: Times = 1,
        optional: bool = False,
        reluctant: bool = False,
    ) -> Pattern:
        """The very next row (or rows: `times`) must match a condition, or a nested pattern.

        `times` is a number, or a minimum and a maximum (None means unbounded). The match is greedy: it uses as many
        rows as possible. With `reluctant` it uses as few as possible.
        """
        added, part = self._with(name, condition)
        if self.avoided:
            raise DefinitionError(
                "then(...) cannot follow not_followed_by, which refers to the rows before the next part",
                hint="use followed_by there, or not_next before it",
                origin=here(),
            )
        return replace(added, parts=(*self.parts, _repeated(part, times, optional, reluctant)))

    def followed_by(
        self,
        name: str | Pattern,
        condition: str | Expr | None = None,
        *,
        times: Times = 1,
        optional: bool = False,
        reluctant: bool = False,
        any_of_them: bool = False,
    ) -> Pattern:
        """A later row must match a condition; rows in between that do not match it are skipped.

        With `any_of_them`, rows that match it may be skipped too, if only that leads to a match. With several `times`,
        each is the next row that matches.
        """
        added, part = self._with(name, condition)
        if not self.parts:
            raise DefinitionError("a pattern begins with then(...)", origin=here())
        excluded = () if any_of_them else _first_names(part)
        unlike = tuple(dict.fromkeys((*excluded, *self.avoided)))
        gap = Excluded(Repeat(Gap(unlike), 0, None, reluctant=any_of_them))
        least, most = _bounds(times)
        if (least, most) == (1, 1):
            whole: Part = Sequence((gap, part))
            whole = Repeat(whole, 0, 1, reluctant) if optional else whole
        else:
            whole = _repeated(Sequence((gap, part)), times, optional, reluctant)
        return replace(added, parts=(*self.parts, whole), avoided=())

    def not_followed_by(self, name: str, condition: str | Expr) -> Pattern:
        """No row before the next part may match a condition. At the end of a pattern: no row until `within` has
        elapsed.
        """
        added, _ = self._with(name, condition)
        if not self.parts:
            raise DefinitionError("a pattern begins with then(...)", origin=here())
        return replace(added, avoided=(*self.avoided, name))

    def not_next(self, name: str, condition: str | Expr) -> Pattern:
        """The very next row must not match a condition; the row is not consumed."""
        added, _ = self._with(name, condition)
        if not self.parts:
            raise DefinitionError("a pattern begins with then(...)", origin=here())
        return replace(added, parts=(*self.parts, NotNext(name)))

    def one_of(self, *patterns: Pattern) -> Pattern:
        """One of several patterns comes next; earlier arguments are preferred."""
        if len(patterns) < 2:
            raise DefinitionError("one_of needs at least two patterns", origin=here())
        added, parts = self, []
        for alternative in patterns:
            added, part = added._with(alternative, None)
            parts.append(part)
        return added.then(Pattern((Choice(tuple(parts)),)))

    def within(self, longest: str | timedelta | Duration) -> Pattern:
        """The last row must be less than this long after the first."""
        return replace(self, longest=Duration.positive(longest, what="within"))

    def together(self, name: str, *variables: str) -> Pattern:
        """Define a name for the rows of several variables, as in ``LAST(both.price)``."""
        check_name(name, "variable")
        return replace(self, subsets={**self.subsets, name: variables})

    def skip_past_last(self) -> Pattern:
        """After a match, resume after its last row (the default)."""
        return replace(self, skip=PAST_LAST)

    def skip_to_next(self) -> Pattern:
        """After a match, resume at its second row, so that matches may overlap."""
        return replace(self, skip=TO_NEXT)

    def skip_to_first(self, variable: str) -> Pattern:
        """After a match, resume at its first row of a variable."""
        return replace(self, skip=Skip("to first", variable))

    def skip_to_last(self, variable: str) -> Pattern:
        """After a match, resume at its last row of a variable."""
        return replace(self, skip=Skip("to last", variable))

    def tree(self) -> Part:
        """The pattern as a tree, checked."""
        end = tuple(Never(name) for name in self.avoided)
        if len(end) > 1:
            raise DefinitionError("one not_followed_by at the end of a pattern is enough: use OR", origin=here())
        if end and self.longest is None:
            raise DefinitionError(
                "not_followed_by at the end of a pattern needs within(...)",
                detail="without it, there is no end to the time in which no such row may arrive",
                origin=here(),
            )
        parts = (*self.parts, *end)
        return checked(parts[0] if len(parts) == 1 else Sequence(parts))

    def _with(self, name: str | Pattern, condition: str | Expr | None) -> tuple[Pattern, Part]:
        """This pattern with the conditions of a part, and the part."""
        if isinstance(name, Pattern):
            if condition is not None or name.avoided or not name.parts:
                raise DefinitionError("a pattern inside another has no condition, and ends in a row", origin=here())
            new, part = name.conditions, name.parts[0] if len(name.parts) == 1 else Sequence(name.parts)
        else:
            check_name(name, "variable")
            new, part = {} if condition is None else {name: condition}, Variable(name)
        twice = next((n for n in new if n in self.conditions and new[n] is not self.conditions[n]), None)
        if twice is not None:
            raise DefinitionError(
                f"the variable `{twice}` has two conditions", hint="give it another name", origin=here()
            )
        return replace(self, conditions={**self.conditions, **new}), part

    def __str__(self) -> str:
        from millstream.model.patterns.tree import shown

        return shown(Sequence((*self.parts, *(Never(n) for n in self.avoided))))


def pattern() -> Pattern:
    """An empty pattern. Extend it with its methods."""
    return Pattern()


def _first_names(part: Part) -> tuple[str, ...]:
    """The variables that the first row of a part can match."""
    if isinstance(part, Variable):
        return (part.name,)
    if isinstance(part, Sequence):
        return _first_names(part.parts[0])
    if isinstance(part, Choice):
        return tuple(n for p in part.parts for n in _first_names(p))
    return _first_names(part.part) if isinstance(part, Repeat | Excluded) else named(part)


def _bounds(times: Times) -> tuple[int, int | None]:
    least, most = (times, times) if isinstance(times, int) else times
    plain = type(least) is int and (most is None or type(most) is int)
    if not plain or least < 0 or (most is not None and most < max(1, least)):
        raise DefinitionError(f"times={times!r}", hint="e.g. times=3, times=(1, 3) or times=(1, None)", origin=here())
    return least, most


def _repeated(part: Part, times: Times, optional: bool, reluctant: bool) -> Part:
    least, most = _bounds(times)
    if optional:
        least = 0 if least == 1 else least
    repetition = part if (least, most) == (1, 1) else Repeat(part, least, most, reluctant)
    return Repeat(repetition, 0, 1, reluctant) if optional and least > 0 else repetition
