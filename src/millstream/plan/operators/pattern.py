"""What the match kernel is told: a pattern with its conditions and the values that a match gives. Free of sqlglot.

`plan/lowering/pattern.py` makes these values of a step. Columns that begin with ``$c`` are computed natively before the
stage, those that begin with ``$m`` are values of matches, of which measures are computed natively behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.model.patterns.pattern import Skip
from millstream.model.patterns.tree import Part, shown
from millstream.model.steps.pattern import TIMED_OUT
from millstream.model.steps.step import summed_type
from millstream.model.types.duration import Duration
from millstream.model.types.scalars import mean_type

if TYPE_CHECKING:
    from millstream.plan.operators.chained import Chained


@dataclass(frozen=True)
class At:
    """The value of a column at a row of the match so far."""

    column: str
    of: tuple[int, ...] | None = None
    """The numbers of the variables whose rows are meant (none: all rows); None: the row at hand."""
    first: bool = False
    offset: int = 0
    shift: int = 0


@dataclass(frozen=True)
class Over:
    """A total over the rows of the match so far: count, sum, min, max or avg."""

    kind: str
    column: str | None
    of: tuple[int, ...]


@dataclass(frozen=True)
class Constant:
    """A value as Python has it."""

    value: Any


@dataclass(frozen=True)
class Call:
    """An operator or a function, with SQL's NULL."""

    name: str
    arguments: tuple[Term, ...]


Term = At | Over | Constant | Call


@dataclass(frozen=True)
class Condition:
    """When a row can be taken for a variable: all of these are true."""

    native: tuple[str, ...] = ()
    """Boolean columns, computed natively."""
    near: tuple[Term, ...] = ()
    """Terms over rows at fixed places before or behind the row."""
    far: tuple[Term, ...] = ()
    """Terms over rows that were taken before."""


@dataclass(frozen=True)
class Output:
    """A value of a match, or of each of its rows."""

    name: str
    kind: str
    """``at``, a total, ``classifier`` or ``number``."""
    column: str | None = None
    of: tuple[int, ...] = ()
    first: bool = False
    offset: int = 0
    shift: int = 0
    running: bool = False
    """Over the rows up to the one that is shown, not over all of the match."""


@dataclass(frozen=True)
class Match:
    """A pattern, and what is given of its matches."""

    pattern: Part
    variables: tuple[str, ...]
    """All variables: those that rows are taken for, then those that only must not be there."""
    conditions: tuple[Condition, ...]
    time: str
    """The column with the event time."""
    order: tuple[tuple[str, bool, bool], ...]
    """By what rows of equal times go: column, downwards, NULL first."""
    within: int | None
    skip: Skip
    outputs: tuple[Output, ...]
    all_rows: bool
    shown: tuple[str, ...]
    """The columns of a row that are given with it, when all rows are."""
    timeouts: bool = False
    slack: int = 1
    """For how long after the time of a row others of that time may still come, in micros."""

    only_inserts = True
    name = "pattern"

    @property
    def identity(self) -> Match:
        """What it does, by content."""
        return self

    def result(self, stage: Chained) -> tuple[str, ...]:
        """The columns of a result."""
        late = (TIMED_OUT,) if self.timeouts else ()
        return (*stage.keys, *self.shown, *(o.name for o in self.outputs), *late)

    def facts(self, stage: Chained) -> list[tuple[str, str]]:
        """What EXPLAIN tells of it."""
        rows = "row by row" if any(c.far for c in self.conditions) else "as symbols"
        facts = [("pattern", shown(self.pattern)), ("order", self.time), ("searched", rows)]
        if self.within is not None:
            facts.append(("within", str(Duration(self.within)) + (", time-outs too" if self.timeouts else "")))
        return [*facts, ("after a match", str(self.skip)), ("gives", "all rows" if self.all_rows else "one row each")]

    def state(self, stage: Chained) -> str:
        """What it keeps, and for how long."""
        kept = "per key the rows of a match under way"
        kept += ", until it is found or ruled out" if self.within is None else f", for {Duration(self.within)}"
        more = [f"{self.lag:,} rows to look back at"] * bool(self.lag) + ["a count of matches"] * self.numbered
        return kept + (f"; {' and '.join(more)}, for good" if more else "")

    @property
    def numbered(self) -> bool:
        """Whether matches are counted."""
        return any(o.kind == "number" for o in self.outputs)

    @property
    def lag(self) -> int:
        """How many rows before a row its values and conditions may speak of."""
        return max((0, *(-s for s in self._shifts())))

    @property
    def lead(self) -> int:
        """How many rows behind it they may speak of."""
        return max((0, *self._shifts()))

    def _shifts(self) -> list[int]:
        found = [o.shift for o in self.outputs]
        terms: list[Term] = [t for c in self.conditions for t in (*c.near, *c.far)]
        while terms:
            term = terms.pop()
            if isinstance(term, At):
                found.append(term.shift)
            elif isinstance(term, Call):
                terms += term.arguments
        return found

    def types(self, known: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
        """The types of a result's columns behind the keys, from those of the columns it takes."""
        found = {c: known[c] for c in self.shown}
        for output in self.outputs:
            found[output.name] = _type(output, known)
        return {**found, **({TIMED_OUT: pa.bool_()} if self.timeouts else {})}


def _type(output: Output, known: Mapping[str, pa.DataType]) -> pa.DataType:
    if output.kind == "classifier":
        return pa.string()
    if output.column is None or output.kind == "count":
        return pa.int64()
    of = known[output.column]
    if output.kind == "at":
        return of
    return mean_type(of) if output.kind == "avg" else summed_type(output.kind, of)
