"""Patterns: which rows of each key match, and the output of every match.

`plan/lowering/pattern.py` builds the terms. Columns that begin with ``$c`` are computed natively before the operator.
Those that begin with ``$m`` are values of matches, from which measures are computed natively after it. The kernel is
`kernels/patterns/pattern.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import pyarrow as pa

from millstream.model.patterns.pattern import Skip
from millstream.model.patterns.tree import Part, shown
from millstream.model.steps.aggregation import summed_type
from millstream.model.steps.pattern import TIMED_OUT, Matched
from millstream.model.types.duration import Duration
from millstream.model.types.scalars import mean_type
from millstream.plan.operators.operator import KEPT_INDEFINITELY, ExplainNames, Facts, Operator, Types, Verbatim, lowers
from millstream.plan.operators.patterns.terms import MatchOutput, RowValue, Term, TermCall, VariableCondition

if TYPE_CHECKING:
    from millstream.plan.lowering.stateful import StatefulLowering


@dataclass(frozen=True, eq=False)
class PatternMatch(Operator):
    """A pattern, and the output of its matches."""

    pattern: Part
    variables: tuple[str, ...]
    """All variables: those that match rows, then those that must not occur."""
    conditions: tuple[VariableCondition, ...]
    time: str
    """The column with the event time."""
    order: tuple[tuple[str, bool, bool], ...]
    """The order of rows with equal times: column, descending, NULLs first."""
    within: int | None
    skip: Skip
    outputs: tuple[MatchOutput, ...]
    all_rows: bool
    shown: tuple[str, ...]
    """The columns of a row to emit with it, if all rows are emitted."""
    timeouts: bool = False
    slack: int = 1
    """For how long after the time of a row others with that time may still arrive, in micros."""

    title: ClassVar[str] = "pattern"
    format_name: ClassVar[str] = "Match"

    @property
    def append_only(self) -> bool:
        """True: an emitted match is final."""
        return True

    @property
    def order_matters(self) -> bool:
        """Rows with equal times match in the order in which they arrive."""
        return True

    @property
    def result(self) -> tuple[str, ...]:
        """The columns of a result."""
        late = (TIMED_OUT,) if self.timeouts else ()
        return (*self.keys, *self.shown, *(o.name for o in self.outputs), *late)

    def bind(self, input_types: Types) -> tuple[Self, Types]:
        """The types of a result's columns after the keys."""
        types = {c: input_types[c] for c in self.shown}
        for output in self.outputs:
            types[output.name] = _type(output, input_types)
        return self, {**types, **({TIMED_OUT: pa.bool_()} if self.timeouts else {})}

    def facts(self, names: ExplainNames) -> Facts:
        """The pattern, its order, and its output."""
        rows = "row by row" if any(c.far for c in self.conditions) else "as symbols"
        facts = [("pattern", shown(self.pattern)), ("order", self.time), ("searched", rows)]
        if self.within is not None:
            facts.append(("within", str(Duration(self.within)) + (", with time-outs" if self.timeouts else "")))
        return [*facts, ("after a match", str(self.skip)), ("gives", "all rows" if self.all_rows else "one row each")]

    @property
    def state_grows(self) -> bool:
        """With the number of keys, if something outlives a match."""
        return bool(self.lag) or self.numbered

    def state_text(self, names: ExplainNames) -> str:
        """The rows of incomplete matches."""
        kept = "per key, the rows of an incomplete match"
        kept += ", until it completes or fails" if self.within is None else f", for {Duration(self.within)}"
        more = [f"{self.lag:,} rows to look back at"] * bool(self.lag) + ["a count of matches"] * self.numbered
        return kept + (f"; {' and '.join(more)}, {KEPT_INDEFINITELY}" if more else "")

    def content(self) -> object:
        """The whole pattern."""
        return Verbatim(self.described())

    @property
    def numbered(self) -> bool:
        """Whether matches are counted."""
        return any(o.kind == "number" for o in self.outputs)

    @property
    def lag(self) -> int:
        """How many rows before a row its values and conditions may refer to."""
        return max((0, *(-s for s in self._shifts())))

    @property
    def lead(self) -> int:
        """How many rows after it they may refer to."""
        return max((0, *self._shifts()))

    def _shifts(self) -> list[int]:
        shifts = [o.shift for o in self.outputs]
        terms: list[Term] = [t for c in self.conditions for t in (*c.near, *c.far)]
        while terms:
            term = terms.pop()
            if isinstance(term, RowValue):
                shifts.append(term.shift)
            elif isinstance(term, TermCall):
                terms += term.arguments
        return shifts


@lowers(Matched)
def lower(lowering: StatefulLowering, name: str, step: Matched) -> PatternMatch:
    """The operator of the step. Its rows come in event-time order."""
    from millstream.plan.lowering.pattern import lowered

    lowered_pattern, own = lowered(step)
    side = lowering.side(name, step.input, lowered_pattern, ordered=True)
    return lowering.operator(PatternMatch, name, (side,), tuple(n for n, _ in step.keys), **own)


def _type(output: MatchOutput, input_types: Types) -> pa.DataType:
    if output.kind == "classifier":
        return pa.string()
    if output.column is None or output.kind == "count":
        return pa.int64()
    of = input_types[output.column]
    if output.kind == "at":
        return of
    return mean_type(of) if output.kind == "avg" else summed_type(output.kind, of)
