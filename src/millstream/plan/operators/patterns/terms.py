"""The terms of a pattern: conditions over other rows, and the values of a match. Frozen values, free of sqlglot.

`plan/lowering/pattern.py` builds them and `kernels/patterns/terms.py` evaluates them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.plan.operators.operator import as_before


@dataclass(frozen=True, repr=False)
class RowValue:
    """The value of a column at a row of the match so far."""

    column: str
    of: tuple[int, ...] | None = None
    """The numbers of the variables whose rows are meant (none: all rows); None: the current row."""
    first: bool = False
    offset: int = 0
    shift: int = 0

    __repr__ = as_before("At")


@dataclass(frozen=True, repr=False)
class RowTotal:
    """A total over the rows of the match so far: count, sum, min, max or avg."""

    kind: str
    column: str | None
    of: tuple[int, ...]

    __repr__ = as_before("Over")


@dataclass(frozen=True, repr=False)
class ConstantValue:
    """A constant, as a Python value."""

    value: Any

    __repr__ = as_before("Constant")


@dataclass(frozen=True, repr=False)
class TermCall:
    """An operator or a function, with SQL's NULL semantics."""

    name: str
    arguments: tuple[Term, ...]

    __repr__ = as_before("Call")


Term = RowValue | RowTotal | ConstantValue | TermCall


@dataclass(frozen=True, repr=False)
class VariableCondition:
    """When a row can match a variable: all of these are true."""

    native: tuple[str, ...] = ()
    """Boolean columns, computed natively."""
    near: tuple[Term, ...] = ()
    """Terms over rows at fixed distances before or after the row."""
    far: tuple[Term, ...] = ()
    """Terms over rows matched before."""

    __repr__ = as_before("Condition")


@dataclass(frozen=True, repr=False)
class MatchOutput:
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
    """Whether it covers only the rows up to the one that is shown, instead of the whole match."""

    __repr__ = as_before("Output")
